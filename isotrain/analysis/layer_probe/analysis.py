"""Linear probes on every frozen layer, compared with the isotropy of that layer.

N examples, P = 1 or 2 embeddings of an example, M embeddings, D dimensions.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
import torch
from pydantic import Field
from torch import Tensor

from isotrain.analysis.charts import LinePlot
from isotrain.analysis.data_sets import AVAILABLE, TEXTS, Available, present
from isotrain.analysis.encode import (
    Spans,
    Tokens,
    encode_rows,
    find_targets,
    subsample,
    tokenise,
    whole_sentences,
    wic_pairs,
)
from isotrain.analysis.probe import choose_penalty, features, not_installed, spearman
from isotrain.analysis.show import Frames, TableSpec, left_out, run_saw
from isotrain.analysis.types import Analysis, Part, PartResult, Subject, analysis
from isotrain.geometry.cloud import Cloud
from isotrain.metrics.isoscore_corrected import isoscore_corrected
from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.partition import partition
from isotrain.metrics.partition_null import partition_null
from isotrain.results.statistics import wilson
from isotrain.tasks.data.sources import HIDDEN, Source, load_split
from isotrain.types import Row

Task = Literal["rte", "wic", "stsb", "snli", "sst2"]
TASKS = {name: TEXTS[name] for name in get_args(Task)}
EVALUATED = ("dev", "test")
NO_SKILL = "constant answer"


class Examples(NamedTuple):
    """Tokens of all splits, and the embeddings that belong to each example."""

    tokens: Tokens
    spans: Spans
    span_index: Mapping[str, Tensor]  # by split, [N, P] span indices; labelled splits only
    label: Mapping[str, Tensor]  # by split, [N] class indices or scores
    n_left_out: int  # examples whose target word was cut off


def read_examples(
    subject: Subject, task: str, max_train: int | None, max_eval: int | None
) -> Examples:
    """Examples of a task, up to a limit per split, each with one or two embeddings.

    A sentence is the mean of all its tokens, and a repeated one is encoded once. WiC has its two
    target words.
    """
    data_set, fields = TASKS[task]
    rows_of: dict[str, list[Row]] = {}
    for split, limit in (("train", max_train), ("dev", max_eval), ("test", max_eval)):
        if task == "wic":
            rows = wic_pairs(subject.source, split, limit, subject.seed)
        else:
            rows = load_split(subject.source, data_set, split)
            rows = subsample([r for r in rows if r[data_set.target] != HIDDEN], limit, subject.seed)
        rows_of |= {split: rows} if rows else {}
    examples = [row for split_rows in rows_of.values() for row in split_rows]
    split_N = np.repeat(list(rows_of), [len(split_rows) for split_rows in rows_of.values()])
    tokenizer, length, n_left_out = subject.encoder.tokenizer, subject.max_length, 0
    if task == "wic":
        tokens, spans, pair_N, n_left_out = find_targets(examples, tokenizer, length)
        span_NP = np.arange(2 * len(pair_N)).reshape(-1, 2)
        examples, split_N = [examples[k] for k in pair_N], split_N[pair_N]
    else:
        index, texts = pd.factorize(np.array([str(r[f]) for r in examples for f in fields], object))
        span_NP, tokens = index.reshape(-1, len(fields)), tokenise(tokenizer, [*texts], length)
        spans = whole_sentences(tokens)
    label_N = np.array([row[data_set.target] for row in examples])
    span_of, label_of = (
        {split: torch.from_numpy(x_N[split_N == split]) for split in rows_of}
        for x_N in (span_NP, label_N)
    )
    return Examples(tokens, spans, span_of, label_of, n_left_out)


def distinct_rows(examples: Examples) -> Tensor:
    """Indices of the distinct training embeddings: the first of equal tokens and span."""
    tokens, spans = examples.tokens, examples.spans
    row_of: dict[tuple[tuple[int, ...], int, int], int] = {}
    for row in torch.unique(examples.span_index["train"]).tolist():
        i, start, stop = (int(part[row]) for part in spans)
        row_of.setdefault((tuple(tokens.ids[i]), start, stop), row)
    return torch.tensor([*row_of.values()])


ISOTROPY = {
    "isoscore_corrected": "IsoScore",
    "mean_cosine": "mean cosine",
    "ln_partition": "ln I(W)",
    "ln_partition_null": "its null",
}


def _probes(frames: Frames) -> pd.DataFrame:
    """Every layer of every task, the selected one marked, with the constant-prediction score."""
    probes = frames.of("probe")
    probes["chosen"] = ["→" if is_chosen else "" for is_chosen in probes["is_chosen"]]
    constant = [
        None if r.get("dev") is None else r["majority_dev"] if r["measure"] == "accuracy" else 0.0
        for r in probes.to_dict("records")
    ]
    return probes.assign(**{NO_SKILL: pd.Series(constant, dtype=object)})


def _selected_layers(frames: Frames) -> pd.DataFrame:
    """For each task, the layer selected on train and the last layer."""
    probes = _probes(frames)
    keys = ["weights", "task"]
    last = probes[probes["layer"] == probes["layer"].max()]
    last = last[[*keys, *(s for s in EVALUATED if s in probes)]]
    return probes[probes["is_chosen"] == 1].merge(last, on=keys, suffixes=("", "_of_last"))


@analysis
class LayerProbe(Analysis):
    """Linear probe scores of each frozen layer, task by task.

    Features are the mean-pooled sentence; for a pair (u, v, |u − v|, u·v); for WiC the two target
    words (means of their pieces). Probes are multinomial
    logistic regression (accuracy), for STS-B ridge regression (Spearman). Only train is used to
    standardise features and to select penalty and layer. Isotropy is that of the distinct
    training embeddings. The arguments are the keys of `conf/analysis/layer_probe.yaml`.
    """

    name = "layer_probe"
    question = "What can a linear map read from each frozen layer, and how isotropic is it there?"
    TABLES = (
        TableSpec(
            "tasks",
            "What a linear map reads from a frozen layer",
            of=_selected_layers,
            index={"task": "task"},
            values={
                **{"measure": "measure", "n_train": "N train", "layer": "layer"},
                **{"dev": "dev", "dev_of_last": "dev last"},
                **{"test": "test", "test_of_last": "test last"},
                **{"chance": "chance", "majority_dev": "majority"},
            },
            notes=(
                "Mean pooling, standardised. Penalty and layer "
                "have the least loss on a held-out part of train; last: the last layer. majority: "
                "on dev, of the class that train has most of. Intervals: Wilson for accuracy, "
                "Bonett and Wright (2000) for Spearman.",
                run_saw,
                left_out("task left out", "task"),
            ),
        ),
        TableSpec(
            "layers_{task}",
            "{task}: {measure} by layer, and isotropy there",
            of=_probes,
            index={"layer": "layer"},
            values={"chosen": "chosen", "dev": "dev", "test": "test", "penalty": "penalty"}
            | ISOTROPY,
            each="task",
            notes=(
                "N: train {n_train:,} ({n_held_out:,} held out to choose the penalty); chance "
                "{chance:.3g}; {n_cut:,} sequences cut, {n_left_out:,} examples left out, whose "
                "target was cut off. → the layer that train chooses; – : no gold, or undefined.",
                "Isotropy of the {n_rows:,} different training embeddings: IsoScore corrected for "
                "finite samples (1 = isotropic); mean cosine (0); ln I(W) (0), which depends on N "
                "and scale, beside the median of Gaussian embeddings of that N, width and size.",
            ),
        ),
    )
    PLOTS = (
        LinePlot(
            "scores_{task}",
            "{task}: {measure} of a linear probe",
            "By layer: {measure} of a linear probe, on the splits with gold, beside a constant "
            "answer on dev.",
            of=_probes,
            y={"dev": "dev", "test": "test", NO_SKILL: NO_SKILL},
            each="task",
            reference=(NO_SKILL,),
        ),
    )

    tasks: Available | Sequence[Task] = AVAILABLE
    max_train: Annotated[int, Field(ge=20)] = 4000
    max_eval: Annotated[int | None, Field(ge=20)] = 2000
    penalties: Sequence[float] = (10.0, 3.0, 1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
    held_out: Annotated[float, Field(gt=0, lt=1)] = 0.2

    def missing(self, source: Source) -> Sequence[str]:
        """Requested tasks that the source lacks, or all if it has none; scikit-learn."""
        return [*present(source, self.tasks, TASKS).problems, *not_installed()]

    def data_sets(self, source: Source) -> Sequence[Any]:
        """The data sets of the probed tasks."""
        return [TASKS[name].data_set for name in present(source, self.tasks, TASKS).names]

    def parts(self, subject: Subject) -> Iterator[Part]:
        """The absent tasks, then each task."""
        names, reasons, _ = present(subject.source, self.tasks, TASKS)
        records = [
            {"kind": "task left out", "task": task, "reason": reason}
            for task, reason in reasons.items()
        ]
        yield Part("tasks", lambda: PartResult(records))
        for name in names:
            yield Part(name, partial(self._probed, subject, name))

    def _probed(self, subject: Subject, task: str) -> PartResult:
        examples = read_examples(subject, task, self.max_train, self.max_eval)
        indices = distinct_rows(examples)
        records: list[dict[str, Any]] = []
        for layer, x_MD in enumerate(encode_rows(subject, examples.tokens, examples.spans)):
            x = torch.from_numpy(x_MD)
            scores = self._layer(x, examples, task, subject.seed)
            records.append({"kind": "probe", "task": task, "layer": layer} | scores)
            cloud = Cloud(x[indices])  # shared computations are done once
            records[-1] |= {
                "n_rows": cloud.n,
                "isoscore_corrected": float(isoscore_corrected(cloud)),
                "mean_cosine": float(mean_cosine(cloud)),
                "ln_partition": float(partition(cloud)),
                "ln_partition_null": float(partition_null(cloud)["median"]),
            }
        best = min(records, key=lambda r: r["held_out_loss"])
        return PartResult([r | {"is_chosen": int(r is best)} for r in records])

    def _layer(self, x_MD: Tensor, examples: Examples, task: str, seed: int) -> dict[str, Any]:
        """Fit on train; score on dev and test."""
        label_N, n_classes = examples.label["train"].numpy(), len(TASKS[task].data_set.classes)
        train = features(x_MD, examples.span_index["train"]).double().numpy()
        selection = choose_penalty(train, label_N, self.penalties, self.held_out, seed, n_classes)
        record: dict[str, Any] = {
            "measure": "accuracy" if n_classes else "spearman",
            "n_train": len(label_N),
            "n_held_out": selection.n_held_out,
            "n_left_out": examples.n_left_out,
            "n_cut": examples.tokens.n_cut,
            "penalty": selection.penalty,
            "held_out_loss": selection.held_out_loss,
            "chance": 1 / n_classes if n_classes else 0.0,
        }
        for split in (s for s in EVALUATED if s in examples.span_index):
            x_NF, gold_N = features(x_MD, examples.span_index[split]), examples.label[split].numpy()
            predicted_N = selection.probe.predict(x_NF.double().numpy())
            share = float(np.mean(predicted_N == gold_N))
            interval = wilson(share, len(gold_N)) if n_classes else ()
            score = (share, *interval) if n_classes else spearman(predicted_N, gold_N)
            record[f"n_{split}"] = len(x_NF)
            record |= zip((split, f"{split}_low", f"{split}_high"), score, strict=True)
            if n_classes:
                majority = np.bincount(label_N, minlength=n_classes).argmax()
                record[f"majority_{split}"] = float((gold_N == majority).mean())
        return record
