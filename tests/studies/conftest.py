"""A study of three seeds whose runs are a small script instead of a training."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from isotrain.jobs.process import fresh
from tests.stand_in import OPENING, judged

STUDY = """
overrides: [encoder=tiny, source=demo]
tasks: {rte: [task=rte]}
arms: {none: [isotropy=none], mean: [isotropy=mean]}
baseline: none
seeds: [0, 1, 2]
"""
# Plays `isotrain run FILE`: notes what it does, and leaves a result like that of a run.
JOB = (
    OPENING
    + r"""
def stop(*_):
    note("stop")
    sys.exit(143)

signal.signal(signal.SIGTERM, stop if "STUBBORN" not in os.environ else signal.SIG_IGN)
note("start")
job = read_job()
cfg, arm, seed = job["config"], job["arm"], job["config"]["seed"]
name, folder = Path(sys.argv[1]).stem, folder_of(job)
deadline = time.monotonic() + 60
if name in os.environ.get("HOLD", "").split(","):
    while not Path(os.environ["JOURNAL"]).with_name("go").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
if "MEET" in os.environ:  # go on when a second run is at work
    while True:
        starts = [li for li in open(os.environ["JOURNAL"]) if li.startswith("start")]
        own = [li.split()[1] for li in starts].index(name)
        if len(starts) >= own + 2 - own % 2:
            break
        assert time.monotonic() < deadline
        time.sleep(0.02)
if name in os.environ.get("FAIL", "").split(","):
    print("first line", "the reason", sep="\n")
    sys.exit(3)
assert os.environ["OMP_NUM_THREADS"] == str(cfg["threads"])
accuracy = 0.5 + 0.01 * seed**2 + (0.1 + 0.002 * seed if arm == "mean" else 0.0)
isotropy = {
    f"isotropy/{metric}/{place}": value * (1 + seed / 10)
    for place in ("layer_01/tokens", "layer_02/tokens", "layer_02/cls", "pooled/before",
                  "pooled/after")
    for metric, value in (("isoscore", 0.2), ("partition", -3.0))
}
counts = {key.replace("isoscore", "n_rows"): 128.0 for key in isotropy if "isoscore" in key}
folder.mkdir(parents=True, exist_ok=True)
(folder / "predictions").mkdir(exist_ok=True)
for split, n_rows in (("dev", 1000), ("test", 500)):  # the first rows are right, the others wrong
    n_right = round(n_rows * (accuracy - (0.1 if split == "test" else 0.0)))
    lines = "".join(f"{k},{k % 2},{(k + (k >= n_right)) % 2}\n" for k in range(n_rows))
    (folder / "predictions" / f"{split}.csv").write_text("index,label,prediction\n" + lines)
rows = [{"step": step, **isotropy} for step in (0, 10)]
(folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
(folder / "result.json").write_text(json.dumps({
    "status": "finished", "monitor": "val/accuracy", "n_rows": {"dev": 1000, "test": 500},
    "arm": arm, "seed": seed, "config": cfg, "data": os.environ.get("DATA", "demo-v1-seed0"),
    "environment": {"git": os.environ.get("CODE", "0a1b2c3d4e5f"), "isotrain": "0.1.0"},
    "finished_at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime()),
    "headline": ["isoscore"],
    "scores": {"val/accuracy": accuracy, "val/loss": 0.7, "test/accuracy": accuracy - 0.1,
               **isotropy, **counts},
}))
note("end")
"""
)


class FakeStudy(NamedTuple):
    """Where a fake study lives, and how to start it."""

    file: Path
    runs: Path
    journal: Path
    command: list[str]

    @property
    def backend(self):
        """What starts its runs."""
        return fresh(self.command)

    @property
    def overrides(self) -> list[str]:
        """Its output folder."""
        return [f"output_dir={self.runs}"]

    @property
    def folder(self) -> Path:
        """Where its tables are."""
        return self.runs / "studies" / "three"

    def noted(self, what: str) -> list[str]:
        """The runs that noted `what`, in order."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return [line.split()[1] for line in lines if line.startswith(what)]

    def pids(self) -> dict[str, int]:
        """The process of every run that was started, by the run's name; of the newest start."""
        lines = self.journal.read_text().splitlines()
        starts = [line.split()[1:] for line in lines if line.startswith("start")]
        return {name: int(pid) for name, pid in starts}

    def release(self) -> FakeStudy:
        """Let the runs go on that are on hold."""
        self.journal.with_name("go").touch()
        return self

    def parent(self, n_jobs: int = 1) -> subprocess.Popen[str]:
        """`run_study` in a process of its own."""
        code = (
            "import sys, isotrain.reporting.report as report; report._draw = lambda *_: []; "
            "from isotrain.commands.plans import run_study; "
            "from isotrain.jobs.process import fresh; "
            f"sys.exit(run_study({str(self.file)!r}, {self.overrides!r}, {n_jobs}, "
            f"fresh({self.command!r})))"
        )
        line = [sys.executable, "-c", code]
        return subprocess.Popen(line, stdout=subprocess.PIPE, text=True, process_group=0)


@pytest.fixture(autouse=True)
def without_page(monkeypatch):
    """Reports without their page, which takes seconds to draw; a module that wants it says so."""
    monkeypatch.setattr("isotrain.reporting.report._draw", lambda *_: [])


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A study of one task, two arms and three seeds, and the script that plays its runs."""
    file, script = tmp_path / "three.yaml", tmp_path / "job.py"
    file.write_text(STUDY)
    script.write_text(JOB)
    command = [sys.executable, "-I", "-S", str(script)]
    study = FakeStudy(file, tmp_path / "runs", tmp_path / "journal", command)
    monkeypatch.setenv("JOURNAL", str(study.journal))
    monkeypatch.setattr("isotrain.studies.plan.check_command", judged)
    return study


def changed(**more):
    return lambda content: json.dumps(content | more)


@pytest.fixture(
    params=[
        *(lambda _: "", lambda content: json.dumps(content)[:-9], lambda _: "[]", lambda _: "null"),
        *(changed(overrides="x=1"), changed(overrides=[1]), changed(config_dir=["a"])),
        lambda content: json.dumps({k: v for k, v in content.items() if k != "overrides"}),
    ]
)
def damage_of_any(request):
    """Makes the text of a damaged `study.json`, `search.json` or `sweep.json` of its content."""
    return request.param


@pytest.fixture(
    params=[
        *(lambda _: "[]", lambda content: json.dumps(content)[:-9], changed(overrides=[1])),
        *(changed(file=3), changed(runs=[]), changed(runs={"rte-none": 1}), changed(shared=[1])),
        *(changed(history=[1]), changed(history={}), changed(history=[{"margin": 1}])),
    ]
)
def damaged(request):
    """Makes the text of a damaged `study.json` of its content."""
    return request.param
