"""Objectives as losses of sentence-transformers. Imports neither it nor transformers.

B examples, P text columns, D dimensions.
"""

import math
from collections.abc import Iterable, Mapping
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from isotrain.objectives.base import Objective
from isotrain.resources.references import bibtex
from isotrain.training.losses import NEEDS, ExtraLosses
from isotrain.types import Batch, ModelOutput

PLAIN = (str, int, float, bool, list, tuple, type(None))


class SentenceLoss(nn.Module):
    """One or several objectives of isotrain, as a loss that SentenceTransformerTrainer calls.

    The columns of an example are its P vectors: `sentence_embedding` of each, `[B, P, D]`. An
    objective of two views gets two forward passes, which differ by dropout. Several objectives
    share the passes, and each is logged by its name. Their `counters` are not logged: the Trainer
    sums all values that a loss returns. With several processes they read the embeddings of all, and
    the Trainer's averaged gradient equals that of one process. A queue adds a batch when the next
    one arrives.

    Args:
        model: the SentenceTransformer; the Trainer replaces it by its wrapped one.
        objectives: each with the width of the embeddings, and reading only `pooled`.

    Raises:
        ValueError: an objective that reads another point or asks for a pass over the training
            examples; two of one class; in use, columns or labels that do not fit.

    >>> from isotrain.objectives.uniformity import Uniformity
    >>> loss = SentenceLoss(lambda columns: {"sentence_embedding": columns["x"]}, Uniformity(1.0))
    >>> round(loss([{"x": torch.tensor([[1.0, 0.0], [-1.0, 0.0]])}]).item(), 6)
    -8.0
    """

    def __init__(self, model: Any, *objectives: Objective) -> None:
        super().__init__()
        self.model = model
        names = [type(objective).__name__.lower() for objective in objectives]
        if not objectives or len(set(names)) < len(names):
            raise ValueError(f"SentenceLoss takes objectives of different classes, got {names}")
        self.objectives = dict(zip(names, objectives, strict=True))
        self.parts = nn.ModuleDict({n: ExtraLosses({n: o}) for n, o in self.objectives.items()})
        for name, objective in self.objectives.items():
            _check_reads(name, objective)

    def forward(
        self, sentence_features: Iterable[Mapping[str, Tensor]], labels: Tensor | None = None
    ) -> Tensor | dict[str, Tensor]:
        """The weighted loss; of several objectives the weighted loss of each by its name."""
        columns = list(sentence_features)
        for name, objective in self.objectives.items():
            _check_batch(name, objective, len(columns), labels)
        n_views = max(objective.n_views for objective in self.objectives.values())
        views = [self._view(columns) for _ in range(n_views)]
        batch = _batch(views[0].pooled, labels)
        losses = {}
        for name, objective in self.objectives.items():
            part = self.parts[name]
            assert isinstance(part, ExtraLosses)
            if torch.is_grad_enabled():
                part.observe()  # the batch before
            else:
                part = ExtraLosses({name: objective})  # an evaluation is not remembered
            losses[name] = part(views, batch)[0]
        return losses if len(losses) > 1 else next(iter(losses.values()))

    def get_config_dict(self) -> dict[str, Any]:
        """Arguments of the objectives, where stored as attributes, for the model card."""
        return {name: _settings(objective) for name, objective in self.objectives.items()}

    @property
    def citation(self) -> str:
        """BibTeX of the objectives, for the model card."""
        bases = [base for objective in self.objectives.values() for base in type(objective).__mro__]
        return "\n".join(bibtex(base.__module__.rpartition(".")[2] for base in bases))

    def _view(self, columns: Iterable[Mapping[str, Tensor]]) -> ModelOutput:
        """One forward pass of every column, as a copy: the model writes into its input."""
        vectors = [self.model(dict(column))["sentence_embedding"] for column in columns]
        pooled_BPD = torch.stack(vectors, dim=1)
        return ModelOutput((), pooled_BPD, pooled_BPD[:, :0])


def _batch(pooled_BPD: Tensor, labels: Tensor | None) -> Batch:
    """A batch with only the labels, which is all that objectives at `pooled` read."""
    n, device = len(pooled_BPD), pooled_BPD.device
    empty = torch.zeros(0, device=device)
    labels_B = torch.zeros(n, dtype=torch.long) if labels is None else labels.reshape(n)
    index_B = torch.arange(n, device=device)
    return Batch(empty, empty, empty, empty, labels_B.to(device), index_B)


def _check_reads(name: str, objective: Objective) -> None:
    if list(objective.reads) != ["pooled"]:
        raise ValueError(
            f"{name} reads {list(objective.reads)}, and a loss of sentence-transformers sees "
            "the sentence embeddings alone; give it reads=['pooled'], or train with isotrain"
        )
    if objective.reads_start:
        raise ValueError(
            f"{name} compares with the encoder as it starts, which a loss of sentence-transformers "
            "does not have; train with isotrain"
        )
    if objective.asks_for_pass(0):
        raise ValueError(
            f"{name} asks for a pass over the training examples at the start of an epoch, which a "
            "loss cannot have; use reference='queue'"
        )


def _check_batch(name: str, objective: Objective, n_columns: int, labels: Tensor | None) -> None:
    low, high, need, _ = NEEDS.get(objective.needs, (1, math.inf, "a vector of an example", ""))
    if not low <= n_columns <= high:
        raise ValueError(
            f"{name} needs {need}, and this data set has {n_columns} columns of text; select "
            "others, or choose positives='dropout' where the objective has it"
        )
    reads_labels = objective.positives is not None and objective.positives.labels is not None
    if labels is None and (objective.needs in ("classes", "scored_pairs") or reads_labels):
        raise ValueError(f"{name} reads labels; give the data set a column label or score")


def _settings(objective: Objective) -> dict[str, Any]:
    """The arguments of an objective, where stored as attributes."""
    values = dict(vars(objective))
    if isinstance(loss := values.get("loss"), partial):
        values |= loss.keywords
    if positives := objective.positives:
        kind = "pair" if positives.of_pairs else "dropout"
        values |= {"positives": kind, "positive_labels": positives.labels}
    names = signature(type(objective)).parameters
    return {k: values[k] for k in names if k in values and isinstance(values[k], PLAIN)}
