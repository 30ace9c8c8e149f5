"""The result of a study as 2 tasks × 4 methods × 8 seeds leave it, small enough for tests."""

import math
from pathlib import Path

import numpy as np

from isotrain.results.curves import Curve
from isotrain.results.frame import study_rows
from isotrain.results.result import Result
from isotrain.results.runs import Run, counted_by
from isotrain.results.statistics import Summary
from isotrain.runs.keys import CurveKey
from isotrain.studies.definition import Published, Study

METRICS = ("isoscore_corrected", "mean_cosine")


def curve_keys(n_layers=2, views=("cls", "tokens"), site="pooled"):
    layers = [(f"layer_{k:02d}", view) for k in range(n_layers) for view in views]
    sides = [(site, "before"), (site, "after")]
    return [CurveKey(metric, *where) for metric in METRICS for where in layers + sides]


PLACES = curve_keys()
TASKS = {"wic": ("accuracy", 0.61, (638, 1400)), "stsb": ("spearman", 0.85, (1500, 1379))}
EFFECT = {"none": 0.0, "project": -0.03, "protect_labels": 0.0005, "istar": -0.002}
SPREAD = {"none": 0.006, "project": 0.010, "protect_labels": 0.002, "istar": 0.020}
LIFT = {"none": 0.0, "project": 0.02, "protect_labels": 0.15, "istar": 0.25}


def isotropy(curve_key, method, share=1.0):
    """What a cloud of a method has, `share` of the way through training."""
    depth = int(curve_key.where[-2:]) / 6 if curve_key.where.startswith("layer") else 1.0  # of 6
    lift = LIFT.get(method, 0.1) * depth * share
    if curve_key.view == "after" and method != "none":
        lift += 0.4
    value = 0.12 + 0.1 * depth + lift
    return value if curve_key.metric == METRICS[0] else 0.6 - value


def runs_of(tasks=TASKS, methods=tuple(EFFECT), seeds=range(8), at=PLACES):
    rng = np.random.default_rng(0)
    found = []
    for task in tasks:
        name, level, sizes = TASKS[task]
        last = max(key.where for key in PLACES if key.view == "tokens")
        clouds = [(last, "tokens"), ("pooled", "before"), ("pooled", "after")]
        shown = {f"val/{name}": sizes[0], f"test/{name}": sizes[1]}
        for method in methods:
            for seed in seeds:
                shared = 0.008 * math.sin(5 * seed + level)
                effect = EFFECT.get(method, -0.01) * (1 if task == "wic" else 0.2)
                noise = rng.normal(0, SPREAD.get(method, 0.01), 2)
                score = level + shared + effect + noise
                values = {f"val/{name}": score[0], f"test/{name}": score[1] - 0.01}
                for curve_key in at:
                    if curve_key.view != "before" or method != "none":
                        values[curve_key.text] = isotropy(curve_key, method) + rng.normal(0, 0.01)
                        values[counted_by(curve_key.text)] = 2048
                keys = [CurveKey(METRICS[0], *cloud).text for cloud in clouds]
                found.append(
                    Run(
                        *(task, method, seed, {key: float(v) for key, v in values.items()}),
                        {**shown, **dict.fromkeys((k for k in keys if k in values), 2048)},
                        folder=Path(f"{task}/{method}-0123456789"),
                        code="1784da9",
                        finished_at=f"2031-02-0{1 + seed % 8}T04:05:06",
                    )
                )
    return found


def study_of(tasks=TASKS, methods=tuple(EFFECT), seeds=range(8), margin=0.01, **more):
    """A study; names are not checked, so that a page can be hostile."""
    study = Study(
        name="does_isotropy_help",
        tasks={task: (f"task={task}",) for task in tasks},
        methods={"none": ()},
        baseline="none",
        seeds=tuple(seeds),
        margin=margin,
    )
    own = {method: (f"isotropy={method}", "site=[tokens]") for method in methods}
    if "published" in more:
        more["published"] = Published.model_validate(more["published"])
    return study.model_copy(update={"methods": own, **more})


def rows_of(runs, study):
    """Its rows, with CIs over examples as wide as if there were predictions."""
    return [
        row._replace(both_low=row.difference_low - 0.012, both_high=row.difference_high + 0.012)
        if row.score.startswith("test") and row.difference_low is not None
        else row
        for row in study_rows(study, runs)
    ]


def curves_of(tasks=TASKS, methods=tuple(EFFECT), n=8, at=PLACES, steps=(0, 85, 170)):
    found = []
    for task in tasks:
        for method in methods:
            for curve_key in at:
                if curve_key.view == "before" and method == "none":
                    continue
                if curve_key.metric != METRICS[0] and task != "wic":
                    continue  # one task is enough of it: figures take time
                points = {}
                for step in steps:
                    mean, half = isotropy(curve_key, method, step / steps[-1]), 0.002 + step / 2e4
                    ends = (mean - half, mean + half) if n > 1 else (None, None)
                    points[step] = Summary(n, mean, 0.01, *ends, None)
                found.append(Curve(task, method, curve_key, points, points[steps[-1]]))
    return found


def result(runs=None, study=None, at=PLACES, **more):
    """A whole study; `more` replaces parts of it."""
    runs, study = runs_of(at=at) if runs is None else runs, study or study_of()
    given = {
        "rows": rows_of(runs, study),
        "n_planned": len(runs),
        "headline": METRICS,
        "question": "Does isotropy help while fine-tuning?",
        "encoder": "minilm",
        "overrides": ("encoder=minilm", "threads=1"),
        "command": "isotrain run mine.yaml -j 2",
        "works": ("I-STAR: Rudman & Eickhoff 2024",),
    }
    return Result(**{"study": study, "runs": runs, "gaps": [], **given, **more})
