"""What each attention head looks at: how spread, how far, and at which tokens.

A sentences, H heads, T tokens.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from math import sqrt
from typing import Annotated, Any, ClassVar

import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from isotrain.analysis.charts import LinePlot
from isotrain.analysis.data_sets import TEXTS, Corpus, read_corpus
from isotrain.analysis.encode import drawn, padded, tokenise
from isotrain.analysis.show import Frames, TableSpec
from isotrain.analysis.types import Analysis, Found, Part, Record, Subject, analysis
from isotrain.tasks.data.sources import Source

TARGETS = {  # of a token's attention, as offsets or kinds of the token that is looked at
    "itself": "itself",
    "previous": "previous token",
    "next": "next token",
    "first": "first token",
    "special": "special tokens",
}
MEASURES = {"entropy": "entropy", "distance": "distance"} | TARGETS
UNIFORM = "uniform"


def measures(share_HTT: Tensor, special_T: Tensor) -> dict[str, Tensor]:
    """Measures `[H]` of the attention of one sentence, from each token (row) to each (column).

    Means over the tokens that are not special. `entropy` −Σ a ln a in nats, in [0, ln T];
    `distance` Σ a·|i − j| in tokens; the others are shares of the attention, in [0, 1]: on the
    token itself, the one before, the one after, the first, and all special tokens. Clark et al.
    2019.

    >>> found = measures(torch.eye(3)[None], torch.tensor([1, 0, 0]))
    >>> found["entropy"].item(), found["itself"].item(), found["special"].item()
    (0.0, 1.0, 0.0)
    """
    share_HTT = share_HTT.double()
    at_T = torch.arange(len(special_T))
    apart_TT = at_T[None, :] - at_T[:, None]  # key minus query
    weights_TT = {
        "distance": apart_TT.abs().double(),
        "itself": (apart_TT == 0).double(),
        "previous": (apart_TT == -1).double(),
        "next": (apart_TT == 1).double(),
        "first": (at_T == 0).double().expand_as(apart_TT),
        "special": special_T.double().expand_as(apart_TT),
    }
    own = special_T == 0
    found = {"entropy": torch.special.entr(share_HTT).sum(dim=2)}
    found |= {name: (share_HTT * weight).sum(dim=2) for name, weight in weights_TT.items()}
    return {name: value_HT[:, own].mean(dim=1) for name, value_HT in found.items()}


def attentions(subject: Subject, ids: Sequence[Sequence[int]], segments: Any) -> Sequence[Tensor]:
    """The attention `[A, H, T, T]` of each block to sentences.

    Raises:
        ValueError: the encoder has no attention, or its model does not return it.
    """
    encoder: Any = subject.encoder
    if encoder.model is None:
        raise ValueError(f"analysis=attention needs a transformer, got {encoder.source_id}")
    device = next(encoder.parameters()).device
    batch = padded(ids, encoder.tokenizer.pad_token_id or 0, segments).to(device)
    earlier = encoder.model.config._attn_implementation
    encoder.model.set_attn_implementation("eager")  # others return no attention
    try:
        with torch.inference_mode():
            found = encoder.model(**encoder.inputs(batch), output_attentions=True).attentions
    finally:
        encoder.model.set_attn_implementation(earlier)
    if not found or any(one is None or one.dim() != 4 for one in found):
        raise ValueError(f"{type(encoder.model).__name__} returns no attention of its heads")
    return found  # type: ignore[no-any-return]


def _layers(frames: Frames) -> pd.DataFrame:
    """Means over the heads of a layer, and over the sentences for uniform attention."""
    found = frames.of("head")
    names = [*MEASURES]
    found[names] = found[names].astype(float)
    return found.groupby(["weights", "layer"], sort=False)[names].mean().reset_index()


@analysis
class Attention(Analysis):
    """What do the heads of each block look at?

    Attention from tokens that are not special, a mean over tokens and then over sentences, for
    each head. Uniform attention to all tokens of the same sentences stands beside. Clark et al.
    2019. The arguments are the keys of `conf/analysis/attention.yaml`.
    """

    name = "attention"
    question = "What do attention heads look at: separators, neighbours, the token itself?"
    TABLES: ClassVar = (
        TableSpec(
            "layers",
            "Attention by layer, a mean over its heads",
            of=lambda frames: pd.concat(
                [_layers(frames), frames.of(UNIFORM).assign(layer=UNIFORM)]
            ),
            index={"layer": "layer"},
            values=MEASURES,
            notes=(
                "Entropy in nats; distance in tokens; shares of the attention of a token that is "
                "not special. Uniform: attention that is the same to all tokens of a sentence.",
            ),
        ),
        TableSpec(
            "heads",
            "Attention of each head",
            of="head",
            index={"layer": "layer", "head": "head"},
            values=MEASURES,
            notes=("{n_sentences:,} sentences; ± half a 95 % CI over them.",),
        ),
    )
    PLOTS: ClassVar = (
        LinePlot(
            "targets",
            "What attention goes to, by layer",
            "By layer: shares of the attention, means over heads.",
            of=_layers,
            y=TARGETS,
            ylabel="share of the attention",
        ),
        LinePlot(
            "entropy",
            "How spread attention is, by layer",
            "By layer: the entropy of attention, a mean over heads.",
            of=_layers,
            y={"entropy": "entropy"},
            ylabel="entropy in nats",
        ),
    )

    corpus: Corpus = "snli"
    max_sentences: Annotated[int, Field(ge=2)] = 1000

    def data_sets(self, source: Source) -> Sequence[Any]:
        """The corpus."""
        return [TEXTS[self.corpus].data_set]

    def parts(self, subject: Subject) -> Iterator[Part]:
        """One part."""
        yield Part("heads", partial(self._measured, subject))

    def _measured(self, subject: Subject) -> Found:
        tokenizer = subject.encoder.tokenizer
        every = read_corpus(subject.source, self.corpus, ["dev"], str(tokenizer.unk_token))
        tokens = tokenise(
            tokenizer, drawn(every, self.max_sentences, subject.seed), subject.max_length
        )
        kept = [i for i, own in enumerate(tokens.special) if not all(own)]
        of_sentence: list[list[dict[str, Tensor]]] = []  # of each block
        uniform: list[dict[str, Tensor]] = []
        for start in range(0, len(kept), subject.batch_size):
            at = kept[start : start + subject.batch_size]
            given = [tokens.ids[i] for i in at], [tokens.segments[i] for i in at]
            found = [one.cpu() for one in attentions(subject, *given)]
            for a, i in enumerate(at):
                n, special = len(tokens.ids[i]), torch.tensor(tokens.special[i])
                of_sentence.append([measures(one[a, :, :n, :n], special) for one in found])
                uniform.append(measures(torch.full((1, n, n), 1 / n), special))
        records = [
            {"kind": "head", "layer": layer, "head": head, "n_sentences": len(kept), **own}
            for layer in range(1, len(of_sentence[0]) + 1)
            for head, own in enumerate(_heads([one[layer - 1] for one in of_sentence]), start=1)
        ]
        return Found([*records, {"kind": UNIFORM, **_heads(uniform)[0]}])


def _heads(of_sentence: Sequence[dict[str, Tensor]]) -> list[Record]:
    """For each head the means over sentences, with standard errors."""
    found: list[dict[str, Any]] = [{} for _ in next(iter(of_sentence[0].values()))]
    for name in MEASURES:
        value_SH = torch.stack([one[name] for one in of_sentence])
        error_H = value_SH.std(dim=0) / sqrt(len(value_SH))
        for own, value, error in zip(found, value_SH.mean(dim=0), error_H, strict=True):
            own |= {name: float(value), f"{name}_error": float(error)}
    return [*found]
