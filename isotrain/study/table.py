"""The lines of a study's tables: each score of each arm on each task, against the baseline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from isotrain.predictions import read_predictions
from isotrain.study.definition import Study
from isotrain.study.results import SPLITS, Gap, Run
from isotrain.study.row_bootstrap import SCORES, RowInterval, row_interval, same_rows
from isotrain.study.statistics import (
    Comparison,
    Summary,
    compare_paired,
    holm,
    seeds_needed,
    summarize,
)

Pairs = Sequence[tuple[Run, Run]]  # the runs of an arm and of the baseline that share a seed
SAME_SCORE = 1e-5  # scores are float32; one row of 50,000 is more
NOTHING: Mapping[str, Sequence[str]] = MappingProxyType({})


class Line(NamedTuple):
    """One score of one arm on one task."""

    task: str
    score: str
    arm: str
    n_rows: str  # N; several numbers where runs differ
    own: Summary
    comparison: Comparison | None = None  # to the baseline; None for itself, or without a pair
    p_holm: float | None = None  # adjusted for the arms of this task and score
    n_comparisons: int = 0  # m of Holm's adjustment
    n_for_a_point: int | None = None  # seeds that would show 0.01 among m comparisons, about
    rows: RowInterval | None = None  # over rows and seeds
    why_no_rows: str = ""  # the reason why there is none
    n_failed: int = 0  # seeds that have no such score because training failed
    best_of: str = ""  # evaluations that each run's score is the best of; "" where not selected


def table_lines(
    study: Study,
    runs: Sequence[Run],
    gaps: Sequence[Gap] = (),
    recorded: Mapping[str, Sequence[str]] = NOTHING,
) -> list[Line]:
    """Every shown score of every arm over its finished seeds, by task, score and arm.

    Differences are paired by seed, over the seeds that both arms have; Holm's adjustment is over
    the arms of one task and one score, and over the arms that were `recorded` of the task before
    and are left out now, as if their p were 1. A margin, and the seeds that would show a point, are
    of the monitored score and its test twin, in their unit; the interval over rows is of those of
    them that are in `SCORES`.

    Args:
        study: whose arms are compared.
        runs: its finished runs, or some of them.
        gaps: what is missing; failed runs are counted.
        recorded: by task, every arm that ever had a finished run.
    """
    lines = []
    for task in study.tasks:
        of_task = [run for run in runs if run.task == task]
        left_out = [arm for arm in recorded.get(task, ()) if arm not in study.arms]
        for score in dict.fromkeys(key for run in of_task for key in run.shown):
            of_score = [run for run in of_task if score in run.shown]
            failed = [g for g in gaps if g.has_failed and g.task == task and g.score in ("", score)]
            found = _lines_of(study, task, score, of_score)
            counted = [
                line._replace(n_failed=sum(g.arm == line.arm for g in failed)) for line in found
            ]
            lines += _adjusted(counted, len(left_out))
    return lines


def _lines_of(study: Study, task: str, score: str, runs: Sequence[Run]) -> list[Line]:
    found = {
        arm: {run.seed: run for run in runs if run.arm == arm and score in run.scores}
        for arm in study.arms
    }
    base = found[study.baseline]
    lines = []
    for arm, by_seed in found.items():
        if not by_seed:
            continue
        own = list(by_seed.values())
        sizes = _numbers(run.shown[score] for run in own)
        line = Line(task, score, arm, sizes, summarize([run.scores[score] for run in own]))
        line = line._replace(
            best_of=_numbers(run.n_evaluations for run in own if run.is_best_of(score))
        )
        pairs = [(by_seed[k], base[k]) for k in study.seeds if k in by_seed and k in base]
        if arm != study.baseline and pairs:
            found_in_seeds = _comparison(pairs, score, study.margin)
            rows, why = _over_rows(pairs, score, found_in_seeds.difference.mean)
            line = line._replace(comparison=found_in_seeds, rows=rows, why_no_rows=why)
        lines.append(line)
    return lines


def _adjusted(lines: Sequence[Line], n_left_out: int) -> list[Line]:
    """Lines of one score with Holm's p and with the seeds that a point would need under it."""
    p_values = [line.comparison.p if line.comparison else None for line in lines]
    m = sum(p is not None for p in p_values) + n_left_out
    adjusted = holm([*p_values, *[1.0] * n_left_out])
    found = []
    for line, p in zip(lines, adjusted[: len(lines)], strict=True):
        sd = line.comparison.difference.sd if line.comparison else None
        is_share = is_of_the_task(line.score) and line.score.partition("/")[2] in SCORES
        n = seeds_needed(sd, n_comparisons=m) if sd and is_share else None  # 0.01 is no loss
        found.append(line._replace(p_holm=p, n_comparisons=m, n_for_a_point=n))
    return found


def _comparison(pairs: Pairs, score: str, margin: float | None) -> Comparison:
    values = [run.scores[score] for run, _ in pairs]
    baseline = [run.scores[score] for _, run in pairs]
    return compare_paired(values, baseline, margin if is_of_the_task(score) else None)


def is_of_the_task(score: str) -> bool:
    """Whether a score is what the task is judged by, rather than a value of isotropy.

    >>> is_of_the_task("val/accuracy"), is_of_the_task("isotropy/isoscore/pooled/after")
    (True, False)
    """
    return score.partition("/")[0] in SPLITS


def _over_rows(pairs: Pairs, score: str, difference: float) -> tuple[RowInterval | None, str]:
    """The interval over rows and seeds; without one the reason, in words."""
    stage, _, metric = score.partition("/")
    if stage not in SPLITS:
        return None, ""
    if metric not in SCORES:
        return None, f"it is computed for {', '.join(SCORES)}"
    if len(pairs) < 2:
        return None, "one pair says nothing about other seeds"
    split, both = SPLITS[stage], [run for pair in pairs for run in pair]
    try:
        kept = [read_predictions(run.folder, split) for run in both]
    except (OSError, ValueError) as error:  # its message has a path
        return None, f"predictions of {split} are damaged ({type(error).__name__})"
    known = [one for one in kept if one is not None]
    if lost := len(kept) - len(known):
        return None, f"{lost} of {len(kept)} runs kept no predictions of {split}"
    try:
        label, prediction = same_rows(known)  # [N], [2S, N]
        found = row_interval(prediction[::2], prediction[1::2], label, SCORES[metric])
    except ValueError as error:
        return None, str(error)
    if abs(found.mean - difference) >= SAME_SCORE:
        return None, (
            f"predictions of {split} do not belong to the scores: by them the difference is "
            f"{found.mean:.5f}, by the scores {difference:.5f}"
        )
    return found, ""


def _numbers(found: Iterable[int]) -> str:
    """Different numbers in order.

    >>> _numbers([9, 8, 9])
    '8 or 9'
    """
    return " or ".join(map(str, sorted(set(found))))
