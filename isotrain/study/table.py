"""The rows of a study's tables: each score of each arm on each task, compared with the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from isotrain.predictions import read_predictions
from isotrain.study.definition import Study
from isotrain.study.item_bootstrap import SCORES, ItemInterval, item_interval, same_items
from isotrain.study.results import SPLITS, Run
from isotrain.study.statistics import Comparison, Summary, compare_paired, holm, summarize

Pairs = Sequence[tuple[Run, Run]]  # the runs of an arm and of the baseline that share a seed


class Row(NamedTuple):
    """One score of one arm on one task."""

    task: str
    score: str
    arm: str
    n_rows: str  # N; several numbers where runs differ
    own: Summary
    comparison: Comparison | None = None  # to the baseline; None for itself, or without a pair
    p_holm: float | None = None  # adjusted for the arms of this task and score
    items: ItemInterval | None = None  # over rows × seeds, where every run kept its predictions


def table_rows(study: Study, runs: Sequence[Run]) -> list[Row]:
    """Every shown score of every arm over its finished seeds, by task, score and arm.

    Differences are paired by seed, over the seeds that both arms have; Holm's adjustment is over
    the arms of one task and one score. A margin, and the seeds that would show a point, are of the
    monitored score and its test twin, in their unit; the item interval is of those of them that
    are in `SCORES`.
    """
    rows = []
    for task in study.tasks:
        of_task = [run for run in runs if run.task == task]
        for score in dict.fromkeys(key for run in of_task for key in run.shown):
            rows += _rows_of(study, task, score, [r for r in of_task if score in r.shown])
    return rows


def _rows_of(study: Study, task: str, score: str, runs: Sequence[Run]) -> list[Row]:
    found = {
        arm: {run.seed: run for run in runs if run.arm == arm and score in run.scores}
        for arm in study.arms
    }
    base = found[study.baseline]
    rows = []
    for arm, by_seed in found.items():
        if not by_seed:
            continue
        counts = sorted({run.shown[score] for run in by_seed.values()})
        own = summarize([run.scores[score] for run in by_seed.values()])
        row = Row(task, score, arm, " or ".join(map(str, counts)), own)
        pairs = [(by_seed[k], base[k]) for k in study.seeds if k in by_seed and k in base]
        if arm != study.baseline and pairs:
            row = row._replace(
                comparison=_comparison(pairs, score, study.margin), items=_items(pairs, score)
            )
        rows.append(row)
    adjusted = holm([row.comparison.p if row.comparison else None for row in rows])
    return [row._replace(p_holm=p) for row, p in zip(rows, adjusted, strict=True)]


def _comparison(pairs: Pairs, score: str, margin: float | None) -> Comparison:
    values = [run.scores[score] for run, _ in pairs]
    baseline = [run.scores[score] for _, run in pairs]
    if not is_of_the_task(score):
        return compare_paired(values, baseline)._replace(n_for_a_point=None)
    found = compare_paired(values, baseline, margin)
    is_share = score.partition("/")[2] in SCORES  # a point is 0.01 of these; not of a loss
    return found if is_share else found._replace(n_for_a_point=None)


def is_of_the_task(score: str) -> bool:
    """Whether a score is what the task is judged by, rather than a value of isotropy.

    >>> is_of_the_task("val/accuracy"), is_of_the_task("isotropy/isoscore/pooled/after")
    (True, False)
    """
    return score.partition("/")[0] in SPLITS


def _items(pairs: Pairs, score: str) -> ItemInterval | None:
    """The interval over rows and seeds; None where runs have other rows, or kept none."""
    stage, _, metric = score.partition("/")
    if stage not in SPLITS or metric not in SCORES:
        return None
    try:
        kept = [read_predictions(run.folder, SPLITS[stage]) for pair in pairs for run in pair]
        found = [one for one in kept if one is not None]
        if len(found) < len(kept):
            return None
        label, both = same_items(found)  # [N], [2S, N]
        return item_interval(both[::2], both[1::2], label, SCORES[metric])
    except (OSError, ValueError):  # damaged, of other rows, or a score that is not defined
        return None
