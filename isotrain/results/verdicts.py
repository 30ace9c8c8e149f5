"""Results of a study as codes and numbers: a verdict per method, and faults of the study."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Literal, NamedTuple

from isotrain.results.findings import Finding, finding
from isotrain.results.frame import ALL, WITHOUT, Row, is_lower_better, is_score
from isotrain.results.result import Result, cautions
from isotrain.results.runs import Run
from isotrain.results.series import sites_of
from isotrain.results.statistics import LEVEL
from isotrain.runs.keys import VIEWS, CurveKey, last_layer, parse_key, shown_view

Verdict = Literal["higher", "lower", "equivalent", "undecided", "untested", "no claim"]
FEWEST_FOR_MEANS = 4  # seeds, below which a reader sees the single scores
BESIDE = "mean_cosine"  # shown beside the first headline metric


class Line(NamedTuple):
    """One method's line in the answer for a task.

    Attributes:
        row: its score and difference.
        verdict: of the difference; "" of the baseline and of reference rows.
        is_baseline: whether the other methods are compared with it.
        singles: its scores by seed, if there are fewer than four.
        isotropy: its mean for each cloud of the answer; None if not measured.
    """

    row: Row
    verdict: Verdict | Literal[""]
    is_baseline: bool
    singles: list[float]
    isotropy: list[float | None]

    @property
    def both_ci_contains_zero(self) -> bool:
        """Whether the CI over seeds and examples contains 0."""
        low, high = self.row.both_low, self.row.both_high
        return low is not None and high is not None and low <= 0 <= high


class TaskAnswer(NamedTuple):
    """The answer for a task, one line per method; `score` is "" without a finished run."""

    task: str
    score: str
    isotropy_keys: list[CurveKey]
    lines: list[Line]
    is_lower_better: bool = False

    @property
    def rows(self) -> list[Row]:
        """The rows of its score."""
        return [line.row for line in self.lines]

    def of(self, verdict: Verdict) -> list[str]:
        """The methods with a verdict."""
        return [line.row.method for line in self.lines if line.verdict == verdict]


def task_score(result: Result, task: str) -> str:
    """Key of the score in the answer: on test if measured; "" if there is none."""
    keys = [key for key in result.table(task) if is_score(key)]
    return next((key for key in keys if key.startswith("test/")), next(iter(keys), ""))


def verdict(row: Row) -> Verdict:
    """Verdict on a difference at 5 %: Holm-corrected test first, then equivalence.

    No claim is made if predictions of the method or the baseline are collapsed.
    """
    if row.difference is not None and row.collapsed:
        return "no claim"
    if row.p_holm is None or row.difference is None or not math.isfinite(row.difference):
        return "untested"
    if row.p_holm < LEVEL:
        return "higher" if row.difference > 0 else "lower"
    return "equivalent" if is_equivalent(row) else "undecided"


def is_equivalent(row: Row) -> bool:
    """Whether a score is equivalent within the margin; only scores are tested."""
    return row.p_tost is not None and row.p_tost < LEVEL


def _order(line: Line, sign: int) -> tuple[bool, bool, float]:
    """The baseline first, then by difference, the best first; without one last."""
    difference = math.nan if line.row.difference is None else line.row.difference
    return not line.is_baseline, math.isnan(difference), -sign * difference


def task_answers(result: Result) -> list[TaskAnswer]:
    """One answer per task: its methods with isotropy, baseline first, then the best."""
    answers, baseline = [], result.study.baseline
    for task in result.study.tasks:
        key, runs = task_score(result, task), [run for run in result.runs if run.task == task]
        curves = _isotropy_keys(runs, result.headline)
        lines = []
        for row in result.table(task).get(key, []):
            method_runs = [run for run in runs if row.baseline and run.method == row.method]
            means = [_mean(method_runs, curve) for curve in curves]
            scores = [run.scores[key] for run in method_runs if key in run.scores]
            is_baseline = row.method == baseline and bool(row.baseline)
            outcome = "" if is_baseline or not row.baseline else verdict(row)
            singles = scores if len(scores) < FEWEST_FOR_MEANS else []
            lines.append(Line(row, outcome, is_baseline, singles, means))
        is_lower = is_lower_better(key, runs)
        lines.sort(key=partial(_order, sign=-1 if is_lower else 1))
        method_lines = [line for line in lines if line.row.baseline]
        reference_lines = [line for line in lines if not line.row.baseline]
        answers.append(TaskAnswer(task, key, curves, method_lines + reference_lines, is_lower))
    return answers


def _isotropy_keys(runs: Sequence[Run], headline: Sequence[str]) -> list[CurveKey]:
    """Isotropy values beside the score: of the last layer and of the last site's output."""
    keys = dict.fromkeys(key for run in runs for key in run.scores)
    curves = [curve for key in keys if (curve := parse_key(key))]
    first = next((metric for metric in headline if any(c.metric == metric for c in curves)), "")
    picks = []
    for metric in dict.fromkeys((first, BESIDE)):
        candidates = [c for c in curves if c.metric == metric]
        layer = last_layer(candidates)
        view = shown_view({c.view for c in candidates if c.where == layer})
        picks += [c for c in candidates if (c.where, c.view) == (layer, view) and view in VIEWS][:1]
        site = ["", *sites_of(candidates)][-1]
        picks += [c for c in candidates if (c.where, c.view) == (site, "after")][:1]
    return sorted(picks, key=lambda c: c.where)


def _mean(runs: Sequence[Run], key: CurveKey) -> float | None:
    values = [run.scores[key.text] for run in runs if key.text in run.scores]
    return math.fsum(values) / len(values) if values else None


def faults(result: Result) -> list[Finding]:
    """Why a study is incomplete, or its runs not comparable; macros of `findings.j2`."""
    findings, runs = [], result.runs
    if (n_missing := result.n_planned - len(runs)) > 0:
        findings.append(finding("runs_missing", n=n_missing, planned=result.n_planned))
    if collapsed := [run for run in runs if run.degenerate]:
        methods = list(dict.fromkeys(run.method for run in collapsed))
        values = {"n": len(collapsed), "of": len(runs), "methods": methods}
        changed = _changed_verdicts(result) if WITHOUT in result.kinds else None
        findings.append(finding("collapsed", changed=changed, **values))
    if len(result.study.seeds) == 1:
        findings.append(finding("one_seed"))
    return findings + cautions(result, brief=True)


def _changed_verdicts(result: Result) -> list[tuple[str, str, Verdict, Verdict]]:
    """Verdicts that change if collapsed predictions are left out: method, task, before, after."""
    rows_without = {(r.task, r.score, r.method): r for r in result.rows if r.runs == WITHOUT}
    changes = []
    for task in result.study.tasks:
        for row in result.table(task, ALL).get(task_score(result, task), []):
            row_without = rows_without.get((row.task, row.score, row.method))
            before, after = verdict(row), verdict(row_without) if row_without else "untested"
            if row.baseline and row.method != row.baseline and before != after:
                changes.append((row.method, row.task, before, after))
    return changes
