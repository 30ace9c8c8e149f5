"""What a report is of: the runs, what is missing, the tables, and what to know before them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from isotrain.reporting.mixture import mixtures
from isotrain.reporting.table import Line, table_lines
from isotrain.studies.definition import Study
from isotrain.studies.identity import arms_on_record, changes
from isotrain.studies.plan import Job
from isotrain.studies.results import Gap, Run, collect

WITHOUT = "without degenerate"  # the name of the tables that leave such runs out


class Findings(NamedTuple):
    """A study with what it has left so far."""

    study: Study
    runs: Sequence[Run]
    gaps: Sequence[Gap]
    tables: Mapping[str, Sequence[Line]]  # `all`, and `WITHOUT` where there are such runs
    n_planned: int
    changes: Sequence[str] = ()  # of the study since its first run started


def find(study: Study, jobs: Sequence[Job], folder: Path) -> Findings:
    """What the runs of a study have left, compared; `folder` has its `study.json`."""
    runs, gaps = collect(jobs)
    recorded = {task: arms_on_record(folder, task) for task in study.tasks} if runs else {}
    tables = {"all": table_lines(study, runs, gaps, recorded)}
    sound = [run for run in runs if not run.degenerate]
    if len(sound) < len(runs):
        degenerate = [run for run in runs if run.degenerate]
        tables[WITHOUT] = table_lines(study, sound, gaps, recorded, degenerate)
    return Findings(study, runs, gaps, tables, len(jobs), changes(folder, study))


def cautions(found: Findings, task: str | None = None) -> list[str]:
    """What to know before the numbers of a task, or of all: a text for each kind of fault.

    Failed runs, those that are not there yet, mixed versions, and changes of the study.
    """
    gaps = [gap for gap in found.gaps if task in (None, gap.task)]
    kinds: dict[str, Callable[[Gap], bool]] = {
        "Failed, so that the numbers are of the other seeds": lambda gap: gap.has_failed,
        "Not finished": lambda gap: not gap.has_failed,
    }
    texts = []
    for title, is_one in kinds.items():
        if told := _counted([gap for gap in gaps if is_one(gap)], len(found.study.seeds)):
            texts.append(f"{title}: {'; '.join(told)}")
    runs = [run for run in found.runs if task in (None, run.task)]
    texts += [f"{what}: {' | '.join(own)}" for what, own in mixtures(runs).items()]
    if found.changes:
        texts.append(f"Changed since the first run started: {'; '.join(found.changes)}")
    return texts


def _counted(gaps: Sequence[Gap], n_seeds: int) -> list[str]:
    """A text for each task, arm and reason.

    >>> lost = [Gap("wic", "a", seed, "failed (NonFiniteError)", True) for seed in (0, 3)]
    >>> _counted(lost, 8)
    ['wic, a: 2 of 8 seeds failed (NonFiniteError)']
    """
    found: dict[tuple[str, str, str], int] = {}
    for gap in gaps:
        place = (gap.task, gap.arm, gap.why)
        found[place] = found.get(place, 0) + 1
    return [f"{task}, {arm}: {n} of {n_seeds} seeds {why}" for (task, arm, why), n in found.items()]
