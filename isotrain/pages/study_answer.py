"""What the numbers of a study support and what they do not, in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple

from isotrain.pages.study_content import ScoreRow, StudyContent
from isotrain.pages.study_words import (
    best_of_text,
    difference_text,
    interval,
    is_score,
    p_text,
    rows_text,
    score_name,
    signed,
    value_text,
)
from isotrain.runs.keys import VIEWS, parse_key

LEVEL = 0.05  # of a test
POINT = 0.01  # the difference that numbers of seeds are given for
MOST_NAMED = 6  # arms of a sentence
Verdict = Literal["higher", "lower", "equivalent", "undecided", "untested", "no claim"]
SCORES: dict[Verdict, str] = {
    "higher": "scores higher",
    "lower": "scores lower",
    "equivalent": "scores the same",
    "undecided": "has an undecided score",
    "untested": "has no tested score",
    "no claim": "has a score without a claim",
}
CAUTION = (
    "Intervals are 95 % t intervals over seeds: of training anew on the same data, not of other "
    "data. A p-value is corrected by Holm's method for the arms of one task and one value, not for "
    "several tasks. Undecided is not equal. Nothing is shown beyond this encoder, these tasks and "
    "these settings."
)


class TaskAnswer(NamedTuple):
    """What is known of one task."""

    title: str
    items: list[str]


def task_score(content: StudyContent, task: str) -> str:
    """The score that the answer is about: on test where that was measured; "" without any."""
    keys = [row.score for row in content.rows if row.task == task and is_score(row.score)]
    return next((key for key in keys if key.startswith("test/")), next(iter(keys), ""))


def verdict(row: ScoreRow) -> Verdict:
    """What tests at 5 % say of a difference: first Holm's, then that of equivalence.

    Nothing is claimed where runs of the arm or of the baseline are degenerate.

    >>> from isotrain.pages.study_content import Difference, Estimate
    >>> lower = Difference(Estimate(8, -0.03, 0.01, -0.04, -0.02), 0.001, 0.003, "permutation")
    >>> verdict(ScoreRow("wic", "test/accuracy", "istar", "1400", Estimate(8, 0.6), lower))
    'lower'
    """
    found = row.difference
    if found is not None and row.degenerate:
        return "no claim"
    if found is None or found.p_holm is None or not math.isfinite(found.estimate.mean):
        return "untested"
    if found.p_holm < LEVEL:
        return "higher" if found.estimate.mean > 0 else "lower"
    return "equivalent" if _is_equivalent(row) else "undecided"


def summary(content: StudyContent) -> str:
    """Which arms score higher, lower, the same, or cannot be told, over all tasks."""
    found: dict[Verdict, dict[str, list[str]]] = {}
    for task in content.tasks:
        for row in _compared(content, task.name):
            found.setdefault(verdict(row), {}).setdefault(row.arm, []).append(task.name)
    if not set(found) - {"untested", "no claim"}:
        return (
            f"Nothing can be said of any arm against the baseline {content.baseline}: that takes "
            "at least two seeds that both have, with differences that are not all equal"
            f"{', and no degenerate runs' if 'no claim' in found else ''}."
        )

    def arms(kind: Verdict) -> str:
        parts = [
            f"{arm} ({', '.join(tasks)})" if len(content.tasks) > 1 else arm
            for arm, tasks in found.get(kind, {}).items()
        ]
        return _listed(parts) or "no arm"

    texts = [f"Higher score than the baseline {content.baseline}: {arms('higher')}"]
    texts.append(f"Lower: {arms('lower')}")
    if content.margin:
        texts.append(f"The same within ±{content.margin:g}: {arms('equivalent')}")
    texts.append(f"Undecided: {arms('undecided')}")
    if "untested" in found:
        texts.append(f"Not tested: {arms('untested')}")
    if "no claim" in found:
        texts.append(f"No claim, for degenerate runs: {arms('no claim')}")
    return f"{'. '.join(texts)}."


def task_answers(content: StudyContent) -> list[TaskAnswer]:
    """For each task: which arms score differently, the same, or cannot be told yet; isotropy."""
    found = []
    for task in content.tasks:
        key = task_score(content, task.name)
        if not key:
            found.append(TaskAnswer(task.name, ["No score of a finished run."]))
            continue
        base = [r for r in _rows(content, task.name, key) if r.arm == content.baseline]
        known = f"no finished run of the baseline {content.baseline}"
        if base:
            own = f"baseline {content.baseline} {value_text(base[0].own.mean, key)}"
            best = best_of_text({row.arm: row.best_of for row in _rows(content, task.name, key)})
            lost = _failed(base[0], content)
            seeds = f"n = {_count(base[0].own.n, 'seed')}"
            parts = rows_text(base[0].n_rows), best, seeds, own, lost
            known = ", ".join(filter(None, parts))
        items = _score_items(content, task.name) + _isotropy_items(content, task.name)
        found.append(TaskAnswer(f"{task.name}: {score_name(key)} ({known})", items))
    return found


def faults(content: StudyContent) -> list[str]:
    """What makes a study no whole one, or its runs not comparable."""
    found, runs = [], content.runs
    if (lost := content.n_planned - len(runs)) > 0:
        found.append(f"{lost} of {content.n_planned} runs have no result.")
    if bad := [run for run in runs if run.degenerate]:
        arms = _listed(list(dict.fromkeys(run.arm for run in bad)))
        found.append(
            f"{len(bad)} of {_count(len(runs), 'run')} are degenerate ({arms}), and count in all "
            f"numbers unless said otherwise. {_without(content)}"
        )
    if len(content.seeds) == 1:
        found.append("One seed: no spread is known, and no difference can be told from chance.")
    return [*found, *(f"{text.rstrip('.')}." for text in content.warnings)]


def _without(content: StudyContent) -> str:
    """Whether verdicts change where degenerate runs are left out."""
    if not content.rows_without_degenerate:
        return "Without them there is nothing to compare."
    others = {(row.task, row.score, row.arm): row for row in content.rows_without_degenerate}
    changed, words = [], {"untested": "not tested"}
    for task in content.tasks:
        for row in _compared(content, task.name):
            other = others.get((row.task, row.score, row.arm))
            before, after = verdict(row), verdict(other) if other else "untested"
            if before != after:
                ends = words.get(after, after), words.get(before, before)
                changed.append(f"{row.arm} on {row.task} “{ends[0]}” in place of “{ends[1]}”")
    if not changed:
        return "Without them no verdict changes."
    return f"Without them the verdict is, for {_listed(changed)}."


def _score_items(content: StudyContent, task: str) -> list[str]:
    rows = sorted(_compared(content, task), key=lambda row: -abs(_mean(row)))
    titles: dict[Verdict, str] = {
        "higher": "Higher",
        "lower": "Lower",
        "equivalent": f"The same within ±{content.margin or 0:g}",
        "undecided": "Undecided",
        "untested": "Not tested",
        "no claim": "No claim",
    }
    items = []
    for kind, title in titles.items():
        if told := _listed(_told(row, content) for row in rows if verdict(row) == kind):
            items.append(f"{title}: {told}.")
    of_others: dict[str, list[str]] = {}
    for row in content.rows:
        if row.task == task and row.published is not None:
            ends = (value_text(value, row.score) for value in (row.published, row.own.mean))
            of_others.setdefault(row.score, []).append(f"{row.arm} {', here '.join(ends)}")
    source = f" ({content.published_source})" if content.published_source else ""
    for score, texts in of_others.items():
        items.append(f"Published {score_name(score)}{source}: {_listed(texts)}.")
    return items


def _told(row: ScoreRow, content: StudyContent) -> str:
    """An arm with its difference, and what belongs to its verdict."""
    if verdict(row) == "untested" or row.difference is None:
        reasons = filter(None, [_why_untested(row), _failed(row, content)])
        return f"{row.arm} ({', '.join(reasons)})"
    found, kind = row.difference, verdict(row)
    text = f"{row.arm} {difference_text(found.estimate, row.score)}"
    if kind == "no claim":
        return ", ".join(filter(None, [text, row.degenerate, _failed(row, content)]))
    if kind == "equivalent":
        text += f", equivalence p {_equals(found.p_equivalent)}"
    else:
        text += f", p {_equals(found.p_holm)}"
    if kind == "undecided" and (n := found.n_for_a_point) is not None:
        text += f", about {n} seeds would show {POINT:g}"
        text += f", and {found.estimate.n} were run" if n <= found.estimate.n else ""
    if kind in ("higher", "lower"):
        text += f", yet within ±{content.margin:g}" if _is_equivalent(row) else ""
        if (over := row.over_rows) and over.low <= 0 <= over.high:
            ends = found.estimate._replace(low=over.low, high=over.high)
            text += f", but {interval(ends, row.score, sign=True)} over rows and seeds"
    return ", ".join(filter(None, [text, _failed(row, content)]))


def _failed(row: ScoreRow, content: StudyContent) -> str:
    """How many seeds a number is not of because training failed."""
    if not row.n_failed:
        return ""
    n = len(content.seeds)
    return f"{row.n_failed} of {_count(n, 'seed')} failed: these numbers are of the others"


def _isotropy_items(content: StudyContent, task: str) -> list[str]:
    """How isotropy moved in the first cloud that the table has, and what the score did there."""
    rows = [row for row in content.rows if row.task == task and not is_score(row.score)]
    of_layers = [row for row in rows if (p := parse_key(row.score)) and p.view in VIEWS]
    key = next((row.score for row in of_layers or rows), "")
    base = [row for row in rows if row.score == key and row.arm == content.baseline]
    found = [row for row in rows if row.score == key and row.arm != content.baseline]
    if not found:
        return []
    scores = {row.arm: SCORES[verdict(row)] for row in _compared(content, task)}
    texts = [f"{score_name(key)}: baseline {value_text(base[0].own.mean, key) if base else '–'}"]
    for kind in ("higher", "lower"):
        arms = _listed(
            f"{row.arm} {difference_text(row.difference.estimate, key)}, "
            f"which {scores.get(row.arm, SCORES['untested'])}"
            for row in found
            if verdict(row) == kind and row.difference
        )
        texts += [f"{kind.capitalize()} with {arms}"] if arms else []
    if barred := _listed(row.arm for row in found if verdict(row) == "no claim"):
        texts.append(f"No claim, for degenerate runs: {barred}")
    if len(texts) == 1:
        tested = any(verdict(row) != "untested" for row in found)
        texts.append("No arm is shown to change it" if tested else "No change of it can be tested")
    return [f"{'. '.join(texts)}."]


def _equals(p: float | None) -> str:
    text = p_text(p)
    return text if text.startswith("<") else f"= {text}"


def _why_untested(row: ScoreRow) -> str:
    if row.difference is None:
        return "no seed in common with the baseline"
    own = row.difference.estimate
    if not math.isfinite(own.mean):
        return "no finite difference"
    if own.n == 1:
        return f"{signed(own.mean, row.score)} on one seed"
    return f"{signed(own.mean, row.score)} on every seed" if own.sd == 0 else "no test is defined"


def _is_equivalent(row: ScoreRow) -> bool:
    """Whether a score lies within the margin; that is stated of scores alone."""
    p = row.difference.p_equivalent if row.difference and is_score(row.score) else None
    return p is not None and p < LEVEL


def _compared(content: StudyContent, task: str) -> list[ScoreRow]:
    """The rows of the task's score, of every arm but the baseline."""
    found = _rows(content, task, task_score(content, task))
    return [row for row in found if row.arm != content.baseline]


def _rows(content: StudyContent, task: str, key: str) -> list[ScoreRow]:
    return [row for row in content.rows if (row.task, row.score) == (task, key)]


def _mean(row: ScoreRow) -> float:
    mean = row.difference.estimate.mean if row.difference else 0.0
    return mean if math.isfinite(mean) else 0.0


def _listed(texts: Iterable[str]) -> str:
    """The first few of some texts, and how many more there are."""
    found = list(texts)
    more = len(found) - MOST_NAMED
    return "; ".join(found[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")


def _count(n: int, noun: str) -> str:
    """A number of things.

    >>> _count(1, "seed"), _count(2, "seed")
    ('1 seed', '2 seeds')
    """
    return f"{n:,} {noun}{'s' * (n != 1)}"
