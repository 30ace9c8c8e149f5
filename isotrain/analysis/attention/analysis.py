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
from isotrain.analysis.encode import subsample, tokenise
from isotrain.analysis.show import Frames, TableSpec
from isotrain.analysis.types import Analysis, Part, PartResult, Record, Subject, analysis
from isotrain.encoders.trial import padded_batch
from isotrain.tasks.data.sources import Source

TARGETS = {  # targets of a token's attention, by offset or kind
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
    position_T = torch.arange(len(special_T))
    offset_TT = position_T[None, :] - position_T[:, None]  # key minus query
    weights_TT = {
        "distance": offset_TT.abs().double(),
        "itself": (offset_TT == 0).double(),
        "previous": (offset_TT == -1).double(),
        "next": (offset_TT == 1).double(),
        "first": (position_T == 0).double().expand_as(offset_TT),
        "special": special_T.double().expand_as(offset_TT),
    }
    ordinary_T = special_T == 0
    values = {"entropy": torch.special.entr(share_HTT).sum(dim=2)}
    values |= {name: (share_HTT * weight).sum(dim=2) for name, weight in weights_TT.items()}
    return {name: value_HT[:, ordinary_T].mean(dim=1) for name, value_HT in values.items()}


def attentions(subject: Subject, ids: Sequence[Sequence[int]], segments: Any) -> Sequence[Tensor]:
    """Attention `[A, H, T, T]` of each block for a batch of sentences.

    Raises:
        ValueError: the encoder has no attention, or its model does not return it.
    """
    encoder: Any = subject.encoder
    if encoder.model is None:
        raise ValueError(f"analysis=attention needs a transformer, got {encoder.source_id}")
    device = next(encoder.parameters()).device
    batch = padded_batch(ids, encoder.tokenizer.pad_token_id or 0, segments).to(device)
    implementation = encoder.model.config._attn_implementation
    encoder.model.set_attn_implementation("eager")  # other implementations return no attention
    try:
        with torch.inference_mode():
            shares = encoder.model(**encoder.inputs(batch), output_attentions=True).attentions
    finally:
        encoder.model.set_attn_implementation(implementation)
    if not shares or any(share is None or share.dim() != 4 for share in shares):
        raise ValueError(f"{type(encoder.model).__name__} returns no attention of its heads")
    return shares  # type: ignore[no-any-return]


def _layers(frames: Frames) -> pd.DataFrame:
    """Means over the heads of a layer, and over the sentences for uniform attention."""
    heads = frames.of("head")
    names = [*MEASURES]
    heads[names] = heads[names].astype(float)
    return heads.groupby(["weights", "layer"], sort=False)[names].mean().reset_index()


@analysis
class Attention(Analysis):
    """What do the heads of each block look at?

    Attention from tokens that are not special, a mean over tokens and then over sentences, for
    each head. Uniform attention over the same sentences is given for comparison, of a causal
    encoder over the tokens up to each. Clark et al. 2019. The arguments are the keys of
    `conf/analysis/attention.yaml`.
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
                "not special. Uniform: attention that is the same to all tokens of a sentence, in "
                "a causal encoder to those up to the token itself.",
            ),
        ),
        TableSpec(
            "heads",
            "Attention of each head",
            of="head",
            index={"layer": "layer", "head": "head"},
            values=MEASURES,
            notes=("{n_sentences:,} sentences of dev; ± 95 % CI over them.",),
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

    def _measured(self, subject: Subject) -> PartResult:
        tokenizer = subject.encoder.tokenizer
        unknown = tokenizer.unk_token or "<unk>"
        sentences = read_corpus(subject.source, self.corpus, ["dev"], unknown)
        if not sentences:
            raise ValueError(f"analysis.corpus={self.corpus} has no dev split; use another")
        tokens = tokenise(
            tokenizer, subsample(sentences, self.max_sentences, subject.seed), subject.max_length
        )
        indices = [i for i, mask in enumerate(tokens.special) if not all(mask)]
        values: list[list[dict[str, Tensor]]] = []  # by sentence and block
        uniform: list[dict[str, Tensor]] = []
        for start in range(0, len(indices), subject.batch_size):
            batch = indices[start : start + subject.batch_size]
            inputs = [tokens.ids[i] for i in batch], [tokens.segments[i] for i in batch]
            shares = [share.cpu() for share in attentions(subject, *inputs)]
            for a, i in enumerate(batch):
                n, special = len(tokens.ids[i]), torch.tensor(tokens.special[i])
                values.append([measures(share[a, :, :n, :n], special) for share in shares])
                keys = torch.ones(1, n, n).tril(0 if subject.encoder.is_causal else n)
                uniform.append(measures(keys / keys.sum(dim=2, keepdim=True), special))
        records = [
            {"kind": "head", "layer": layer, "head": head, "n_sentences": len(indices), **means}
            for layer in range(1, len(values[0]) + 1)
            for head, means in enumerate(_heads([blocks[layer - 1] for blocks in values]), start=1)
        ]
        return PartResult([*records, {"kind": UNIFORM, **_heads(uniform)[0]}])


def _heads(of_sentence: Sequence[dict[str, Tensor]]) -> list[Record]:
    """For each head the means over sentences, with standard errors."""
    records: list[dict[str, Any]] = [{} for _ in next(iter(of_sentence[0].values()))]
    for name in MEASURES:
        value_SH = torch.stack([values[name] for values in of_sentence])
        error_H = value_SH.std(dim=0) / sqrt(len(value_SH))
        for record, value, error in zip(records, value_SH.mean(dim=0), error_H, strict=True):
            record |= {name: float(value), f"{name}_error": float(error)}
    return [*records]
