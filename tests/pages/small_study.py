"""The content of a study's page as 2 tasks × 4 arms × 8 seeds leave it, small enough for tests."""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from isotrain.pages.study_content import (
    Curve,
    Difference,
    Estimate,
    Named,
    OverRows,
    Point,
    ScoreRow,
    StudyContent,
    StudyRun,
)
from isotrain.runs.keys import CurveKey, parse_key

HOSTILE = "</script><img src=x onerror=alert(1)>"
METRICS = ("isoscore_corrected", "mean_cosine")


def curve_keys(n_layers=2, views=("cls", "tokens"), site="pooled"):
    layers = [(f"layer_{k:02d}", view) for k in range(n_layers) for view in views]
    sides = [(site, "before"), (site, "after")]
    return [CurveKey(metric, *where) for metric in METRICS for where in layers + sides]


PLACES = curve_keys()
TASKS = {"wic": ("accuracy", 0.61, ("638", "1400")), "stsb": ("spearman", 0.85, ("1500", "1379"))}
EFFECT = {"none": 0.0, "project": -0.03, "protect_labels": 0.0005, "istar": -0.002}
SPREAD = {"none": 0.006, "project": 0.010, "protect_labels": 0.002, "istar": 0.020}
LIFT = {"none": 0.0, "project": 0.02, "protect_labels": 0.15, "istar": 0.25}


def estimate(values):
    values = np.asarray(values, float)
    n, mean = len(values), float(values.mean())
    if n == 1 or values.std() == 0:
        return Estimate(n, mean, None if n == 1 else 0.0)
    sd = float(values.std(ddof=1))
    half = stats.t.ppf(0.975, n - 1) * sd / math.sqrt(n)
    return Estimate(n, mean, sd, mean - half, mean + half)


def isotropy(curve_key, arm, share=1.0):
    """What a cloud of an arm has, `share` of the way through training."""
    depth = int(curve_key.where[-2:]) / 6 if curve_key.where.startswith("layer") else 1.0  # of 6
    lift = LIFT.get(arm, 0.1) * depth * share
    if curve_key.view == "after" and arm != "none":
        lift += 0.4
    value = 0.12 + 0.1 * depth + lift
    return value if curve_key.metric == METRICS[0] else 0.6 - value


def runs_of(tasks=TASKS, arms=tuple(EFFECT), seeds=range(8), at=PLACES):
    rng = np.random.default_rng(0)
    found = []
    for task in tasks:
        name, level, _ = TASKS[task]
        for arm in arms:
            for seed in seeds:
                shared = 0.008 * math.sin(5 * seed + level)
                effect = EFFECT.get(arm, -0.01) * (1 if task == "wic" else 0.2)
                noise = rng.normal(0, SPREAD.get(arm, 0.01), 2)
                score = level + shared + effect + noise
                values = {f"val/{name}": score[0], f"test/{name}": score[1] - 0.01}
                for curve_key in at:
                    if curve_key.view != "before" or arm != "none":
                        values[curve_key.text] = isotropy(curve_key, arm) + rng.normal(0, 0.01)
                values = {key: float(value) for key, value in values.items()}
                ended = f"2031-02-0{1 + seed % 8}T04:05:06"
                folder = f"{task}/{arm}-0123456789"
                found.append(StudyRun(task, arm, seed, values, "", "1784da9", ended, folder))
    return tuple(found)


def rows_of(runs, arms, margin=None):
    """Rows with plain t tests; what a study computes is its own matter."""
    found = []
    for task in dict.fromkeys(run.task for run in runs):
        name, _, sizes = TASKS[task]
        known = [p for p in map(parse_key, runs[0].values) if p and p.metric == METRICS[0]]
        last = max(p.where for p in known if p.view == "tokens")
        shown = [p.text for p in known if p.where == last and p.view == "tokens"]
        shown += [CurveKey(METRICS[0], "pooled", side).text for side in ("before", "after")]
        for key in (f"val/{name}", f"test/{name}", *shown):
            n_rows = "2048" if key in shown else sizes[key.startswith("test")]
            of_key = {
                arm: {
                    r.seed: r.values[key]
                    for r in runs
                    if (r.task, r.arm) == (task, arm) and key in r.values
                }
                for arm in arms
            }
            own = []
            for arm, by_seed in of_key.items():
                if not by_seed:
                    continue
                shared = [k for k in by_seed if k in of_key[arms[0]]]
                difference, over_rows = None, None
                if arm != arms[0] and shared:
                    values = [by_seed[k] - of_key[arms[0]][k] for k in shared]
                    difference = _difference(values, margin)
                    if key.startswith("test") and difference.estimate.low is not None:
                        e = difference.estimate
                        over_rows = OverRows(e.mean, e.low - 0.012, e.high + 0.012, 1400, e.n)
                own.append(
                    ScoreRow(
                        task,
                        key,
                        arm,
                        n_rows,
                        estimate(list(by_seed.values())),
                        difference,
                        over_rows,
                    )
                )
            found += _holm(own)
    return tuple(found)


def _difference(values, margin):
    about = estimate(values)
    if not about.sd:
        return Difference(about)
    n, error = about.n, about.sd / math.sqrt(about.n)
    p = 2 * float(stats.t.sf(abs(about.mean) / error, n - 1))
    outside = None
    if margin:
        outside = float(stats.t.sf((margin - abs(about.mean)) / error, n - 1))
    needed = math.ceil((2.8 * about.sd / 0.01) ** 2) + 2
    return Difference(about, p, None, "permutation" if n >= 8 else "t", outside, needed)


def _holm(rows):
    ps = sorted(
        (r.difference.p, k)
        for k, r in enumerate(rows)
        if r.difference and r.difference.p is not None
    )
    rows, most = list(rows), 0.0
    for rank, (p, k) in enumerate(ps):
        most = max(most, min(1.0, p * (len(ps) - rank)))
        rows[k] = rows[k]._replace(difference=rows[k].difference._replace(p_holm=most))
    return rows


def curves_of(tasks=TASKS, arms=tuple(EFFECT), n=8, at=PLACES, steps=(0, 85, 170)):
    found = []
    for task in tasks:
        for arm in arms:
            for curve_key in at:
                if curve_key.view == "before" and arm == "none":
                    continue
                if curve_key.metric != METRICS[0] and task != "wic":
                    continue  # one task is enough of it: figures take time
                points = []
                for step in steps:
                    mean, half = isotropy(curve_key, arm, step / steps[-1]), 0.002 + step / 2e4
                    ends = (mean - half, mean + half) if n > 1 else (None, None)
                    points.append(Point(step, mean, *ends, n))
                n_rows = {"cls": 638, "mean": 638}.get(curve_key.view, 2048)
                sd = None if n == 1 else 0.01
                end = Estimate(n, points[-1].mean, sd, *points[-1][2:4])
                found.append(Curve(task, arm, curve_key, tuple(points), n_rows, end))
    return tuple(found)


def content(at=PLACES, **more):
    """A whole study; `more` replaces parts of it."""
    runs, arms = runs_of(at=at), tuple(EFFECT)
    return StudyContent(
        name="does_isotropy_help",
        baseline="none",
        tasks=(Named("wic", ("task=wic",)), Named("stsb", ("task=stsb", "task.form=bi"))),
        arms=tuple(Named(arm, (f"isotropy={arm}", "site=[tokens]")) for arm in arms),
        seeds=tuple(range(8)),
        rows=rows_of(runs, arms, 0.01),
        runs=runs,
        curves=curves_of(at=at),
        metrics=METRICS,
        question="Does isotropy help while fine-tuning?",
        facts=("2031-02-08", "isotrain 0.1.0", "minilm"),
        overrides=("encoder=minilm", "threads=1"),
        commands=("isotrain run does_isotropy_help --jobs 2",),
        margin=0.01,
        n_planned=64,
        methods=("I-STAR: Rudman & Eickhoff 2024",),
    )._replace(**more)
