"""A study and a search whose runs are a small script instead of a training."""

from __future__ import annotations

import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import optuna
import pytest
from optuna.storages import RDBStorage

from isotrain.commands.plans import run_search
from isotrain.config.command import check_command
from isotrain.jobs.process import fresh
from isotrain.studies.definition import load_study
from isotrain.studies.plan import check_parts, plan_jobs
from isotrain.studies.search import load_search
from isotrain.studies.search_plan import check_search, plan_search
from isotrain.studies.trials import trials_of
from tests.studies.scripts import JOB, SEARCH, STUDY

OPENING_OF_A_CALL = """
import sys
from isotrain.commands.plans import *
from isotrain.commands.targets import *
from isotrain.jobs.process import fresh
from isotrain.studies.definition import load_study
from isotrain.studies.plan import check_parts, plan_jobs
from isotrain.reporting import report
from isotrain.studies import plan, search_plan
from isotrain.training.requirements import Late
report._draw = lambda *_: []
late = Late([], "accuracy", "max", "demo-v1-seed0")
plan.late_mistakes_apart = search_plan.late_mistakes_apart = lambda found: [late for _ in found]
"""


class Fake(NamedTuple):
    """Where the plan of fake runs is, and how to start it."""

    file: Path
    runs: Path
    journal: Path
    command: list[str]
    folder: Path

    @property
    def backend(self):
        """What starts its runs."""
        return fresh(self.command)

    @property
    def overrides(self) -> list[str]:
        """Its output folder."""
        return [f"output_dir={self.runs}"]

    def noted(self, what: str) -> list[str]:
        """The runs that noted `what`, in order."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return [line.split()[1] for line in lines if line.startswith(what)]

    def pids(self) -> dict[str, int]:
        """The process of every run that was started, by the run's name; of the newest start."""
        lines = self.journal.read_text().splitlines()
        starts = [line.split()[1:] for line in lines if line.startswith("start")]
        return {name: int(pid) for name, pid in starts}

    def release(self):
        """Let the runs go on that are on hold."""
        self.journal.with_name("go").touch()
        return self

    def at(self, runs: Path):
        """The same in another output folder."""
        kind, name = self.folder.parts[-2:]
        return self._replace(runs=runs, folder=runs / kind / name)

    def called(self, code: str) -> subprocess.Popen[str]:
        """A process that exits with what `code` computes; it need not import parts and data."""
        code = f"{OPENING_OF_A_CALL}sys.exit({code})"
        line = [sys.executable, "-c", code]
        return subprocess.Popen(line, stdout=subprocess.PIPE, text=True, process_group=0)


class FakeStudy(Fake):
    def jobs(self):
        """Its runs, planned and checked, with their folders."""
        return check_parts(plan_jobs(load_study(str(self.file)), self.overrides))

    def parent(self, n_jobs: int = 1) -> subprocess.Popen[str]:
        """`run_study` in a process of its own."""
        own = f"{str(self.file)!r}, {self.overrides!r}, {n_jobs}, fresh({self.command!r})"
        return self.called(f"run_study({own})")


class FakeSearch(Fake):
    def says(self, **changed: object) -> FakeSearch:
        """The same with other keys of the yaml file, as text."""
        text = SEARCH
        for key, value in changed.items():
            lines = [line for line in text.splitlines() if not line.startswith(f"{key}:")]
            text = "\n".join([*lines, f"{key}: {value}"]) + "\n"
        if "space" in changed:
            text = "\n".join(line for line in text.splitlines() if not line.startswith("  "))
        self.file.write_text(text)
        return self

    def planned(self, *overrides: str, **given: object):
        """As the command plans it."""
        search = load_search(str(self.file), **given)
        return plan_search(search, [*self.overrides, *overrides], file=str(self.file))

    def plan(self, *overrides: str, **given: object):
        """As it is started."""
        return check_search(self.planned(*overrides, **given))

    def run(self, n_jobs: int = 1, **given: object) -> int:
        """`run_search` in this process."""
        return run_search(self.planned(**given), n_jobs, self.backend)

    def trials(self):
        """What the storage holds that no other trial replaced."""
        storage = RDBStorage(f"sqlite:///{self.folder / 'study.db'}")
        trials = trials_of(optuna.load_study(study_name="few", storage=storage))
        storage.engine.dispose()
        return trials

    def states(self):
        """How each of them stands."""
        return [trial.state for trial in self.trials()]

    def parent(self, n_jobs: int = 1) -> subprocess.Popen[str]:
        """`run_search` in a process of its own."""
        named = f"Named({str(self.file)!r}, {self.overrides!r})"
        own = f"planned_search({named}), {n_jobs}, fresh({self.command!r})"
        return self.called(f"run_search({own})")


@pytest.fixture(autouse=True)
def without_page(monkeypatch):
    """Reports without their page, which takes seconds to draw; a module that wants it says so."""
    monkeypatch.setattr("isotrain.reporting.report._draw", lambda *_: [])


def fake_of(kind, name, text, tmp_path, monkeypatch):
    file, script = tmp_path / f"{name}.yaml", tmp_path / "job.py"
    file.write_text(text)
    script.write_text(JOB)
    command, runs = [sys.executable, "-I", "-S", str(script)], tmp_path / "runs"
    folder = runs / ("studies" if kind is FakeStudy else "tune") / name
    monkeypatch.setenv("JOURNAL", str(tmp_path / "journal"))
    for module in ("plan", "search_plan"):
        monkeypatch.setattr(f"isotrain.studies.{module}.check_command", judged)
    return kind(file, runs, tmp_path / "journal", command, folder)


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A study of one task, two methods and three seeds, and the script that plays its runs."""
    return fake_of(FakeStudy, "three", STUDY, tmp_path, monkeypatch)


@pytest.fixture
def few(tmp_path, monkeypatch):
    """A search for a learning rate, and the script that plays its runs."""
    return fake_of(FakeSearch, "few", SEARCH, tmp_path, monkeypatch)


known = {}  # commands that were judged before, which takes long, without their output folder


def judged(overrides, config_dir=None):
    """`check_command`, once for each command."""
    text = [override for override in overrides if not override.startswith("output_dir=")]
    if (*text, config_dir) not in known:
        known[*text, config_dir] = check_command(text, config_dir)
    cfg, mistakes = deepcopy(known[*text, config_dir])
    for override in overrides:
        if cfg is not None and override.startswith("output_dir="):
            cfg.output_dir = override.partition("=")[2]
    return cfg, mistakes


@pytest.fixture(
    params=[
        *(lambda _: "", lambda content: json.dumps(content)[:-9], lambda _: "[]"),
        lambda content: json.dumps(content | {"overrides": [1]}),
        lambda content: json.dumps({k: v for k, v in content.items() if k != "overrides"}),
    ]
)
def damaged(request):
    """Makes the text of a damaged `study.json` or `sweep.json` of its content."""
    return request.param
