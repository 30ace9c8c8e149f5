"""Everything that the page of a study shows, as plain data: whoever has a study fills it in.

A number that is not defined is None; one that is not finite is drawn and printed as a gap.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from isotrain.runs.keys import CurveKey


class Named(NamedTuple):
    """A task or an arm, and the overrides that make it."""

    name: str
    overrides: tuple[str, ...] = ()


class Estimate(NamedTuple):
    """A mean over n seeds, sd (n − 1) and 95 % t interval; None where n = 1 or all are equal."""

    n: int
    mean: float
    sd: float | None = None
    low: float | None = None
    high: float | None = None


class Difference(NamedTuple):
    """An arm less the baseline over the seeds that both have, and what tests say of it."""

    estimate: Estimate
    p: float | None = None  # two-sided, of this comparison alone
    p_holm: float | None = None  # adjusted for the arms of this task and score
    method: str = ""  # of p: t | permutation
    p_equivalent: float | None = None  # that it lies outside ± margin; None without a margin
    n_for_a_point: int | None = None  # seeds that would show 0.01 with power .8 at this sd, about


class OverRows(NamedTuple):
    """A difference with its 95 % interval for other rows and other seeds."""

    mean: float
    low: float
    high: float
    n_rows: int
    n_seeds: int


class ScoreRow(NamedTuple):
    """One value of one arm on one task over its seeds; NaN over n = 0 where all are left out."""

    task: str
    score: str  # a key: test/accuracy, or isotropy/<metric>/<where>/<view>
    arm: str
    n_rows: str  # N that the value is of, as text: 638, or "638 or 640" where runs differ
    own: Estimate
    difference: Difference | None = None  # None for the baseline, and where no seed is shared
    over_rows: OverRows | None = None
    published: float | None = None  # the value of somebody else, in the same unit
    n_failed: int = 0  # seeds without this value because training failed
    best_of: str = ""  # evaluations that each run's value is the best of; "" where not selected
    notes: tuple[str, ...] = ()  # said of the arm below the table
    degenerate: str = ""  # how many runs behind the difference are: nothing is claimed of it


class StudyRun(NamedTuple):
    """A finished run."""

    task: str
    arm: str
    seed: int
    values: Mapping[str, float]  # by key: scores, and isotropy of every cloud at the end
    degenerate: str = ""  # why it is, in words
    code: str = ""  # version: short commit, with + where the tree was changed
    finished_at: str = ""
    folder: str = ""  # as a reader shall see it, such as wic/none-0123456789


class Point(NamedTuple):
    """A mean over n seeds at a step, with its 95 % t interval where n > 1."""

    step: float
    mean: float
    low: float | None
    high: float | None
    n: int


class Curve(NamedTuple):
    """One metric of one cloud and arm through training, by step."""

    task: str
    arm: str
    key: CurveKey
    points: tuple[Point, ...]
    n_rows: int = 0  # N of each evaluation; 0 where it is not known
    end: Estimate | None = None  # of the weights that the runs kept


class StudyContent(NamedTuple):
    """A study as its page shows it."""

    name: str
    baseline: str  # an arm
    tasks: tuple[Named, ...]
    arms: tuple[Named, ...]
    seeds: tuple[int, ...]
    rows: tuple[ScoreRow, ...]  # of all finished runs
    runs: tuple[StudyRun, ...]
    curves: tuple[Curve, ...] = ()
    rows_without_degenerate: tuple[ScoreRow, ...] = ()  # empty where no run is degenerate
    metrics: tuple[str, ...] = ()  # isotropy values that are shown, the most important first
    question: str = ""
    facts: tuple[str, ...] = ()  # short ones for the head: date, version, encoder
    overrides: tuple[str, ...] = ()  # of every run
    commands: tuple[str, ...] = ()  # that repeat the study, in their order
    margin: float | None = None  # of the equivalence test, in units of the score
    published_source: str = ""
    missing: tuple[str, ...] = ()  # a line for each run or score that is not there
    n_planned: int = 0  # runs that the study has, finished or not
    warnings: tuple[str, ...] = ()  # to know before the numbers: what failed, mixed code, changes
    methods: tuple[str, ...] = ()  # works that layers and objectives follow
    is_causal: bool = False  # the encoder sees only what is to the left
