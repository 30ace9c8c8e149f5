"""The lines of a study's tables: each score of each arm on each task, against the baseline."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from isotrain.reporting.row_bootstrap import SCORES, RowInterval, row_interval, same_rows
from isotrain.reporting.statistics import (
    Comparison,
    Summary,
    compare_paired,
    holm,
    seeds_needed,
    summarize,
)
from isotrain.runs.predictions import read_predictions
from isotrain.studies.definition import Study
from isotrain.studies.results import SPLITS, Gap, Run

Pairs = Sequence[tuple[Run, Run]]  # the runs of an arm and of the baseline that share a seed
NO_SEEDS = Summary(0, math.nan, None, None, None, None)
FEWEST_FOR_A_POINT = 5  # pairs, from which their spread tells about other seeds
SAME_SCORE = 1e-5  # scores are float32; one row of 50,000 is more
NOTHING: Mapping[str, Sequence[str]] = MappingProxyType({})


class Line(NamedTuple):
    """One score of one arm on one task.

    Where runs of the arm or of the baseline are `degenerate`, nothing is claimed of the difference.
    """

    task: str
    score: str
    arm: str
    n_rows: str  # N; several numbers where runs differ
    own: Summary  # n = 0 where every run of the arm is left out
    comparison: Comparison | None = None  # to the baseline; None for itself, or without a pair
    p_holm: float | None = None  # adjusted for the arms of this task and score
    n_comparisons: int = 0  # m of Holm's adjustment
    n_for_a_point: int | None = None  # seeds that would show 0.01 among m comparisons, about
    rows: RowInterval | None = None  # over rows and seeds
    why_no_rows: str = ""  # the reason why there is none
    n_failed: int = 0  # seeds that have no such score because training failed
    best_of: str = ""  # evaluations that each run's score is the best of; "" where not selected
    degenerate: str = ""  # how many runs of the arm and of the baseline are, in words


def table_lines(
    study: Study,
    runs: Sequence[Run],
    gaps: Sequence[Gap] = (),
    recorded: Mapping[str, Sequence[str]] = NOTHING,
    left_out: Sequence[Run] = (),
) -> list[Line]:
    """Every shown score of every arm over its finished seeds, by task, score and arm.

    The score on test stands first, where there is one.

    Differences are paired by seed, over the seeds that both arms have; Holm's adjustment is over
    the arms of one task and one score, and over those whose runs are all left out, or that were
    `recorded` of the task before and are left out now, as if their p were 1. A margin, and the
    seeds that would show a point, are of the monitored score and its test twin, in their unit; the
    interval over rows is of those of them that are in `SCORES`. Beside degenerate runs there is no
    p of equivalence and no number of seeds, which takes five pairs too.

    Args:
        study: whose arms are compared.
        runs: its finished runs, or some of them.
        gaps: what is missing; failed runs are counted.
        recorded: by task, every arm that ever had a finished run.
        left_out: finished runs that do not count; an arm that has no other has a line with n = 0.
    """
    lines = []
    for task in study.tasks:
        of_task = [run for run in runs if run.task == task]
        aside = [run for run in left_out if run.task == task]
        gone = [arm for arm in recorded.get(task, ()) if arm not in study.arms]
        keys = dict.fromkeys(key for run in [*of_task, *aside] for key in run.shown)
        for score in sorted(keys, key=lambda key: not key.startswith("test/")):
            of_score, others = (
                [run for run in own if score in run.shown] for own in (of_task, aside)
            )
            failed = [g for g in gaps if g.has_failed and g.task == task and g.score in ("", score)]
            found = _lines_of(study, task, score, of_score, others)
            counted = [
                line._replace(n_failed=sum(g.arm == line.arm for g in failed)) for line in found
            ]
            empty = sum(not line.own.n and line.arm != study.baseline for line in counted)
            lines += _adjusted(counted, len(gone) + empty)
    return lines


def _lines_of(
    study: Study, task: str, score: str, runs: Sequence[Run], left_out: Sequence[Run]
) -> list[Line]:
    found = {
        arm: {run.seed: run for run in runs if run.arm == arm and score in run.scores}
        for arm in study.arms
    }
    base = found[study.baseline]
    lines = []
    for arm, by_seed in found.items():
        if not by_seed:
            if aside := [run for run in left_out if run.arm == arm]:
                sizes = _numbers(run.shown[score] for run in aside)
                lines.append(Line(task, score, arm, sizes, NO_SEEDS))
            continue
        own = list(by_seed.values())
        sizes = _numbers(run.shown[score] for run in own)
        line = Line(task, score, arm, sizes, summarize([run.scores[score] for run in own]))
        line = line._replace(
            best_of=_numbers(run.n_evaluations for run in own if run.is_best_of(score)),
            degenerate=_degenerate({study.baseline: list(base.values()), arm: own}),
        )
        pairs = [(by_seed[k], base[k]) for k in study.seeds if k in by_seed and k in base]
        if arm != study.baseline and pairs:
            margin = None if line.degenerate else study.margin
            found_in_seeds = _comparison(pairs, score, margin)
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
        n = _for_a_point(line, m)
        found.append(line._replace(p_holm=p, n_comparisons=m, n_for_a_point=n))
    return found


def _for_a_point(line: Line, n_comparisons: int) -> int | None:
    """The seeds that would show 0.01 of an accuracy or a correlation; None where few pairs tell."""
    is_share = is_of_the_task(line.score) and line.score.partition("/")[2] in SCORES  # no loss
    about = line.comparison.difference if line.comparison else NO_SEEDS
    if not is_share or not about.sd or about.n < FEWEST_FOR_A_POINT or line.degenerate:
        return None
    return seeds_needed(about.sd, n_comparisons=n_comparisons)


def _degenerate(arms: Mapping[str, Sequence[Run]]) -> str:
    """How many runs of some arms are degenerate; empty where none is.

    >>> _degenerate({"none": [Run("rte", "none", 0, {}, {}, "one class")], "mean": []})
    '1 of 1 runs of none are degenerate'
    """
    counts = {arm: sum(bool(run.degenerate) for run in own) for arm, own in arms.items()}
    told = " and ".join(f"{n} of {len(arms[arm])} runs of {arm}" for arm, n in counts.items() if n)
    return f"{told} are degenerate" if told else ""


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
    except OSError as error:
        return None, f"predictions of {split} cannot be read now ({error.strerror})"
    except ValueError as error:  # its message has a path
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
