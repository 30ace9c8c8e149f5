"""A study whose runs are played instead of trained: all else is as on the command line."""

import json
import os
import sys
from pathlib import Path

import pytest

from isotrain import cli
from isotrain.commands import sweeps
from isotrain.studies.record import read_plan
from tests.studies.played import STUDY, play


class Fake:
    """Where the study is, and how to start it.

    Attributes:
        started: folders of the runs that reached their launch, in order.
        failing: method and seed of a run: what it raises.
        changed: method and seed of a run: parts of its record to replace.
    """

    def __init__(self, root: Path, monkeypatch) -> None:
        self.file, self.runs = root / "few.yaml", root / "runs"
        self.folder = self.runs / "studies" / "few"
        self.file.write_text(STUDY)
        self.started, self.failing, self.changed = [], {}, {}
        self._patch = monkeypatch
        monkeypatch.setattr("isotrain.commands.train._run", self._play)

    def run(self, *more: str) -> int:
        """`isotrain run FILE` in this process."""
        return self.main("run", str(self.file), f"output_dir={self.runs}", *more)

    def main(self, *words: str) -> int:
        """The exit code of a command; the app changes its process."""
        with self._patch.context() as patch:
            patch.delenv("HYDRA_FULL_ERROR", raising=False)
            patch.setattr(sys, "argv", ["isotrain"])
            return cli.main(words)

    def says(self, **changed: str):
        """The same with other keys of the yaml file, as text."""
        lines = [line for line in STUDY.splitlines() if line.partition(":")[0] not in changed]
        lines += [f"{key}: {value}" for key, value in changed.items()]
        self.file.write_text("\n".join(lines))
        return self

    def planned(self, *arguments: str):
        """The runs of a call, and the call; nothing is launched.

        Arguments are those of the app; without any, of the study.
        """
        found = []

        def keep(call, study, file, jobs, only_list):
            found.append((call, jobs))
            return 0

        if not any(text.startswith("-") for text in arguments):
            own = [f"study={json.dumps(str(self.file))}"]
            arguments = ["-m", *own, f"output_dir={self.runs}", *arguments]
        with self._patch.context() as patch:
            patch.setattr(sweeps, "_run", keep)
            assert self.main("train", *arguments) == 0
        ((call, jobs),) = found
        return jobs, call

    @property
    def plan(self):
        """What is on record."""
        return read_plan(self.folder)

    def _play(self, cfg, overrides):
        self.started.append(f"{cfg.method}-{cfg.seed}")
        error = self.failing.get((cfg.method, cfg.seed))
        if callable(error):
            error()
        elif error is not None:
            raise error
        return play(cfg, **self.changed.get((cfg.method, cfg.seed), {}))


@pytest.fixture(autouse=True)
def without_page(monkeypatch):
    """Reports without their page, which takes seconds to draw; a module that wants it says so."""
    monkeypatch.setattr("isotrain.commands.report._draw", lambda *_: [])


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A study of one task, two methods and two seeds."""
    assert "RANK" not in os.environ
    return Fake(tmp_path, monkeypatch)
