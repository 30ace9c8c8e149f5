"""The tables of a study: every value of every arm, the runs, what was run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from isotrain.pages.run_tables import Table
from isotrain.pages.study_answer import task_score
from isotrain.pages.study_content import Named, ScoreRow, StudyContent, StudyRun
from isotrain.pages.study_words import (
    best_of_text,
    by_arm,
    cloud_name,
    interval,
    is_score,
    p_text,
    rows_text,
    score_name,
    signed,
    value_text,
)
from isotrain.runs.keys import parse_key

METHODS = {"t": "t", "permutation": "sign flips"}


def value_tables(
    rows: Sequence[ScoreRow], content: StudyContent, task: str, of_scores: bool
) -> list[Table]:
    """A table for each score of a task, or for each isotropy value; empty columns are left out."""
    own = [row for row in rows if row.task == task and is_score(row.score) == of_scores]
    found = []
    first, keys = task_score(content, task), dict.fromkeys(row.score for row in own)
    for key in sorted(keys, key=lambda key: key != first):
        of_key = [row for row in own if row.score == key]
        sizes = " or ".join(dict.fromkeys(row.n_rows for row in of_key if row.n_rows))
        head = _head(content)
        lines = [_cells(row) for row in of_key]
        best = best_of_text({row.arm: row.best_of for row in of_key})
        caption = ", ".join(filter(None, [task, score_name(key), rows_text(sizes), best]))
        found.append(Table(caption, *_without_empty(head, lines), key))
    return found


def notes_below(rows: Sequence[ScoreRow], task: str, of_scores: bool) -> list[str]:
    """What is said below these tables, each text with the value and the arms that it is of."""
    own = [row for row in rows if row.task == task and is_score(row.score) == of_scores]
    notes = []
    for key in dict.fromkeys(row.score for row in own):
        told = by_arm({row.arm: row.notes for row in own if row.score == key})
        notes += [f"{score_name(key)}: {text}." for text in told]
    return notes


def _head(content: StudyContent) -> list[str]:
    """A line break is where the browser may break it: no heading is taller than two lines."""
    within = f"p equivalent\n±{content.margin or 0:g}"
    return [
        *("arm", "n", "mean", "sd", "95 % interval", f"difference\nto {content.baseline}"),
        *("95 % interval", "pairs", "p", "p Holm", within, "seeds for\na point"),
        *("95 % interval,\nrows and seeds", "published"),
    ]


def _cells(row: ScoreRow) -> list[str]:
    key, own, found = row.score, row.own, row.difference
    arm = f"{row.arm} †" if row.degenerate else row.arm
    cells = [arm, str(own.n), value_text(own.mean, key), _sd(own.sd, key), interval(own, key)]
    if found is None:
        cells += [""] * 7
    else:
        about, method = found.estimate, METHODS.get(found.method, found.method)
        p = p_text(found.p)
        cells += [signed(about.mean, key), interval(about, key, sign=True), str(about.n)]
        cells += [f"{p} ({method})" if p and method else p, p_text(found.p_holm)]
        needed = found.n_for_a_point if is_score(key) else None  # a point is one of a score
        cells.append(p_text(found.p_equivalent) if is_score(key) else "")
        cells.append(f"about {needed}" if needed else "")
    over = row.over_rows
    ends = own._replace(low=over.low, high=over.high) if over else own
    cells.append(interval(ends, key, sign=True) if over else "")
    return [*cells, "" if row.published is None else value_text(row.published, key)]


def _sd(sd: float | None, key: str) -> str:
    return "" if sd is None else value_text(sd, key)


def _without_empty(
    head: Sequence[str], lines: Sequence[Sequence[str]]
) -> tuple[list[str], list[list[str]]]:
    """Without the columns that have nothing in any line.

    >>> _without_empty(["arm", "n", "p"], [["none", "3", ""], ["clip", "3", ""]])
    (['arm', 'n'], [['none', '3'], ['clip', '3']])
    """
    kept = [k for k in range(len(head)) if any(line[k] for line in lines)]
    return [head[k] for k in kept], [[line[k] for k in kept] for line in lines]


def run_tables(content: StudyContent) -> list[Table]:
    """The finished runs of each task with their scores and isotropy where a table has it.

    Why runs are degenerate is told by `reasons`.
    """
    found = []
    for task in content.tasks:
        runs = [run for run in content.runs if run.task == task.name]
        keys = list(dict.fromkeys(row.score for row in content.rows if row.task == task.name))
        head = ["arm", "seed", "degenerate", *map(_short_name, keys), "code"]
        head += ["finished, UTC", "folder"]
        lines = [_run_cells(run, keys) for run in runs]
        if lines:
            caption = f"{task.name}, {len(lines):,} finished runs"
            found.append(Table(caption, *_without_empty(head, lines)))
    return found


def _short_name(key: str) -> str:
    curve_key = parse_key(key)
    if curve_key is None:
        return score_name(key).replace(" on ", "\non ")
    sides = {"before": "in front", "after": "behind"}
    where = (
        f"{curve_key.where}, {sides[curve_key.view]}"
        if curve_key.view in sides
        else cloud_name(curve_key)
    )
    return f"{curve_key.metric.replace('_', ' ')}\n{where}"


def reasons(runs: Iterable[StudyRun]) -> list[str]:
    """Why runs are degenerate, each reason with the runs that it is of.

    >>> one = StudyRun("wic", "none", 0, {}, "one class")
    >>> reasons([one, one._replace(seed=3), one._replace(arm="clip"), one._replace(degenerate="")])
    ['Degenerate: wic, none, seeds 0, 3; wic, clip, seeds 0: one class.']
    """
    found: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        if run.degenerate:
            arms = found.setdefault(run.degenerate, {})
            arms.setdefault(f"{run.task}, {run.arm}", []).append(str(run.seed))
    told = {
        why: "; ".join(f"{arm}, seeds {', '.join(n)}" for arm, n in arms.items())
        for why, arms in found.items()
    }
    return [f"Degenerate: {where}: {why}." for why, where in told.items()]


def _run_cells(run: StudyRun, keys: Iterable[str]) -> list[str]:
    values = [value_text(run.values.get(key), key) for key in keys]
    rest = [run.code, _minute(run.finished_at), run.folder]
    return [run.arm, str(run.seed), "yes" if run.degenerate else "", *values, *rest]


def _minute(time: str) -> str:
    """A time to the minute; one that is not as a run writes it stays as it is.

    >>> _minute("2026-11-21T23:06:50+01:00"), _minute("")
    ('2026-11-21 22:06', '')
    """
    try:
        return f"{datetime.fromisoformat(time).astimezone(UTC):%Y-%m-%d %H:%M}"
    except ValueError:
        return time


def override_table(caption: str, found: Iterable[Named]) -> Table:
    """Names and the overrides that make them.

    >>> override_table("Arms", [Named("none", ("isotropy=none",))]).rows
    [['none', 'isotropy=none']]
    """
    return Table(caption, ["name", "overrides"], [[n.name, " ".join(n.overrides)] for n in found])
