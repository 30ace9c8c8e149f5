"""Write and verify export folders; this module has the one for transformers.

A = Q·B sequences, B examples, T tokens, D width, C outputs.
"""

import inspect
from abc import ABC, abstractmethod
from copy import deepcopy
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModel, AutoTokenizer

from isotrain.export.folding import Affine, NotAffineError, folded, head_map, layer_sites
from isotrain.export.rebuilt import Rebuilt
from isotrain.model.pooling import ClsPooling, LastPooling, MeanPooling

TOLERANCE = 1e-6  # in float64, relative to the largest number or 1
ROUNDED = 1e-5  # in float32, likewise; or
TIMES = 10  # times the run's own difference between float32 and float64
HEAD = "head.safetensors"  # weight [C, D] and bias [C], of the pooled embedding
POOLED: dict[type, tuple[str, str]] = {  # sentence-transformers' name; code for the model card
    ClsPooling: ("cls", "states[:, 0]"),
    LastPooling: (
        "lasttoken",
        'states[range(len(states)), inputs["attention_mask"].sum(1) - 1]',
    ),
    MeanPooling: (
        "mean",
        '(states * (mask := inputs["attention_mask"][..., None])).sum(1) / mask.sum(1)',
    ),
}
WAYS = (
    "layers like isotropy=all_but_the_top and zca are one map, and format=sentence-transformers "
    "(task.form=bi) keeps this one as it is"
)


class RoundTripError(RuntimeError):
    """The export does not reproduce the run, and is deleted."""


def differences(single: tuple[Tensor, Tensor], double: tuple[Tensor, Tensor]) -> str:
    """Largest differences in float32 and in float64, as text; both are checked.

    In float64 only the weights differ; the tolerance is 1e-6 of the largest number, or of 1. In
    float32 the order of sums differs too; the tolerance is 1e-5 of the largest number, or ten times
    the run's own difference between float32 and float64.

    Raises:
        RoundTripError: numbers differ by more.
    """
    off_32, off_64 = (float((run - export).abs().max()) for run, export in (single, double))
    scale = max(1.0, float(double[0].abs().max()))
    rounding = float((single[0] - double[0]).abs().max())
    limit_32, limit_64 = max(ROUNDED * scale, TIMES * rounding), TOLERANCE * scale
    text = (
        f"largest difference {off_64:.1g} (limit {limit_64:.1g}); in float32, with the "
        f"rounding of sums, {off_32:.1g} (limit {limit_32:.1g})"
    )
    if not (off_64 <= limit_64 and off_32 <= limit_32):  # NaN is no agreement
        raise RoundTripError(f"what was written differs from the run: {text}")
    return text


class Folder(ABC):
    """Base class of export formats.

    A subclass sets `name` and `tag`, and its constructor `summary` and `usage`.

    Args:
        rebuilt: the run.

    Raises:
        ValueError: the format cannot hold this run.
    """

    name: str  # transformers | sentence-transformers
    tag: str  # pipeline tag of the hub
    summary: str  # one line, for the terminal and the card
    usage: dict[str, Any]  # values of the card's code

    def __init__(self, rebuilt: Rebuilt) -> None:
        self.rebuilt = rebuilt

    def write(self, folder: Path) -> None:
        """Write weights and configuration, and a tokenizer that truncates as the run did.

        The tokenizer pads on the right. It returns segments (`token_type_ids`) only if the run's
        encoder received them: a model with one table for words and segments would read them as
        words.
        """
        encoder = self.rebuilt.encoder
        encoder.model.save_pretrained(folder)
        tokenizer = deepcopy(encoder.tokenizer)
        inputs = ("input_ids", "token_type_ids", "attention_mask")
        settings = {
            "model_max_length": self.rebuilt.max_length,
            "model_input_names": [k for k in inputs if k in encoder.inputs(self.rebuilt.batch)],
            "padding_side": "right",
            "truncation_side": tokenizer.truncation_side,
        }
        vars(tokenizer).update(settings)
        tokenizer.init_kwargs |= settings  # what `save_pretrained` writes
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
        tokenizer.save_pretrained(folder)

    @abstractmethod
    def check(self, folder: Path) -> str:
        """`differences` of the reloaded folder from the run, from text to final output."""


class TransformersFolder(Folder):
    """Encoder and head, or the encoder alone and the reason.

    Raises:
        ValueError: neither: a layer at tokens is part of the encoder's output.
    """

    name, tag = "transformers", "feature-extraction"

    def __init__(self, rebuilt: Rebuilt) -> None:
        super().__init__(rebuilt)
        sites, task = layer_sites(rebuilt), rebuilt.task
        network, n_outputs = type(rebuilt.encoder.model), rebuilt.double.logits.shape[1]
        classes = task.data_set.classes
        names = map(str, classes if len(classes) == n_outputs else range(n_outputs))
        self.head: Affine | None = None
        self.usage = {
            "texts": [column[:1] for column in rebuilt.texts[0]],
            "has_pooler": "add_pooling_layer" in inspect.signature(network.__init__).parameters,
            "absent": "pooling, isotropy layer and head" if sites else "pooling and head",
            "outputs": [*names] if n_outputs > 1 else ["score"],
            "scale": task.scale,
        }
        try:
            self.head = linear_head(rebuilt)
            self.summary = "encoder and head"
            self.summary += ", the isotropy layer folded into the head" * bool(sites)
            self.usage["pooled"] = POOLED[type(rebuilt.model.pooling)][1]
        except NotAffineError as error:
            if "tokens" in sites:
                raise ValueError(
                    f"format=transformers cannot hold this run: {error}; and the encoder alone "
                    "would lack the layer at tokens; train with site=[pooled], or with "
                    "task.form=bi for --format sentence-transformers"
                ) from error
            self.summary = f"the encoder alone, without {self.usage['absent']}: {error}"

    def write(self, folder: Path) -> None:
        """Write weights, configuration, tokenizer and, as safetensors, the head."""
        super().write(folder)
        if self.head is not None:
            weight_CD, bias_C = self.head.matrix_DE.T.contiguous(), self.head.bias_E
            save_file({"weight": weight_CD.float(), "bias": bias_C.float()}, folder / HEAD)

    @torch.no_grad()
    def check(self, folder: Path) -> str:
        """`differences` of the reloaded folder from the run, from text to final output.

        Logits are compared, or without a head the states of all real tokens. The run's states are
        those before adapters were merged.
        """
        rebuilt = self.rebuilt
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        model: Any = AutoModel.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True, trust_remote_code=False
        )
        columns = [list(chain(*parts)) for parts in zip(*rebuilt.texts, strict=True)]
        inputs = tokenizer(*columns, padding=True, truncation=True, return_tensors="pt")
        if not torch.equal(inputs["input_ids"], rebuilt.batch.input_ids):
            raise RoundTripError("the tokenizer that was written gives other token ids")
        export = [
            model.eval()(**inputs).last_hidden_state,
            model.double()(**inputs).last_hidden_state,
        ]
        run = list(rebuilt.states)
        if self.head is None:
            real_BT = rebuilt.batch.attention_mask.bool()
            run, export = ([states_BTD[real_BT] for states_BTD in pair] for pair in (run, export))
        else:
            head = load_file(folder / HEAD)
            run = [rebuilt.single.logits, rebuilt.double.logits]
            pooled = [rebuilt.model.pooling(states, rebuilt.batch)[:, 0] for states in export]
            export = [x @ head["weight"].to(x).T + head["bias"].to(x) for x in pooled]
        return differences(*zip(run, export, strict=True))


def linear_head(rebuilt: Rebuilt) -> Affine:
    """The map from the pooled embedding, before any isotropy layer, to the logits.

    Raises:
        NotAffineError: there is none, with the reason.
    """
    if rebuilt.task.form != "cross":
        raise NotAffineError("the head of form=bi compares two embeddings")
    if type(rebuilt.model.pooling) not in POOLED:
        raise NotAffineError("the pooling reads target words, which no tokenizer marks")
    try:
        return folded(rebuilt).then(head_map(rebuilt))
    except NotAffineError as error:
        raise NotAffineError(f"{error}; {WAYS}") from error
