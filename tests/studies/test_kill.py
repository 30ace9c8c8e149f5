"""Real studies: by any launcher, by hand, and killed in any way, they end with the same bytes."""

import json
import os
import re
import resource
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from isotrain.runs.files import read_records, read_result
from isotrain.runs.locks import owner
from tools.kill_points import untimed

pytestmark = pytest.mark.campaign
N_STEPS = 16
STUDY = f"""
overrides: [encoder=tiny, source=demo, trainer.accelerator=cpu, data.batch_size=16, report=false,
            monitor.max_rows=64, 'metric=[isoscore]', monitor.map_rows=0, checkpoint.final=false,
            checkpoint.every_steps=2, trainer.max_steps={N_STEPS}, data.n_dev=256,
            data.n_test=256]
tasks: {{rte: [task=rte]}}
methods:
  none: [isotropy=none]
  cluster_pca: [isotropy=cluster_pca]
baseline: none
seeds: [0, 1]
"""
TABLES = ("table.md", "table.csv", "table.tex", "runs.csv")
ISOTRAIN = (sys.executable, "-m", "isotrain")
RUN = (*ISOTRAIN, "run", "killed.yaml")
# A part of one's own, which fails as the file `fail` says.
MINE = """
import sys
from pathlib import Path

def f(x):
    how = Path("fail").read_text() if Path("fail").exists() else ""
    if how == "raise":
        raise ValueError("no ink")
    if how:
        sys.exit(int(how))
    return x.mean()
"""


@pytest.fixture(autouse=True)
def one_code(monkeypatch):
    """Tables name the code, which may change meanwhile."""
    monkeypatch.setenv("GIT_DIR", os.devnull)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def place(tmp_path):
    return placed(tmp_path)


def placed(folder, text=STUDY):
    (folder / "killed.yaml").write_text(text)
    (folder / "mine.py").write_text(MINE)
    return folder


def environment(folder):
    known = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *([known] if known else [])])}


def call(folder, *line, code=0, **more):
    """What a command prints, which must end with an exit code."""
    ended = subprocess.run(
        [*(line or (*RUN, "-j", "2"))],
        **{"cwd": folder, "env": environment(folder), "capture_output": True, "text": True},
        **{"timeout": 400, "check": False, **more},
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def started(folder, *line):
    """A call in a group of its own."""
    with (folder / "log").open("w") as log:
        more = {"stdout": log, "stderr": log, "process_group": 0, "env": environment(folder)}
        return subprocess.Popen([*(line or (*RUN, "-j", "2"))], cwd=folder, **more)


def in_group(group):
    """The processes of a group that have not ended."""
    states = (Path(f"/proc/{pid}/stat") for pid in os.listdir("/proc") if pid.isdigit())
    found = []
    for stat in states:
        with suppress(OSError):
            pid, (state, _, own, *_) = (
                int(stat.parent.name),
                stat.read_text().rpartition(")")[2].split(),
            )
            found += [pid] if int(own) == group and state != "Z" else []
    return found


def runs(folder):
    """All that a run computes, by its folder."""
    return {
        path.parent.name: (
            read_result(path.parent)["scores"],
            [untimed(row) for row in read_records(path.with_name("metrics.jsonl"))],
            [file.read_bytes() for file in sorted(path.parent.glob("predictions/*"))],
        )
        for path in (folder / "runs" / "rte").glob("*/result.json")
        if read_result(path.parent)["status"] == "finished"
    }


def tables(folder):
    return {name: (folder / "runs/studies/killed" / name).read_bytes() for name in TABLES}


def finished(folder):
    """When the record of each finished run was written, and its content."""
    paths = (folder / "runs" / "rte").glob("*/result.json")
    found = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in paths}
    return {path: own for path, own in found.items() if json.loads(own[1])["status"] == "finished"}


def owners(folder):
    """The processes that own a run."""
    found = [owner(path) for path in (folder / "runs").glob("*/*/.lock")]
    return [one.pid for one in found if one is not None]


def owners_at_a_checkpoint(folder):
    """The processes that own a run which goes on from a checkpoint when they are killed."""
    found = [owner(path.with_name(".lock")) for path in (folder / "runs").glob("*/*/resume.json")]
    return [one.pid for one in found if one is not None]


def wait_until(condition, of):
    """What a process leaves, once it is there; the process must not end before."""
    deadline = time.monotonic() + 400
    while not (found := condition()):
        assert of.poll() is None, "it ended before"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def has_checkpoint(folder):
    return any((folder / "runs" / "rte").glob("*/resume.ckpt"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a study that nothing disturbed, two runs at a time."""
    folder = placed(tmp_path_factory.mktemp("whole"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_DIR", os.devnull)
        patch.setenv("OMP_NUM_THREADS", "1")
        call(folder)
    assert len(runs(folder)) == 4
    return folder


def assert_goes_on(folder, whole):
    """The same command ends the study: nothing twice, and the bytes of an undisturbed one."""
    before = finished(folder)
    message = call(folder)
    assert f"4 runs, {len(before)} finished before, {4 - len(before)} to do" in message
    after = finished(folder)
    assert {path: after[path] for path in before} == before, "no finished run is trained again"
    assert runs(folder) == runs(whole)
    assert tables(folder) == tables(whole)


def test_a_finished_study_is_left_as_it_is(whole):
    before, of_tables = finished(whole), tables(whole)
    assert "4 runs, 4 finished before, 0 to do" in call(whole)
    assert finished(whole) == before
    assert tables(whole) == of_tables


def test_the_basic_launcher_gives_the_same_bytes(place, whole):
    assert "1 at a time" in call(place, *RUN)
    assert runs(place) == runs(whole)
    assert tables(place) == tables(whole)


def test_fresh_processes_by_hand_give_the_same_bytes(place, whole):
    listed = call(place, *RUN, "--list").splitlines()[1:]
    assert len(listed) == 4
    for line in listed:
        words = [w for w in shlex.split(line.partition("): ")[2]) if not w.startswith("study=")]
        call(place, *ISOTRAIN, "train", *words)
    assert runs(place) == runs(whole)
    assert "4 runs, 4 finished before, 0 to do" in call(place)
    after, wanted = tables(place), tables(whole)
    assert b"4 of 4 runs had finished before the first call on record" in after["table.md"]
    for name in ("table.csv", "runs.csv"):
        assert after[name] == wanted[name]


METHOD = """
  mine: [isotropy=mean, +metric.mine.function._target_=mine.f,
         +metric.mine.function._partial_=true]
"""
OTHER = STUDY.replace("\n  cluster_pca: [isotropy=cluster_pca]\n", METHOD)


@pytest.mark.parametrize(
    ("how", "kind"),
    [("raise", ".*no ink"), ("3", "SystemExit: 3"), ("0", "SystemExit: 0")],
)
def test_a_part_that_fails_or_exits_fails_its_run_alone(tmp_path, how, kind):
    place = placed(tmp_path, OTHER.replace("[0, 1]", "[0]"))
    (place / "fail").write_text(how)
    message = call(place, code=1)
    assert re.search(f"failed rte-mine-seed0: {kind}", message)
    assert "done rte-none-seed0" in message
    assert "1 of 2 runs finished" in message
    before = finished(place)
    assert len(before) == 1
    (place / "fail").unlink()
    assert "2 runs, 1 finished before, 1 to do" in call(place)
    assert finished(place).items() > before.items()
    assert len(runs(place)) == 2


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_killed_parent(place, whole, jobs):
    parent = started(place, *RUN, "-j", jobs)
    wait_until(lambda: has_checkpoint(place), parent)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 100
    while in_group(parent.pid):  # its workers end by themselves
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert len(finished(place)) < 4
    assert_goes_on(place, whole)


def test_a_killed_worker(place, whole):
    parent = started(place)
    wait_until(lambda: has_checkpoint(place), parent)
    pid = next(iter(owners(place)))
    os.kill(pid, signal.SIGKILL)
    assert parent.wait(timeout=300) != 0
    assert len(finished(place)) < 4
    assert_goes_on(place, whole)


@pytest.mark.parametrize("n", [1, 2])
def test_ctrl_c_once_and_twice(place, whole, n):
    parent = started(place)
    wait_until(lambda: has_checkpoint(place), parent)
    for _ in range(n):
        os.killpg(parent.pid, signal.SIGINT)
        time.sleep(0.3)
    assert parent.wait(timeout=300) == 128 + signal.SIGINT
    assert "the same command goes on" in (place / "log").read_text()
    assert "failed" not in (place / "log").read_text()
    assert len(finished(place)) < 4
    assert_goes_on(place, whole)


def test_a_full_disk(place, whole):
    """A limit on the size of files stands for it: checkpoints are larger."""

    def small():
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    message = call(place, *RUN, code=1, preexec_fn=small)
    assert message.count("failed rte-") == 4
    assert not finished(place)
    assert_goes_on(place, whole)


def test_everything_killed_at_once_goes_on_from_checkpoints(place, whole):
    parent = started(place)
    wait_until(lambda: owners_at_a_checkpoint(place), parent)
    pids = owners(place)
    parent.kill()
    parent.wait()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    broken = [path.parent for path in (place / "runs" / "rte").glob("*/resume.json")]
    assert_goes_on(place, whole)
    resumed = [read_result(folder).get("resumed_after_step") for folder in broken]
    assert any(step for step in resumed), "it is not trained from its start"
