"""Linear probes on every frozen layer, beside the isotropy of that layer.

N examples, M rows, D dimensions, F features.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
import torch
from torch import Tensor

from isotrain.analysis.data_sets import AVAILABLE, check_names
from isotrain.analysis.encode import encode_rows
from isotrain.analysis.layer_probe.data import (
    TASKS,
    Budget,
    Examples,
    Pooling,
    distinct_rows,
    features,
    read_examples,
)
from isotrain.analysis.layer_probe.show import EVALUATED, PLOTS, TABLES
from isotrain.analysis.probe import choose_penalty, not_installed
from isotrain.analysis.rank_correlation import spearman
from isotrain.analysis.selection import SegmentedPairs
from isotrain.analysis.types import Analysis, Cell, Found, Part, Subject, analysis
from isotrain.arguments import Bounds
from isotrain.geometry.cloud import Cloud
from isotrain.metrics.isoscore_corrected import isoscore_corrected
from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.partition import partition
from isotrain.metrics.partition_null import partition_null
from isotrain.pages.verdict import wilson
from isotrain.runs.record import CannotRunError
from isotrain.tasks.data.encoding import Form
from isotrain.tasks.data.sources import Source


@analysis
class LayerProbe(Analysis):
    """What a linear map reads from each frozen layer, task by task.

    Features are the pooled sentence; of a pair (u, v, |u − v|, u·v), or with `form=cross` the one
    sequence of both; of WiC the vectors of the two target words (means of their pieces). Classes
    are told by multinomial logistic regression (accuracy), the score of STS-B by ridge regression
    (Spearman). Features are standardised, the penalty and the layer chosen, on train alone; dev
    and test are only scored. Isotropy is that of the training rows that the features are made
    of, each different one once.

    The arguments are the keys of `conf/analysis/layer_probe.yaml`, where each has its meaning.

    Raises:
        ValueError: an unknown task, or a penalty that is not positive.
    """

    name = "layer_probe"
    question = "What can a linear map read from each frozen layer, and how isotropic is it there?"

    TABLES, PLOTS = TABLES, PLOTS

    tasks: str | Sequence[str] = AVAILABLE
    form: Form = "bi"
    pooling: Pooling = "mean"
    max_train: Annotated[int, Bounds(20)] = 4000
    max_eval: Annotated[int | None, Bounds(20)] = 2000
    penalties: Sequence[float] = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
    held_out: Annotated[float, Bounds(above=0, below=1)] = 0.2
    published: Sequence[Mapping[str, Any]] = ()

    def __post_init__(self) -> None:
        """Judge the names."""
        check_names("tasks", self.tasks, TASKS)
        if not self.penalties or not all(0 < p < float("inf") for p in self.penalties):
            raise ValueError(
                f"penalties must be positive numbers, one at least, got {list(self.penalties)}; "
                "1e-6 is close to none at all"
            )

    @property
    def features(self) -> str:
        """What the features of a task are, in words."""
        if self.form == "cross":
            return "target words of WiC; of other pairs one sequence"
        return "(u, v, |u − v|, u·v) of a pair"

    @property
    def _named(self) -> list[str]:
        return list(TASKS) if isinstance(self.tasks, str) else list(self.tasks)

    def missing(self, source: Source) -> Sequence[str]:
        """Named tasks that the source lacks, or that it has none at all; scikit-learn."""
        absent = [why for name in self._named if (why := source.missing(TASKS[name].data_set))]
        if isinstance(self.tasks, str) and len(absent) < len(self._named):
            absent = []
        return [*absent, *not_installed()]

    def data_sets(self, source: Source) -> Sequence[Any]:
        """Those of the tasks that are probed."""
        return [TASKS[name].data_set for name in self._present(source)]

    def parts(self, subject: Subject) -> Iterator[Part]:
        """What is absent, then each task."""
        if self.pooling == "cls" and subject.encoder.is_causal:
            raise CannotRunError(
                "pooling=cls reads the first token, which sees nothing in this causal encoder; "
                "use analysis.pooling=mean"
            )
        present = self._present(subject.source)
        left_out = [
            {"kind": "task left out", "task": name, "reason": subject.source.missing(data_set)}
            for name, (data_set, _) in TASKS.items()
            if name in self._named and name not in present
        ]
        yield Part("tasks", lambda: Found(left_out))
        for name in present:
            yield Part(name, partial(self._probed, subject, name))

    def _present(self, source: Source) -> list[str]:
        return [name for name in self._named if not source.missing(TASKS[name].data_set)]

    def _probed(self, subject: Subject, task: str) -> Found:
        budget = Budget(self.max_train, self.max_eval, subject.seed)
        examples = read_examples(subject, task, self.form, self.pooling, budget)
        if self.form == "cross":
            wrapped: Any = SegmentedPairs(subject.encoder)  # passes all else on
            subject = subject._replace(encoder=wrapped)
        rows_LMD = encode_rows(subject, task, examples.tokens, examples.spans)
        own = distinct_rows(examples, "train")
        records: list[dict[str, Cell]] = []
        for layer, x_MD in enumerate(rows_LMD):
            subject.tell(f"probing layer {layer} of {len(rows_LMD) - 1} for {task}")
            x = torch.from_numpy(x_MD)
            record: dict[str, Cell] = {"kind": "probe", "task": task, "layer": layer}
            scored = self._layer(x, examples, task, subject.seed)
            records.append(record | scored | _isotropy(x[own]))
        losses = [float(r["held_out_loss"] or 0) for r in records]
        return Found(
            [r | {"is_chosen": int(k == losses.index(min(losses)))} for k, r in enumerate(records)]
        )

    def _layer(self, x_MD: Tensor, examples: Examples, task: str, seed: int) -> dict[str, Cell]:
        """Fit on train, score on dev and test."""
        label_N = examples.label["train"]
        n_classes = len(TASKS[task].data_set.classes)
        found = choose_penalty(
            features(x_MD, examples.place["train"]).double().numpy(),
            label_N.numpy(),
            self.penalties,
            self.held_out,
            seed,
            n_classes,
        )
        record: dict[str, Cell] = {
            "measure": "accuracy" if n_classes else "spearman",
            "n_train": len(label_N),
            "n_held_out": found.n_held_out,
            "n_left_out": examples.n_left_out,
            "n_cut": examples.tokens.n_cut,
            "penalty": found.penalty,
            "held_out_loss": found.held_out_loss,
            "chance": 1 / n_classes if n_classes else 0.0,
        }
        for split in (s for s in EVALUATED if s in examples.place):
            own = features(x_MD, examples.place[split])
            score = _score(found.probe, own, examples.label[split], n_classes)
            record |= {f"n_{split}": len(own)}
            record |= dict(zip((split, f"{split}_low", f"{split}_high"), score, strict=True))
            if n_classes:
                most = torch.bincount(label_N, minlength=n_classes).argmax()
                share = (examples.label[split] == most).double().mean()
                record[f"majority_{split}"] = float(share)
        return record


def _score(
    probe: Any, x_NF: Tensor, label_N: Tensor, n_classes: int
) -> tuple[float | None, float | None, float | None]:
    """Accuracy or Spearman of a probe, with its 95 % interval."""
    predicted_N = probe.predict(x_NF.double().numpy())
    if not n_classes:
        return spearman(predicted_N, label_N.numpy())
    share = float(np.mean(predicted_N == label_N.numpy()))
    return share, *wilson(share, len(label_N))


def _isotropy(x_MD: Tensor) -> dict[str, Cell]:
    """Isotropy of the rows, and what a Gaussian cloud of their number, width and size has."""
    cloud = Cloud(x_MD)  # what the measures have in common is computed once
    return {
        "n_rows": cloud.n,
        "isoscore_corrected": float(isoscore_corrected(cloud)),
        "mean_cosine": float(mean_cosine(cloud)),
        "ln_partition": float(partition(cloud, precision="mixed")),
        "ln_partition_null": float(partition_null(cloud)["median"]),
    }
