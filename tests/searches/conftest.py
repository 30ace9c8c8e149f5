"""A search whose runs are a small script instead of a training."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import optuna
import pytest
from optuna.storages import RDBStorage

from isotrain.commands.plans import run_search
from isotrain.jobs.process import fresh
from isotrain.studies.search import load_search
from isotrain.studies.search_plan import plan_search
from isotrain.studies.trials import trials_of
from tests.stand_in import OPENING, judged

SEARCH = """
overrides: [task=rte, encoder=tiny, source=demo]
space:
  optimizer.lr: {low: 1.0e-5, high: 1.0e-1, log: true}
startup: 3
pruner: none
n_trials: 4
"""
# Plays `isotrain run FILE`: notes what it does, logs evaluations, and leaves a result. Its accuracy
# is highest at a learning rate of 1e-3 and rises over the evaluations.
JOB = (
    OPENING
    + r"""
import math

def stop(*_):
    note("stop")
    os._exit(143)

signal.signal(signal.SIGTERM, stop)
note("start")
job = read_job()
cfg, name, folder = job["config"], Path(sys.argv[1]).stem, folder_of(job)
assert os.environ["OMP_NUM_THREADS"] == str(cfg["threads"])
lr, seed = cfg["optimizer"]["lr"], cfg["seed"]
best = 0.9 - 0.1 * abs(math.log10(lr) + 3) - 0.01 * seed
folder.mkdir(parents=True, exist_ok=True)
deadline = time.monotonic() + 60
held = name in os.environ.get("HOLD", "").split(",")
while held and not Path(os.environ["JOURNAL"]).with_name("go").exists():
    assert time.monotonic() < deadline
    time.sleep(0.02)
if name in os.environ.get("FAIL", "").split(","):
    print("first line", "the reason | in words", sep="\n")
    sys.exit(int(os.environ.get("CODE_OF_FAILURE", 3)))
once = Path(os.environ["JOURNAL"]).with_name(f"{name}-was-killed")
if name in os.environ.get("KILLED_ONCE", "").split(",") and not once.exists():
    once.touch()
    if name == os.environ.get("DAMAGE"):
        (folder / "result.json").write_text('{"status": "fini')
    os.kill(os.getpid(), signal.SIGKILL)
if name in os.environ.get("DIVERGE", "").split(","):
    record = {"status": "failed", "error": "NonFiniteError: the loss is nan after 3 steps"}
    record |= {"arm": job["arm"], "config": cfg}
    (folder / "result.json").write_text(json.dumps(record))
    print("the loss is nan after 3 steps")
    sys.exit(1)
steps = int(os.environ.get("STEPS", 2))
with open(folder / "metrics.jsonl", "w") as rows:
    for step in range(steps + 1):
        value = 0.5 + (best - 0.5) * step / steps
        rows.write(json.dumps({"step": 10 * step, "time_s": 0.0, "val/accuracy": value}) + "\n")
        rows.flush()
        time.sleep(float(os.environ.get("PACE_S", 0)))
score = None if name in os.environ.get("NAN", "").split(",") else best
reason = "all one class" if name in os.environ.get("ALIKE", "").split(",") else ""
scores = {"val/accuracy": score, "val/loss": 1 - best, "test/accuracy": 0.123456}
lack = name == os.environ.get("LACK")
(folder / "result.json").write_text(json.dumps({
    "status": "finished", "monitor": "val/accuracy", "n_rows": {"dev": 277, "test": 9},
    **({} if lack else {"scores": scores}),
    "degenerate_reason": reason, "arm": job["arm"], "config": cfg,
    "environment": {"git": os.environ.get("CODE", "abc"), "isotrain": "0"},
}))
note("end")
"""
)


class FakeSearch(NamedTuple):
    """Where a fake search lives, and how to start it."""

    file: Path
    runs: Path
    journal: Path
    command: list[str]

    @property
    def folder(self) -> Path:
        """Where its trials are kept."""
        return self.runs / "tune" / "few"

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

    def plan(self, *overrides: str, **given: object):
        """As the command makes it."""
        return plan_search(
            load_search(str(self.file), **given), [f"output_dir={self.runs}", *overrides]
        )

    def run(self, n_jobs: int = 1, **given: object) -> int:
        """`run_search` in this process."""
        return run_search(self.plan(**given), n_jobs, fresh(self.command))

    def trials(self):
        """What the storage holds that no other trial replaced."""
        storage = RDBStorage(f"sqlite:///{self.folder / 'study.db'}")
        trials = trials_of(optuna.load_study(study_name="few", storage=storage))
        storage.engine.dispose()
        return trials

    def noted(self, what: str) -> list[str]:
        """The runs that noted `what`, in order."""
        lines = self.journal.read_text().splitlines() if self.journal.exists() else []
        return [line.split()[1] for line in lines if line.startswith(what)]

    def pids(self) -> list[int]:
        """The processes started so far."""
        return [int(line.split()[2]) for line in self.journal.read_text().splitlines()]

    def release(self) -> FakeSearch:
        """Let the runs go on that are on hold."""
        self.journal.with_name("go").touch()
        return self

    def parent(self, n_jobs: int = 1) -> subprocess.Popen[str]:
        """`run_search` in a process of its own."""
        code = (
            "import sys; from isotrain.studies.search import load_search; "
            "from isotrain.studies.search_plan import plan_search; "
            "from isotrain.commands.plans import run_search; "
            "from isotrain.jobs.process import fresh; "
            f"plan = plan_search(load_search({str(self.file)!r}), ['output_dir={self.runs}']); "
            f"sys.exit(run_search(plan, {n_jobs}, fresh({self.command!r})))"
        )
        line = [sys.executable, "-c", code]
        return subprocess.Popen(line, stdout=subprocess.PIPE, text=True, process_group=0)


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """A search for a learning rate, and the script that plays its runs."""
    file, script = tmp_path / "few.yaml", tmp_path / "job.py"
    file.write_text(SEARCH)
    script.write_text(JOB)
    command = [sys.executable, "-I", "-S", str(script)]
    search = FakeSearch(file, tmp_path / "runs", tmp_path / "journal", command)
    monkeypatch.setenv("JOURNAL", str(search.journal))
    monkeypatch.setattr("isotrain.studies.search_plan.check_command", judged)
    return search
