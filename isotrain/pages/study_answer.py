"""Conclusions that a study does and does not support, in sentences."""

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from isotrain.console import counted
from isotrain.results.frame import ALL, UNTRAINED, WITHOUT, Row, is_score
from isotrain.results.numbers import interval, margin_text, p_equals, score_number, signed
from isotrain.results.result import Result, cautions
from isotrain.results.statistics import FEWEST_SEEDS, LEVEL
from isotrain.results.words import BOTH, caption, difference_text, failed_text, score_name
from isotrain.runs.keys import VIEWS, parse_key

MOST_NAMED = 6  # methods in one sentence
Verdict = Literal["higher", "lower", "equivalent", "undecided", "untested", "no claim"]
SCORES: dict[Verdict, str] = {
    "higher": "scores higher",
    "lower": "scores lower",
    "equivalent": "scores the same",
    "undecided": "has an undecided score",
    "untested": "has no tested score",
    "no claim": "has a score without a claim",
}
NAMES: dict[Verdict, str] = {
    "higher": "higher",
    "lower": "lower",
    "equivalent": "the same",
    "undecided": "undecided",
    "untested": "not tested",
    "no claim": "no claim",
}
CAUTION = (
    "A 95 % CI is over seeds: of training anew on the same data (on another subset of them where "
    "data.n_train or data.fraction draws one), not of other data. p is "
    "Holm-corrected for the methods of one task and one score, not for several tasks. Undecided is "
    "not equal. Nothing is shown beyond this encoder, these tasks and these settings."
)


class TaskAnswer(NamedTuple):
    """Conclusions for one task."""

    title: str
    items: list[str]


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
    return "equivalent" if _is_equivalent(row) else "undecided"


def summary(result: Result) -> str:
    """Methods that score higher, lower or equivalently, or are undecided, over all tasks."""
    study = result.study
    found: dict[Verdict, dict[str, list[str]]] = {}
    for task in study.tasks:
        for row in _compared(result, task):
            found.setdefault(verdict(row), {}).setdefault(row.method, []).append(task)
    if not set(found) - {"untested", "no claim"}:
        return (
            f"Nothing can be said of any method against the baseline {study.baseline}; that takes "
            f"at least {FEWEST_SEEDS} seeds that both have, with differences that are not all equal"
            f"{', and no collapsed predictions' if 'no claim' in found else ''}."
        )

    def methods(kind: Verdict) -> str:
        return _listed(
            f"{method} ({', '.join(tasks)})" if len(study.tasks) > 1 else method
            for method, tasks in found.get(kind, {}).items()
        )

    missing = [kind for kind in ("higher", "lower") if kind not in found]
    texts = [
        f"No method is shown to score {' or '.join(missing)} than the baseline {study.baseline}"
    ]
    texts = texts if missing else []
    titles = _titles(result, *study.tasks)
    titles["higher"] = f"Higher score than the baseline {study.baseline}"
    titles["no claim"] = "No claim, for collapsed predictions"
    texts += [f"{title}: {methods(kind)}" for kind, title in titles.items() if kind in found]
    return f"{'. '.join(texts)}."


def task_answers(result: Result) -> list[TaskAnswer]:
    """For each task: methods that differ, are equivalent, or are undecided; and isotropy."""
    baseline, n_seeds = result.study.baseline, len(result.study.seeds)
    found = []
    for task in result.study.tasks:
        if not (key := task_score(result, task)):
            found.append(TaskAnswer(task, ["No score of a finished run."]))
            continue
        rows = result.table(task)[key]
        known = [caption(rows)]
        for row in rows:
            if row.method == baseline:
                own = f"baseline {baseline} {score_number(row.mean, key)}"
                known += [f"n = {counted(row.n, 'seed')}", *_references(rows), own]
                known += filter(None, [failed_text(row, n_seeds)])
        if len(known) == 1:
            known.append(f"no finished run of the baseline {baseline}")
        items = _score_items(result, task) + _isotropy_items(result, task)
        found.append(TaskAnswer(f"{task}: {', '.join(known)}", items))
    return found


def faults(result: Result) -> list[str]:
    """Why a study is incomplete, or its runs not comparable."""
    found, runs = [], result.runs
    if (lost := result.n_planned - len(runs)) > 0:
        found.append(f"{lost} of {result.n_planned} runs have no result.")
    if bad := [run for run in runs if run.degenerate]:
        methods = _listed(list(dict.fromkeys(run.method for run in bad)))
        found.append(
            f"{len(bad)} of {counted(len(runs), 'run')} have collapsed predictions "
            f"(methods: {methods}). They count in all numbers unless said otherwise, and nothing "
            "is claimed beside them. "
            f"{_without(result)}"
        )
    if len(result.study.seeds) == 1:
        found.append(
            "One seed: no spread is known, and no difference can be distinguished from chance."
        )
    return [*found, *(f"{text.rstrip('.')}." for text in cautions(result))]


def _references(rows: Sequence[Row]) -> list[str]:
    """Chance level and untrained value of one score."""
    known = [row for row in rows if not row.baseline and not row.method.startswith(f"{UNTRAINED},")]
    return [f"{row.method} {score_number(row.mean, row.score)}" for row in known]


def _titles(result: Result, *tasks: str) -> dict[Verdict, str]:
    """The title of each verdict, with the equivalence margin of the scores of some tasks."""
    rows = [row for task in tasks for row in _compared(result, task) if row.margin]
    margins = {margin_text(row.margin, row.score) for row in rows}
    within = margins.pop() if len(margins) == 1 else "the margin"
    titles = {kind: name.capitalize() for kind, name in NAMES.items()}
    return titles | {"equivalent": f"The same within {within}"}


def _without(result: Result) -> str:
    """Whether verdicts change if collapsed predictions are left out."""
    if WITHOUT not in result.kinds:
        return "Without these runs there is nothing to compare."
    others = {(r.task, r.score, r.method): r for r in result.rows if r.runs == WITHOUT}
    changed = []
    for task in result.study.tasks:
        for row in _compared(result, task):
            other = others.get((row.task, row.score, row.method))
            now, then = verdict(row), verdict(other) if other else "untested"
            if now != then:
                changed.append(f"{row.method} on {row.task} from “{NAMES[now]}” to “{NAMES[then]}”")
    if not changed:
        return "Leaving these runs out changes no verdict."
    return f"Leaving these runs out changes the verdict of {_listed(changed)}."


def _score_items(result: Result, task: str) -> list[str]:
    rows = sorted(_compared(result, task), key=lambda row: -abs(row.difference or 0))
    n_seeds = len(result.study.seeds)
    items = []
    for kind, title in _titles(result, task).items():
        if named := _listed(_row_text(row, n_seeds) for row in rows if verdict(row) == kind):
            items.append(f"{title}: {named}.")
    source = f" ({result.study.published.source})" if result.study.published else ""
    for score, own in result.table(task).items():
        texts = [
            f"{r.method} {score_number(r.published, score)}, here {score_number(r.mean, score)}"
            for r in own
            if r.published is not None
        ]
        items += [f"Published {score_name(score)}{source}: {_listed(texts)}."] if texts else []
    return items


def _row_text(row: Row, n_seeds: int) -> str:
    """A method with its difference and the evidence for its verdict."""
    kind, failed = verdict(row), failed_text(row, n_seeds)
    if kind == "untested":
        return f"{row.method} ({', '.join(filter(None, [_why_untested(row), failed]))})"
    parts = [f"{row.method} {difference_text(row)}"]
    if kind == "no claim":
        parts.append(row.collapsed)
    elif kind == "equivalent":
        parts.append(f"TOST p {p_equals(row.p_tost)}")
    else:
        parts.append(f"p {p_equals(row.p_holm)}")
    if kind == "undecided" and (n := row.seeds_needed) is not None:
        parts.append(f"about {n} seeds would show one point")
        parts += [f"and {row.pairs} were run"] if n <= (row.pairs or 0) else []
    if kind in ("higher", "lower"):
        parts += [f"yet within {margin_text(row.margin, row.score)}"] if _is_equivalent(row) else []
        if row.both_low is not None and row.both_low <= 0 <= (row.both_high or 0):
            parts.append(f"but {interval(row.both_low, row.both_high, row.score)} as {BOTH}")
    return ", ".join(filter(None, [*parts, failed]))


def _isotropy_items(result: Result, task: str) -> list[str]:
    """Change of isotropy at the first layer of the table and at the last output of a site."""
    keys = [key for key in result.table(task) if not is_score(key)]
    of_layers = [key for key in keys if (p := parse_key(key)) and p.view in VIEWS]
    outputs = [key for key in keys if (p := parse_key(key)) and p.view == "after"]
    chosen = dict.fromkeys([*of_layers[:1], *outputs[-1:]]) or keys[:1]
    return [text for key in chosen for text in _isotropy_item(result, task, key)]


def _isotropy_item(result: Result, task: str, key: str) -> list[str]:
    table, baseline = result.table(task)[key], result.study.baseline
    rows = [row for row in table if row.method != baseline]
    base = next((score_number(row.mean, key) for row in table if row.method == baseline), "–")
    if not rows:
        return []
    scores = {row.method: SCORES[verdict(row)] for row in _compared(result, task)}
    texts = [f"{score_name(key)}: baseline {base}"]
    for kind in ("higher", "lower"):
        methods = _listed(
            f"{row.method} {difference_text(row)}, "
            f"which {scores.get(row.method, SCORES['untested'])}"
            for row in rows
            if verdict(row) == kind
        )
        texts += [f"{kind.capitalize()} with {methods}"] if methods else []
    if barred := _listed(row.method for row in rows if verdict(row) == "no claim"):
        texts.append(f"No claim, for collapsed predictions: {barred}")
    if len(texts) == 1:
        tested = any(verdict(row) != "untested" for row in rows)
        texts.append("No method is shown to change it" if tested else "No change can be tested")
    return [f"{'. '.join(texts)}."]


def _why_untested(row: Row) -> str:
    if row.difference is None:
        return "no seed in common with the baseline"
    if (row.pairs or 0) < FEWEST_SEEDS:
        seeds = counted(row.pairs or 0, "seed")
        return f"{signed(row.difference, row.score)} on {seeds}, too few for a test"
    return f"{signed(row.difference, row.score)} on every seed"


def _is_equivalent(row: Row) -> bool:
    """Whether a score is equivalent within the margin; only scores are tested."""
    return row.p_tost is not None and row.p_tost < LEVEL


def _compared(result: Result, task: str) -> list[Row]:
    """Result rows of the task's score, for every method except the baseline."""
    rows = result.table(task, ALL).get(task_score(result, task), [])
    return [row for row in rows if row.baseline and row.method != row.baseline]


def _listed(texts: Iterable[str]) -> str:
    """The first few texts, and how many more there are."""
    found = list(texts)
    more = len(found) - MOST_NAMED
    return "; ".join(found[:MOST_NAMED]) + (f"; and {more} more" if more > 0 else "")
