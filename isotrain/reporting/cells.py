"""What stands in the cells of a study's tables and below them, in markdown and in LaTeX."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from isotrain.pages.study_words import best_of_text, by_arm
from isotrain.reporting.statistics import LEVEL, Summary, smallest_p
from isotrain.reporting.table import Line
from isotrain.studies.definition import Study
from isotrain.studies.results import Run

HEADING = ("arm", "n", "mean", "sd", "95 % interval", "difference", "95 % interval", "p Holm")
PUBLISHED = ("arm", "published", "difference", "here", "n", "difference here")
MOST_LETTERS = 24  # of the name of an arm in a table
MARK = " †"  # behind an arm whose difference says nothing: of degenerate runs
WHOLE = 10  # below it numbers have four decimals


def main_cells(line: Line, name: str) -> tuple[str, ...]:
    """Mean, spread and interval of an arm, its difference, under `HEADING`."""
    own = (marked(name, line), str(line.own.n), *spread(line.own))
    difference, _, around = spread(line.comparison.difference) if line.comparison else ("", "", "")
    return (*own, difference, around, p_text(line.p_holm))


def marked(name: str, line: Line) -> str:
    """The name of an arm, with a mark where runs behind its numbers are degenerate."""
    return name + MARK if line.degenerate else name


def detail_cells(
    lines: Sequence[Line], names: Mapping[str, str], left_out: Sequence[str] = ()
) -> list[tuple[str, ...]]:
    """What else is known of the differences, a heading first; empty where there is none.

    Columns are `left_out` by name, and where no line fills them, as equivalence without a margin.
    """
    of_tests = ("pairs", "p", "test", "p equivalent", "seeds for a point")
    cells: list[tuple[str, ...]] = []
    for line in lines:
        if (found := line.comparison) is None:
            continue
        own = [marked(names[line.arm], line), str(found.difference.n)]
        own += [p_text(found.p), found.method, p_text(found.p_equivalent)]
        own += ["" if line.n_for_a_point is None else f"about {line.n_for_a_point:,}"]
        cells.append((*own, _interval(line.rows.low, line.rows.high) if line.rows else ""))
    columns = zip(("arm", *of_tests, "over rows and seeds"), *cells, strict=True)
    filled = [column for column in columns if any(column[1:]) and column[0] not in left_out]
    return list(zip(*filled, strict=True)) if cells else []


def published_cells(study: Study, task: str, lines: Sequence[Line]) -> list[tuple[str, ...]]:
    """Published scores of a task beside the monitored ones here; empty where none are given.

    Lines below the heading `PUBLISHED`.
    """
    published = study.published.get(task, {})
    here = {line.arm: line for line in lines if line.score == monitor_of(lines)}
    base = published.get(study.baseline)
    cells: list[tuple[str, ...]] = []
    for arm, value in published.items():
        line = here.get(arm)
        gap = "" if base is None or arm == study.baseline else number(value - base)
        own = (number(line.own.mean), str(line.own.n)) if line else ("", "")
        difference = line.comparison.difference.mean if line and line.comparison else None
        cells.append(
            (arm, number(value), gap, *own, "" if difference is None else number(difference))
        )
    return cells


def names_of(study: Study, most: int = MOST_LETTERS) -> dict[str, str]:
    """Each arm as tables name it: a longer name is a number, so that they stay narrow."""
    return {arm: arm if len(arm) <= most else f"arm {k}" for k, arm in enumerate(study.arms, 1)}


def heading(lines: Sequence[Line]) -> str:
    """What the lines of one score are of."""
    best = best_of_text({line.arm: line.best_of for line in lines})
    return ", ".join(filter(None, [lines[0].score, f"N = {n_rows_of(lines)}", best]))


def told_below(lines: Sequence[Line], n_seeds: int) -> list[str]:
    """What is said below the table of one score, each text with the arms that it is of."""
    return by_arm({line.arm: notes_of(line, n_seeds) for line in lines})


def notes_of(line: Line, n_seeds: int) -> list[str]:
    """What an arm's numbers do not say: failed seeds, why an interval is missing, what is lost."""
    notes = []
    if not line.own.n:
        notes.append("every run is degenerate, and left out here")
    if line.degenerate:
        notes.append(f"{line.degenerate}{': no claim' if line.comparison else ''} ({MARK.strip()})")
    if line.n_failed:
        n = f"{line.n_failed} of {n_seeds} seeds"
        notes.append(f"{n} failed; these numbers are of the others")
    if line.why_no_rows:
        notes.append(f"no interval over rows and seeds: {line.why_no_rows}")
    if line.rows and line.rows.n_undefined:
        n = f"{line.rows.n_undefined} resamples of rows"
        notes.append(f"{n} are left out, in which the score is not defined")
    return [*notes, reach_note(line)] if is_out_of_reach(line) else notes


def reach_note(line: Line) -> str:
    """What is said of an arm whose differences could not be found."""
    assert line.comparison is not None
    return (
        f"{line.comparison.difference.n} pairs among {line.n_comparisons} comparisons cannot reach "
        f"p Holm < {LEVEL:g} by flips of signs, whatever the difference"
    )


def is_out_of_reach(line: Line) -> bool:
    """Whether no difference could be found: flips of so few signs have no p below 0.05/m."""
    if line.comparison is None or line.comparison.method != "permutation":
        return False
    return smallest_p(line.comparison.difference.n) * line.n_comparisons >= LEVEL


def monitor_of(lines: Sequence[Line]) -> str:
    """The monitored score of the lines of one task, which is of dev."""
    return next((line.score for line in lines if line.score.startswith("val/")), "")


def n_rows_of(lines: Sequence[Line]) -> str:
    """The N behind the lines of one score; several numbers where runs differ."""
    return " or ".join(dict.fromkeys(line.n_rows for line in lines))


def collapsed(runs: Sequence[Run]) -> list[str]:
    """A text for every degenerate run, with the reason.

    >>> collapsed([Run("rte", "none", 0, {}, {}, "one class"), Run("rte", "none", 1, {}, {})])
    ['rte, none, seed 0: one class']
    """
    return [
        f"{run.task}, {run.arm}, seed {run.seed}: {run.degenerate}"
        for run in runs
        if run.degenerate
    ]


def spread(summary: Summary) -> tuple[str, str, str]:
    """Mean, standard deviation and interval, empty where they are not defined."""
    sd = "" if summary.sd is None else number(summary.sd)
    return number(summary.mean), sd, _interval(summary.low, summary.high)


def number(value: float) -> str:
    """Four decimals, or five digits from 10 on; no minus zero; nothing for NaN.

    >>> number(0.61254), number(-1e-9), number(-312.3456), number(math.nan)
    ('0.6125', '0.0000', '-312.35', '')
    """
    if math.isnan(value):
        return ""
    return f"{value:z.4f}" if abs(value) < WHOLE else f"{value:.5g}"


def p_text(p: float | None) -> str:
    """A p value with three decimals.

    >>> p_text(0.0312), p_text(1e-5), p_text(None)
    ('0.031', '< 0.001', '')
    """
    return "" if p is None else "< 0.001" if p < 0.001 else f"{p:.3f}"


def _interval(low: float | None, high: float | None) -> str:
    return "" if low is None or high is None else f"{number(low)} to {number(high)}"
