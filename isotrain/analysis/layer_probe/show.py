"""Tables and plots of layer probes."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from isotrain.analysis.plots import LinePlot
from isotrain.analysis.tables import Cell, Frames, TableSpec
from isotrain.analysis.weights import AFTER

ISOTROPY = {
    "isoscore_corrected": "IsoScore",
    "mean_cosine": "mean cosine",
    "ln_partition": "ln I(W)",
    "ln_partition_null": "its null",
}
ISOTROPIC = {"isoscore_corrected": 1, "mean_cosine": 0, "ln_partition": 0}  # what it would be
EVALUATED = ("dev", "test")
SCORES = {"dev": "dev", "test": "test"}
NO_SKILL = "constant answer"
RUN_SAW = (
    "after: where the run was trained on this very task, its encoder has seen all these training "
    "examples, the held-out part among them, so that penalty and layer are chosen on a score that "
    "is too good; dev may have chosen the run's checkpoint."
)


def probes(frames: Frames) -> pd.DataFrame:
    """Every layer of every task, the chosen one marked, with the score of a constant answer."""
    found = frames.of("probe")
    if found.empty:
        return found
    found["chosen"] = ["→" if one else "" for one in found["is_chosen"]]
    rows = found.to_dict("records")
    return found.assign(**{NO_SKILL: pd.Series([_constant(row) for row in rows], dtype=object)})


def chosen(frames: Frames) -> pd.DataFrame:
    """The layer that train chooses of each task, beside the last one."""
    found = probes(frames)
    if found.empty:
        return found
    at = ["weights", "task"]
    last = found[found["layer"] == found["layer"].max()][
        [*at, *(s for s in EVALUATED if s in found)]
    ]
    own = found[found["is_chosen"] == 1]
    return own.merge(last, on=at, suffixes=("", "_of_last"))


def against_isotropy(frames: Frames) -> pd.DataFrame:
    """Scores on dev beside each measure of isotropy, one below the other."""
    found = probes(frames)
    if found.empty or "dev" not in found:
        return frames.of("nothing")
    found = found[found["dev"].notna()]
    return pd.concat(
        found[found["task"] == task].assign(
            isotropy=found[measure], panel=f"{task}: {ISOTROPY[measure]} ({ideal} = isotropic)"
        )
        for task in dict.fromkeys(found["task"])
        for measure, ideal in ISOTROPIC.items()
    )


def told(frames: Frames) -> Iterator[str]:
    """What a run has seen, and tasks that were left out."""
    if AFTER in frames.weights:
        yield RUN_SAW
    absent = frames.of("task left out")
    if len(absent):
        why = dict(zip(absent["task"], absent["reason"], strict=True))
        yield f"left out: {'; '.join(f'{task}: {reason}' for task, reason in why.items())}"


def _constant(record: dict[str, Cell]) -> Cell:
    """The score on dev of always the same answer; None without gold. No answer correlates: 0."""
    if record.get("dev") is None:
        return None
    return record["majority_dev"] if record["measure"] == "accuracy" else 0.0


TABLES = (
    TableSpec(
        "tasks",
        "What a linear map reads from a frozen layer",
        of=chosen,
        index={"task": "task"},
        values={
            "measure": "measure",
            "n_train": "N train",
            "layer": "layer",
            "dev": "dev",
            "dev_of_last": "dev last",
            "test": "test",
            "test_of_last": "test last",
            "chance": "chance",
            "majority_dev": "majority",
        },
        notes=(
            "Features: {analysis.pooling} pooling, {analysis.features}. They are standardised, and "
            "penalty and layer chosen (least loss on a held-out part), on train alone; last: the "
            "last layer. chance: of C classes 1/C, of a correlation 0; majority: on dev, of the "
            "class that train has most of.",
            "Intervals: Wilson for accuracy, Bonett and Wright (2000) for Spearman.",
            told,
        ),
        always=True,
    ),
    TableSpec(
        "layers_{task}",
        "{task}: {measure} by layer, and isotropy there",
        of=probes,
        index={"layer": "layer"},
        values={"chosen": "chosen", **SCORES, "penalty": "penalty", **ISOTROPY},
        each="task",
        notes=(
            "N: train {n_train:,} ({n_held_out:,} held out to choose the penalty); chance "
            "{chance:.3g}; {n_cut:,} sequences cut, {n_left_out:,} examples left out, whose target "
            "was cut off. → the layer that train chooses; – : no gold.",
            "Isotropy of the {n_rows:,} different training embeddings: IsoScore corrected for "
            "finite samples (1 = isotropic); mean cosine (0); ln I(W) (0), which depends on N and "
            "scale, beside the median of Gaussian embeddings of that N, width and size.",
        ),
    ),
)
PLOTS = (
    LinePlot(
        "scores_{task}",
        "{task}: {measure} of a linear probe",
        "By layer: {measure} of a linear probe, on the splits with gold, beside a constant answer "
        "on dev.",
        of=probes,
        y={**SCORES, NO_SKILL: NO_SKILL},
        each="task",
        reference=(NO_SKILL,),
    ),
    LinePlot(
        "score_against_isotropy",
        "score on dev against isotropy",
        "A row of panels a task, a point a layer, named by its number: score on dev against three "
        "measures of isotropy; bars are 95 % CIs. Layers of one encoder are no independent draws.",
        of=against_isotropy,
        x="isotropy",
        y={"dev": ""},
        panel="panel",
        xlabel="",
        ylabel="dev",
        mark="layer",
    ),
)
