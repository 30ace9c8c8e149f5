"""What a study shows, as codes and numbers: a verdict for each method, faults of the whole."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from isotrain.results.findings import Finding, finding
from isotrain.results.frame import ALL, WITHOUT, Row, is_score
from isotrain.results.result import Result, cautions
from isotrain.results.runs import Run
from isotrain.results.series import sites_of
from isotrain.results.statistics import LEVEL
from isotrain.runs.keys import VIEWS, CurveKey, last_layer, parse_key, shown_view

Verdict = Literal["higher", "lower", "equivalent", "undecided", "untested", "no claim"]
FEWEST_FOR_MEANS = 4  # seeds, below which a reader sees the single scores
BESIDE = "mean_cosine"  # shown beside the first headline metric


class Line(NamedTuple):
    """A method in the answer for a task.

    Attributes:
        row: its score and difference.
        verdict: of the difference; "" of the baseline and of reference rows.
        is_baseline: whether the others are compared with it.
        singles: its scores by seed, where they are fewer than four.
        isotropy: its mean at each place of the answer; None where it was not measured.
    """

    row: Row
    verdict: Verdict | Literal[""]
    is_baseline: bool
    singles: list[float]
    isotropy: list[float | None]

    @property
    def is_equivalent(self) -> bool:
        """Whether the score is equivalent within the margin; only scores are tested."""
        return is_equivalent(self.row)

    @property
    def both_holds_0(self) -> bool:
        """Whether the CI over seeds and examples holds 0."""
        low, high = self.row.both_low, self.row.both_high
        return low is not None and high is not None and low <= 0 <= high


class TaskAnswer(NamedTuple):
    """The answer for a task: a line for each method; `score` is "" without a finished run."""

    task: str
    score: str
    places: list[CurveKey]
    lines: list[Line]

    @property
    def rows(self) -> list[Row]:
        """The rows of its score."""
        return [line.row for line in self.lines]

    def of(self, verdict: Verdict) -> list[str]:
        """The methods with a verdict."""
        return [line.row.method for line in self.lines if line.verdict == verdict]


def task_score(result: Result, task: str) -> str:
    """The score of the answer: on test if that was measured; "" without any."""
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


def task_answers(result: Result) -> list[TaskAnswer]:
    """For each task its methods, the baseline first, then by their difference; with isotropy."""
    found, baseline = [], result.study.baseline
    for task in result.study.tasks:
        key, runs = task_score(result, task), [run for run in result.runs if run.task == task]
        places = _places(runs, result.headline)
        lines = []
        for row in result.table(task).get(key, []):
            own = [run for run in runs if run.method == row.method]
            values = [_mean(own, place) for place in places]
            singles = [run.scores[key] for run in own if key in run.scores]
            is_baseline = row.method == baseline and bool(row.baseline)
            what = "" if is_baseline or not row.baseline else verdict(row)
            shown = singles if len(singles) < FEWEST_FOR_MEANS else []
            lines.append(Line(row, what, is_baseline, shown, values))
        lines.sort(key=lambda line: (not line.is_baseline, -(line.row.difference or -math.inf)))
        compared = [line for line in lines if line.row.baseline]
        references = [line for line in lines if not line.row.baseline]
        found.append(TaskAnswer(task, key, places, compared + references))
    return found


def _places(runs: Sequence[Run], headline: Sequence[str]) -> list[CurveKey]:
    """Where isotropy stands beside the score: the last layer and the output of the last site."""
    keys = dict.fromkeys(key for run in runs for key in run.scores)
    known = [p for key in keys if (p := parse_key(key))]
    first = next((metric for metric in headline if any(p.metric == metric for p in known)), "")
    found = []
    for metric in dict.fromkeys((first, BESIDE)):
        own = [p for p in known if p.metric == metric]
        layer = last_layer(own)
        view = shown_view({p.view for p in own if p.where == layer})
        found += [p for p in own if (p.where, p.view) == (layer, view) and view in VIEWS][:1]
        site = ["", *sites_of(own)][-1]
        found += [p for p in own if (p.where, p.view) == (site, "after")][:1]
    return sorted(found, key=lambda place: place.where)


def _mean(runs: Sequence[Run], place: CurveKey) -> float | None:
    values = [run.scores[place.text] for run in runs if place.text in run.scores]
    return math.fsum(values) / len(values) if values else None


def faults(result: Result) -> list[Finding]:
    """Why a study is incomplete, or its runs not comparable; macros of `findings.j2`."""
    found, runs = [], result.runs
    if (lost := result.n_planned - len(runs)) > 0:
        found.append(finding("runs_missing", n=lost, planned=result.n_planned))
    if bad := [run for run in runs if run.degenerate]:
        methods = list(dict.fromkeys(run.method for run in bad))
        values = {"n": len(bad), "of": len(runs), "methods": methods}
        changed = _without(result) if WITHOUT in result.kinds else None
        found.append(finding("collapsed", changed=changed, **values))
    if len(result.study.seeds) == 1:
        found.append(finding("one_seed"))
    return found + cautions(result, brief=True)


def _without(result: Result) -> list[tuple[str, str, Verdict, Verdict]]:
    """Verdicts that change if collapsed predictions are left out: method, task, from and to."""
    others = {(r.task, r.score, r.method): r for r in result.rows if r.runs == WITHOUT}
    changed = []
    for task in result.study.tasks:
        for row in result.table(task, ALL).get(task_score(result, task), []):
            other = others.get((row.task, row.score, row.method))
            now, then = verdict(row), verdict(other) if other else "untested"
            if row.baseline and row.method != row.baseline and now != then:
                changed.append((row.method, row.task, now, then))
    return changed
