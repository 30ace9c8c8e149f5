"""Runs of two tasks and two methods, and the tables that are written of them."""

from isotrain.results.frame import study_rows
from isotrain.results.latex import latex
from isotrain.results.markdown import markdown
from isotrain.results.result import Result
from isotrain.results.runs import Gap, Run
from isotrain.studies.definition import Study

LAYER, COUNT = "isotropy/isoscore/layer_06/tokens", "isotropy/n_rows/layer_06/tokens"
STUDY = Study(
    name="50_odd",
    overrides=(),
    tasks={"rte": ("task=rte",), "wic": ("task=wic",)},
    methods={"none": ("isotropy=none",), "protect_labels_1.0": ("isotropy=protect_labels",)},
    baseline="none",
    seeds=(0, 1, 2, 3),
    margin=0.02,
    published={
        "tasks": {"rte": {"none": 0.6, "protect_labels_1.0": 0.58}},
        "source": "Some & Other 2020, table 3",
    },
)
NONE, METHOD = [0.60, 0.64, 0.59, 0.62], [0.61, 0.66, 0.63, 0.62]


def runs(none=NONE, method=METHOD, **made):
    return [
        Run(
            *(task, name, seed, {"val/accuracy": value, "val/loss": 0.5, LAYER: -value, COUNT: 64}),
            *({"val/accuracy": 277, LAYER: 64}, ""),
            **made,
        )
        for task in STUDY.tasks
        for name, values in (("none", none), ("protect_labels_1.0", method))
        for seed, value in enumerate(values)
    ]


def result(found, study=STUDY, gaps=(), changes=()):
    rows = study_rows(study, found, gaps)
    return Result(study, found, gaps, rows, 16, changes, overrides=["threads=1"])


def text(found, study=STUDY, gaps=(), changes=()):
    return markdown(result(found, study, gaps, changes))


def tex(found, study=STUDY, gaps=(), changes=()):
    return latex(result(found, study, gaps, changes))


def one_degenerate():
    first, *others = runs()
    return [first._replace(degenerate="one class"), *others]


def columns(line):
    """The cells of a line of a markdown table."""
    return [cell.strip() for cell in line.strip()[1:-1].split("|")]


def lost():
    return [
        *(Gap("rte", "protect_labels_1.0", k, "failed (NonFiniteError)", True) for k in (4, 5)),
        Gap("rte", "none", 6, "not run"),
        Gap("wic", "none", 7, "not run"),
    ]
