"""Planned runs and run records, matched by what they compute, not by folder name."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig

from isotrain.config.compose import RunId, RunJob, recorded, run_id
from isotrain.jobs.progress import is_owned
from isotrain.jobs.stored import stored
from isotrain.runs.shapes import DamagedError


class Job(NamedTuple):
    """A planned run: of a study, a sweep, or the trial of a search."""

    task: str
    method: str
    seed: int
    of_pair: DictConfig  # configuration with any seed, shared and immutable
    id: RunId
    folder: Path  # `<output_dir>/<task>/<method>` until its record or data revision is known
    overrides: Sequence[str]
    rerun: bool = False
    data: str = ""  # planned data revision
    label: str = ""  # its name, instead of `<task>-<method>-seed<k>`
    search: str = ""  # that it is a trial of

    @property
    def cfg(self) -> DictConfig:
        """Its configuration, built on demand: a study may have thousands of runs."""
        return seeded(self.of_pair, self.seed)

    @property
    def name(self) -> str:
        """Its name, for log, job file and messages."""
        return self.label or f"{self.task}-{self.method}-seed{self.seed}"

    def on_data(self, data: str) -> Job:
        """The job with its run folder for this revision of the data."""
        return self._replace(folder=self.folder.parents[1] / self.id.folder(data), data=data)

    def as_run(self) -> RunJob:
        """The job as given to its process."""
        return RunJob(self.cfg, self.method, self.overrides, self.search, self.data)


def job_of(cfg: DictConfig, method: str, overrides: Sequence[str], **more: Any) -> Job:
    """The job of a configuration and its seed."""
    own = run_id(recorded(cfg), method)
    folder = Path(str(cfg.output_dir)) / own.task / method
    return Job(own.task, method, cfg.seed, cfg, own, folder, overrides, **more)


def seeded(cfg: DictConfig, seed: int) -> DictConfig:
    """A copy of a configuration with another seed."""
    copy = deepcopy(cfg)
    copy.seed = seed
    return copy


class Record(NamedTuple):
    """The identity of a run according to its `result.json`."""

    id: RunId
    folder: Path
    is_finished: bool
    when: tuple[str, int]  # end time, and time of the last write
    data: str  # its data revision
    seed: int
    search: str  # that it is a trial of; else empty


class Archive:
    """The records of all runs below an output folder, `<task>/<run>/result.json`.

    `folder` is that of a plan there, such as `<output_dir>/studies/<name>`, wherever it is now.
    """

    def __init__(self, folder: Path) -> None:
        self.damaged: list[str] = []  # unreadable records, with the reason
        self._records: dict[tuple[str, str], list[Record]] = {}
        for path in sorted(folder.absolute().parents[1].glob("*/*/result.json")):
            found = _read(path, path.stat().st_mtime_ns)
            if isinstance(found, str):
                self.damaged.append(found)
            elif found is not None:
                self._records.setdefault((found.id.method, found.id.content), []).append(found)

    def of(self, run: RunId) -> list[Record]:
        """The records of a run: running ones first, then finished ones, then the newest.

        There are several if its data have changed. If any read its data where the run would read it
        now, the others belong to other runs: runs may differ in that alone.
        """
        found = self._records.get((run.method, run.content), [])
        found = [one for one in found if one.id.reads == run.reads] or found
        return sorted(
            found,
            key=lambda one: (is_owned(one.folder), one.is_finished, one.when),
            reverse=True,
        )

    @property
    def records(self) -> list[Record]:
        """All of them."""
        return [one for own in self._records.values() for one in own]

    def state(self, method: str, content: str) -> str:
        """`finished` or `begun` for a run of this method and content; else empty."""
        found = self._records.get((method, content), [])
        return "finished" if any(one.is_finished for one in found) else "begun" if found else ""


def locate(jobs: Sequence[Job], archive: Archive) -> list[Job]:
    """The jobs with the folders of their existing records.

    Records of data read from another location count if no job of the task has one from its current
    location. Then only those of the same revisions, and of no job of the plan, count: data may have
    moved.
    """
    found = [(job, archive.of(job.id)) for job in jobs]
    reads = {job.id.reads for job in jobs}
    known: dict[str, set[str]] = {job.id.task: set() for job in jobs}  # revisions there now
    for job, own in found:
        known[job.id.task] |= {one.data for one in own if one.id.reads == job.id.reads}

    def is_own(record: Record, job: Job) -> bool:
        here = known[job.id.task]
        has_moved = record.id.reads not in reads and record.data in here
        return not here or record.id.reads == job.id.reads or has_moved

    kept = [(job, [one for one in own if is_own(one, job)]) for job, own in found]
    return [job._replace(folder=own[0].folder) if own else job for job, own in kept]


@cache
def _read(path: Path, written_ns: int) -> Record | str | None:
    """The record of a file, or why it is damaged; None if it does not belong to a run."""
    result, damage, _ = stored(path.parent)
    if damage:
        return damage
    if not result or "analysis" in result:
        return None
    try:
        own = run_id(result["config"], result["method"])
    except DamagedError as error:
        return str(error)
    when = str(result.get("finished_at", "")), written_ns
    data, is_finished = str(result.get("data")), result["status"] == "finished"
    seed, search = result["config"].get("seed", 0), str(result.get("search") or "")
    return Record(own, path.parent, is_finished, when, data, seed, search)
