"""Runs of two tasks and two arms, and the tables that are written of them."""

from __future__ import annotations

import csv
import io

from isotrain.reporting.findings import Findings
from isotrain.reporting.latex import latex
from isotrain.reporting.markdown import markdown
from isotrain.reporting.table import table_lines
from isotrain.studies.definition import Study
from isotrain.studies.results import Gap, Run

LAYER, COUNT = "isotropy/isoscore/layer_06/tokens", "isotropy/n_rows/layer_06/tokens"
STUDY = Study(
    name="50%_{odd}",
    overrides=(),
    tasks={"rte": ("task=rte",), "wic": ("task=wic",)},
    arms={"none": ("isotropy=none",), "protect_labels_1.0": ("isotropy=protect_labels",)},
    baseline="none",
    seeds=(0, 1, 2, 3),
    margin=0.02,
    published={"rte": {"none": 0.6, "protect_labels_1.0": 0.58, "theirs": 0.7}},
    published_source="Some & Other 2020, table 3",
)
NONE, ARM = [0.60, 0.64, 0.59, 0.62], [0.61, 0.66, 0.63, 0.62]


def runs(none=NONE, arm=ARM, **made):
    return [
        Run(
            *(task, name, seed, {"val/accuracy": value, "val/loss": 0.5, LAYER: -value, COUNT: 64}),
            *({"val/accuracy": 277, LAYER: 64}, ""),
            sizes={"dev": 277},
            **made,
        )
        for task in STUDY.tasks
        for name, values in (("none", none), ("protect_labels_1.0", arm))
        for seed, value in enumerate(values)
    ]


def findings(found, study=STUDY, gaps=(), changes=()):
    sound = [run for run in found if not run.degenerate]
    own = {"all": table_lines(study, found, gaps)}
    if sound != found:
        broken = [run for run in found if run.degenerate]
        own["without degenerate"] = table_lines(study, sound, gaps, left_out=broken)
    return Findings(study, found, gaps, own, 16, changes)


def tables(found):
    return findings(found).tables


def text(found, study=STUDY, gaps=(), changes=()):
    return markdown(findings(found, study, gaps, changes), ["threads=1"])


def tex(found, study=STUDY, gaps=(), changes=()):
    return latex(findings(found, study, gaps, changes))


def one_degenerate():
    first, *others = runs()
    return [first._replace(degenerate="one class"), *others]


def parsed(content):
    return list(csv.DictReader(io.StringIO(content)))


def columns(line):
    """The cells of a line of a markdown table."""
    return [cell.strip() for cell in line.strip()[1:-1].split("|")]


LONG = "of_twenty_four_letters_2"  # 24, and of one more
LONGER = Study(
    **{
        **vars(STUDY),
        "arms": {**STUDY.arms, LONG: (f"isotropy={'x' * 90}",), f"{LONG}5": ("isotropy=y",)},
        "published": {"rte": {"none": 0.6, LONG: 0.5}},
        "published_source": "Some and others " * 20,
    }
)


def of_long_names():
    """Values as wide as they get, under names as long as they get."""
    found = [*one_degenerate(), *runs()]
    longer = [run._replace(arm=LONG) for run in found if run.arm != "none"]
    longer += [run._replace(arm=f"{LONG}5") for run in runs() if run.arm != "none"]
    wide = {"isotropy/partition/layer_06/tokens": -9876.54321}
    return [
        run._replace(
            scores={**run.scores, **{key: v + 60 * run.seed**2 for key, v in wide.items()}},
            shown={**run.shown, **dict.fromkeys(wide, 64)},
        )
        for run in [*one_degenerate(), *longer]
    ]


def lost():
    return [
        *(Gap("rte", "protect_labels_1.0", k, "failed (NonFiniteError)", True) for k in (4, 5)),
        Gap("rte", "none", 6, "not run"),
        Gap("wic", "none", 7, "not run"),
    ]
