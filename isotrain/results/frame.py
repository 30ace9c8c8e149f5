"""The result of a study as a flat table: one row per task, method and score."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, get_args, get_type_hints

from isotrain.results.levels import reference
from isotrain.results.row_bootstrap import SCORES, RowInterval, row_interval, same_rows
from isotrain.results.runs import DAMAGE, SPLITS, Gap, Run, finite
from isotrain.results.statistics import (
    FEWEST_SEEDS,
    Summary,
    compare_paired,
    holm,
    seeds_needed,
    summarize,
)
from isotrain.runs.files import read_records
from isotrain.runs.predictions import read_predictions
from isotrain.studies.definition import Study

if TYPE_CHECKING:
    from pandas import DataFrame

Starts = Mapping[int, Mapping[str, float]]  # by seed: what runs logged at step 0
Pairs = Sequence[tuple[Run, Run]]  # the runs of a method and of the baseline that share a seed
ALL, WITHOUT = "all", "without collapsed"  # which runs a row covers
UNTRAINED = "untrained"
LOSSES = ("loss", "scaled_loss")
NO_SEEDS = Summary(0, math.nan, None, None, None, None)
FEWEST_FOR_SEEDS = 5  # pairs, from which their spread generalises to other seeds
SAME_SCORE = 1e-5  # scores are float32; one example in 50,000 is more
NOTHING: Mapping[str, int] = MappingProxyType({})


class Row(NamedTuple):
    """One score of one method on one task over seeds; undefined values are None or empty.

    Reference rows (untrained, chance) have no `baseline` and are not compared. No claim is made
    about a difference if `collapsed` is set.
    """

    runs: str  # all | without collapsed
    task: str
    score: str  # a key: test/accuracy, or isotropy/<metric>/<where>/<view>
    method: str
    examples: str  # N; several numbers if runs differ
    n: int  # seeds; 0 if every run is left out
    mean: float
    sd: float | None = None  # (n − 1)
    low: float | None = None  # 95 % CI over seeds
    high: float | None = None
    best_of: str = ""  # number of evaluations a score is the best of; "" if not selected
    failed: int = 0  # seeds whose training failed or ended without this score
    baseline: str = ""
    difference: float | None = None  # to the baseline, paired by seed
    difference_sd: float | None = None
    difference_low: float | None = None
    difference_high: float | None = None
    gain: float | None = None  # of fine-tuning: the baseline minus its value at step 0
    pairs: int | None = None  # 0 where the baseline was scored on other examples
    p: float | None = None  # two-sided, by `test`
    test: str = ""  # t | permutation
    p_holm: float | None = None  # corrected for the methods of this task and score
    comparisons: int | None = None  # m of Holm's correction
    margin: float | None = None  # of equivalence, in the unit of the score
    p_tost: float | None = None
    seeds_needed: int | None = None  # about, to detect 0.01 among m comparisons with power 0.8
    both_low: float | None = None  # 95 % CI of the difference over seeds and test examples
    both_high: float | None = None
    both_examples: int | None = None
    both_undefined: int | None = None  # resamples with an undefined score
    why_no_both: str = ""
    published: float | None = None
    collapsed: str = ""  # how many runs of the method and of the baseline collapsed


def is_score(key: str) -> bool:
    """Whether a key is a task score rather than an isotropy value."""
    return key.partition("/")[0] in SPLITS


def study_rows(
    study: Study,
    runs: Sequence[Run],
    gaps: Sequence[Gap] = (),
    gone: Mapping[str, int] = NOTHING,
) -> list[Row]:
    """Result rows: every shown score of every method over its finished seeds, test first.

    If predictions of some runs are collapsed, the rows of all runs are followed by rows without
    those runs. A method with no run left, or none with a finite score, has a row with n = 0.

    Differences are paired by seed. Holm's correction is over the methods of one task and one score,
    including those now left out, counted as p = 1. Equivalence and the seeds needed are given
    for the monitored score and the same score on test, unless predictions are collapsed.

    Args:
        study: the study whose methods are compared.
        runs: its finished runs.
        gaps: what is missing; failed runs are counted.
        gone: per task, the number of methods that finished earlier and are left out now.
    """
    rows = _rows(study, runs, [], gaps, gone)
    if collapsed := [run for run in runs if run.degenerate]:
        not_collapsed = [run for run in runs if not run.degenerate]
        rows_without = _rows(study, not_collapsed, collapsed, gaps, gone)
        rows += [row._replace(runs=WITHOUT) for row in rows_without]
    return rows


def _rows(
    study: Study,
    runs: Sequence[Run],
    left_out: Sequence[Run],
    gaps: Sequence[Gap],
    gone: Mapping[str, int],
) -> list[Row]:
    """The rows of some runs; a method without a score has a row with n = 0."""
    rows: list[Row] = []
    for task in study.tasks:
        task_runs = [run for run in runs if run.task == task]
        excluded_runs = [run for run in left_out if run.task == task]
        base = [run for run in task_runs if run.method == study.baseline]
        starts: dict[str, dict[int, Any]] = {method: {} for method in study.methods}
        for run in task_runs:
            starts[run.method][run.seed] = _at_step_0(run)
        base_starts = starts[study.baseline]
        keys = dict.fromkeys(key for run in [*task_runs, *excluded_runs] for key in run.shown)
        for score in sorted(keys, key=lambda key: not key.startswith("test/")):
            gain = _gain(score, base, base_starts) if is_score(score) else NO_SEEDS
            is_main = any(score in (run.monitor, run.twin) for run in task_runs)
            margin = _margin(study, gain) if is_main and is_score(score) else None
            scored_runs, excluded_scored = (
                [run for run in group if score in run.shown] for group in (task_runs, excluded_runs)
            )
            method_rows = _methods(study, task, score, scored_runs, excluded_scored, margin)
            failures = [gap for gap in gaps if gap.has_failed and gap.task == task]
            n_failed = Counter(gap.method for gap in failures if gap.score in ("", score))
            n_empty = sum(not row.n and row.method != study.baseline for row in method_rows)
            method_rows = [
                row._replace(failed=n_failed[row.method], gain=gain.mean if gain.n else None)
                for row in method_rows
            ]
            references = _references(task, score, base) + _untrained(task, score, base, starts)
            rows += [*references, *_corrected(method_rows, gone.get(task, 0) + n_empty)]
    return rows


def _methods(
    study: Study,
    task: str,
    score: str,
    runs: Sequence[Run],
    left_out: Sequence[Run],
    margin: float | None,
) -> list[Row]:
    """One row per method, before Holm's correction."""
    runs_by_method = {m: [run for run in runs if run.method == m] for m in study.methods}
    scored = {
        method: {run.seed: run for run in method_runs if score in run.scores}
        for method, method_runs in runs_by_method.items()
    }
    if not (any(scored.values()) or left_out):
        return []
    base = scored[study.baseline]
    rows = []
    for method, method_runs in runs_by_method.items():
        shown_runs = method_runs or [run for run in left_out if run.method == method]
        if not shown_runs:
            continue
        by_seed = scored[method]
        examples = numbers(run.shown[score] for run in by_seed.values() or shown_runs)
        values = [run.scores[score] for run in by_seed.values()]
        summary = summarize(values) if values else NO_SEEDS
        row = Row(ALL, task, score, method, examples, *summary[:5], baseline=study.baseline)
        row = row._replace(
            best_of=numbers(run.n_candidates for run in by_seed.values() if run.is_best_of(score)),
            collapsed=_collapsed({m: runs_by_method[m] for m in (study.baseline, method)}),
            published=study.published_score(task, method, score, shown_runs[0].monitor),
        )
        if method != study.baseline and by_seed.keys() & base.keys():
            pairs = paired(runs, score, method, study.baseline)
            margin_here = None if row.collapsed else margin
            row = _compared(row, pairs, margin_here) if pairs else row._replace(pairs=0)
        rows.append(row)
    return rows


def paired(runs: Iterable[Run], score: str, method: str, baseline: str) -> list[tuple[Run, Run]]:
    """Runs of a method and of the baseline with the same seed that can be compared by a score.

    Both have it. A task score is of as many examples in both, of splits drawn alike.
    """
    of_methods: dict[str, dict[int, Run]] = {method: {}, baseline: {}}
    for run in runs:
        if run.method in of_methods and score in run.scores:
            of_methods[run.method][run.seed] = run
    base = of_methods[baseline]
    pairs = [(run, base[seed]) for seed, run in of_methods[method].items() if seed in base]
    if not is_score(score):
        return pairs
    return [(a, b) for a, b in pairs if _examples_of(a, score) == _examples_of(b, score)]


def _examples_of(run: Run, score: str) -> tuple[int | None, str]:
    """What tells the examples of a score apart: their number, and the draw of the splits."""
    return run.shown.get(score), run.drawn


def _compared(row: Row, pairs: Pairs, margin: float | None) -> Row:
    """A row with its paired difference to the baseline."""
    values = [[run.scores[row.score] for run in runs] for runs in zip(*pairs, strict=True)]
    comparison = compare_paired(values[0], values[1], margin)
    difference = comparison.difference
    interval, reason = _over_examples(pairs, row.score, difference.mean)
    row = row._replace(
        difference=difference.mean,
        difference_sd=difference.sd,
        difference_low=difference.low,
        difference_high=difference.high,
        pairs=difference.n,
        p=comparison.p,
        test=comparison.method,
        margin=margin if comparison.p_equivalent is not None else None,
        p_tost=comparison.p_equivalent,
        why_no_both=reason,
    )
    if interval is None:
        return row
    return row._replace(
        both_low=interval.low,
        both_high=interval.high,
        both_examples=interval.n_rows,
        both_undefined=interval.n_undefined,
    )


def _corrected(rows: Sequence[Row], n_left_out: int) -> list[Row]:
    """Add Holm-corrected p to the rows of one score, and the seeds needed to detect 0.01."""
    m = sum(row.p is not None for row in rows) + n_left_out
    adjusted = holm([*(row.p for row in rows), *[1.0] * n_left_out])[: len(rows)]
    corrected_rows = []
    for row, p in zip(rows, adjusted, strict=True):
        n_seeds, sd = None, row.difference_sd
        is_supported = is_score(row.score) and row.score.partition("/")[2] in SCORES  # not a loss
        if is_supported and sd and not row.collapsed and (row.pairs or 0) >= FEWEST_FOR_SEEDS:
            n_seeds = seeds_needed(sd, n_comparisons=m)
        corrected_rows.append(row._replace(p_holm=p, comparisons=m, seeds_needed=n_seeds))
    return corrected_rows


def _collapsed(methods: Mapping[str, Sequence[Run]]) -> str:
    """Number of runs with collapsed predictions per method; empty if there are none."""
    counts = {method: sum(bool(run.degenerate) for run in runs) for method, runs in methods.items()}
    parts = " and ".join(
        f"{n} of {len(methods[method])} runs of method {method}"
        for method, n in counts.items()
        if n
    )
    return f"{parts} collapsed" if parts else ""


def _over_examples(pairs: Pairs, score: str, difference: float) -> tuple[RowInterval | None, str]:
    """The CI over seeds and test examples, or the reason why there is none."""
    stage, _, metric = score.partition("/")
    if stage not in SPLITS or metric in LOSSES:
        return None, ""
    if metric not in SCORES:
        return None, f"it is computed for {', '.join(SCORES)}"
    if len(pairs) < FEWEST_SEEDS:
        return None, f"fewer than {FEWEST_SEEDS} pairs say too little about other seeds"
    split, runs = SPLITS[stage], [run for pair in pairs for run in pair]
    if len({run.drawn for run in runs}) > 1:
        return None, "each seed has its own examples"
    try:
        stored = [read_predictions(run.folder, split) for run in runs]
    except (OSError, ValueError) as error:  # its message has a path
        return None, f"predictions of {split} cannot be read ({type(error).__name__})"
    predictions = [p for p in stored if p is not None]
    if n_missing := len(stored) - len(predictions):
        return None, f"{n_missing} of {len(stored)} runs kept no predictions of {split}"
    try:
        label, prediction = same_rows(predictions)  # [N], [2S, N]
        interval = row_interval(prediction[::2], prediction[1::2], label, SCORES[metric])
    except ValueError as error:
        return None, str(error)
    if abs(interval.mean - difference) >= SAME_SCORE:
        return None, (
            f"predictions of {split} do not belong to the scores: by them the difference is "
            f"{interval.mean:.5f}, by the scores {difference:.5f}"
        )
    return interval, ""


def _at_step_0(run: Run) -> Mapping[str, float]:
    """Values logged before fine-tuning, on test too (`training.test_untrained`); may be empty."""
    try:
        records = read_records(run.folder / "metrics.jsonl", last_step=0)
    except DAMAGE:
        return {}
    return finite({key: value for record in records for key, value in record.items()})


def _references(task: str, score: str, base: Sequence[Run]) -> list[Row]:
    """The row of the chance level, if a score of the task has one."""
    if not base or not is_score(score) or not (level := reference(base[0].folder, score)):
        return []
    examples = numbers(run.shown[score] for run in base if score in run.shown)
    return [Row(ALL, task, score, level[0], examples, 0, level[1])]


def _untrained(
    task: str, score: str, base: Sequence[Run], starts: Mapping[str, Starts]
) -> list[Row]:
    """Rows of step 0: the baseline, and methods whose layer changes its score."""
    scores_by_method = {
        method: {seed: record[score] for seed, record in records.items() if score in record}
        for method, records in starts.items()
    }
    base_scores = scores_by_method[base[0].method] if base else {}
    examples, rows = numbers(run.shown[score] for run in base if score in run.shown), []
    for method, scores in scores_by_method.items():
        is_base = scores is base_scores
        is_changed = any(scores[s] != base_scores[s] for s in scores.keys() & base_scores.keys())
        if scores and (is_base or is_changed):
            name = UNTRAINED if is_base else f"{UNTRAINED}, {method}"
            summary = summarize(list(scores.values()))
            rows.append(Row(ALL, task, score, name, examples, *summary[:5]))
    return rows


def _gain(score: str, base: Sequence[Run], first: Starts) -> Summary:
    """Gain of the baseline by fine-tuning, paired by seed; n = 0 unless its CI shows a gain."""
    sign = -1 if is_lower_better(score, base) else 1
    pairs = [(run.scores, first[run.seed]) for run in base]
    gains = [end[score] - start[score] for end, start in pairs if score in end and score in start]
    summary = summarize(gains) if gains else NO_SEEDS
    bounds = (summary.low, summary.high)
    return summary if all(bound is not None and sign * bound > 0 for bound in bounds) else NO_SEEDS


def is_lower_better(score: str, runs: Iterable[Run]) -> bool:
    """Whether a score is a loss, or monitored by a task whose `mode` is min."""
    monitored = (run.mode == "min" and score in (run.monitor, run.twin) for run in runs)
    return score.partition("/")[2] in LOSSES or any(monitored)


def _margin(study: Study, gain: Summary) -> float | None:
    """The equivalence margin; a share is relative to the CI end of the gain nearer to 0."""
    if study.margin_share is None:
        return study.margin
    bounds = [abs(bound) for bound in (gain.low, gain.high) if bound is not None]
    return study.margin_share * min(bounds) if bounds else None


def numbers(numbers: Iterable[int]) -> str:
    """Distinct numbers in order: `8 or 9`."""
    return " or ".join(map(str, sorted(set(numbers))))


def frame(rows: Sequence[Row]) -> DataFrame:
    """Rows as a data frame with the fields of `Row` as columns; counts are `Int64`."""
    import pandas as pd  # slow to import; only tables need it

    table = pd.DataFrame.from_records(rows, columns=Row._fields)
    types = {name: {kind, *get_args(kind)} for name, kind in get_type_hints(Row).items()}
    numbers = {float: "float64", int: "Int64"}
    return table.astype(
        {name: dtype for name, kinds in types.items() for t, dtype in numbers.items() if t in kinds}
    )
