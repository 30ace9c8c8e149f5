"""Sweeps of `isotrain train -m`: what a file of conf/sweep asks for, and what their jobs leave."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from isotrain.config.compose import RunJob
from isotrain.config.sweep import check_sweep, n_jobs, with_sweeps
from isotrain.jobs import multirun
from isotrain.jobs.devices import device_for

ROOT = Path(__file__).parents[1]
CONF = ROOT / "conf" / "sweep"
BASE = ["encoder=tiny", "source=demo"]
NAMES = sorted(file.stem for file in CONF.glob("*.yaml"))


# ------------------------------------------------------------------------------ files of values


@pytest.mark.parametrize("name", NAMES)
def test_each_file_runs_as_its_command_says(name):
    opening = re.match(r"(#.*\n)+", (CONF / f"{name}.yaml").read_text("utf-8"))[0]
    assert "Question:" in opening
    command = shlex.split(re.search(r"Command:  (.*)", opening)[1])
    assert command[:3] == ["isotrain", "train", "-m"]
    cfg, overrides, mistakes = check_sweep([*command[3:], *BASE], None, True)
    assert mistakes == []
    assert cfg is not None
    assert not [text for text in overrides if text.startswith("sweep=")]
    content = OmegaConf.load(CONF / f"{name}.yaml")
    assert {str(key) for key in content} <= {text.partition("=")[0] for text in overrides}


def write(folder, **files):
    (folder / "sweep").mkdir()
    for name, text in files.items():
        (folder / "sweep" / f"{name}.yaml").write_text(text)
    return str(folder)


def test_values_become_overrides(tmp_path):
    mine = write(
        tmp_path,
        mine="site: [[tokens], [pooled, layer_1]]\ndata.n_train: [100, null]\nsync: [true, false]\n"
        "seed: range(3)\noptimizer.lr: [1.0e-5]",
    )
    assert with_sweeps(["sweep=mine"], True, mine) == [
        "site=[tokens],[pooled,layer_1]",
        "data.n_train=100,null",
        "sync=true,false",
        "seed=range(3)",
        "optimizer.lr=1e-05",
    ]
    assert check_sweep([*BASE, "isotropy=mean", "sweep=mine"], mine, True)[2] == []


def test_two_files_are_crossed_and_the_command_line_wins(tmp_path):
    mine = write(tmp_path, a="seed: [0, 1]\nisotropy: [mean]", b="seed: [2]", layers="seed: [9]")
    assert with_sweeps(["sweep=[a,b]"], True, mine) == ["seed=2", "isotropy=mean"]
    assert with_sweeps(["sweep=a", "seed=5", "task=rte"], True, mine) == [
        *("isotropy=mean", "seed=5", "task=rte"),
    ]
    assert with_sweeps(["sweep=layers"], True, mine) == ["seed=9"]  # a file of ours is first
    assert "seed=0,1,2" in with_sweeps(["sweep=layers"], True)


@pytest.mark.parametrize(
    ("override", "multirun", "said"),
    [
        ("sweep=seeds", False, "sweep=seeds gives several runs; add -m"),
        ("sweep=sedes", True, "sweep=sedes does not exist; did you mean seeds?"),
        ("sweep=seeds,layers", True, "crossed: 'sweep=[a,b]'"),
        ("sweep=null", True, "sweep=None does not exist"),
        ("sweep=scalar", True, "gives seed the value 3; give a list such as [3]"),
        ("sweep=empty", True, "sweep=empty must map keys to lists"),
        ("sweep=items", True, "sweep=items must map keys to lists"),
        ("sweep=broken", True, "sweep=broken cannot be read"),
        ("sweep=none_given", True, "gives seed the value []"),
        ("sweep=mapping", True, "sweep=mapping: {'a': 1} is no value that an override can give"),
        ("sweep=key", True, "no key sede; did you mean seed?"),
        ("sweep=value", True, "seed must be at least 0, got -1"),
        ("sweep=[", True, "sweep="),
    ],
)
def test_what_is_wrong_is_told_with_every_other_mistake(tmp_path, override, multirun, said):
    mine = write(
        tmp_path,
        scalar="seed: 3",
        empty="",
        items="- seed",
        broken="seed: [",
        none_given="seed: []",
        mapping="seed: [{a: 1}]",
        key="sede: [1, 2]",
        value="seed: [0, -1]",
    )
    _cfg, _overrides, mistakes = check_sweep([*BASE, override, "rers=1"], mine, multirun)
    assert any(said in mistake for mistake in mistakes), mistakes
    assert any("no key rers" in mistake for mistake in mistakes)


SPACES = {
    "optimizer.lr=interval(1e-5,1e-3)": None,
    "optimizer.lr=tag(log, interval(1e-5, 1e-3))": None,
    "training.warmup_fraction=interval(0.1,1.5)": "training.warmup_fraction must be at most 1",
    "optimizer.rl=interval(1e-5,1e-3)": "no key optimizer.rl",
}


def test_both_ends_of_an_interval_are_judged_where_a_search_takes_one(toy_search):
    code = (
        "from isotrain.config.sweep import check_sweep\n"
        f"for space in {list(SPACES)!r}:\n"
        f"    print(check_sweep([*{BASE!r}, space, 'hydra/sweeper=toy'], None, True)[2])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for told, said in zip(found.stdout.splitlines(), SPACES.values(), strict=True):
        assert told == "[]" if said is None else said in told
    for space in SPACES:  # Hydra's own sweeper takes none
        mistakes = check_sweep([*BASE, space], None, True)[2]
        assert any("a sweep needs values" in mistake for mistake in mistakes)


@pytest.mark.parametrize("key", ["hydra.sweep.dir", "+hydra.sweep.dir", "hydra.sweep.subdir"])
def test_the_folder_of_a_sweep_is_not_the_users(key):
    line = [*BASE, f"{key}=mine", "seed=0,1"]
    (told,) = [m for m in check_sweep(line, None, True)[2] if m.startswith(key)]
    assert "leave it out, or use output_dir=" in told
    assert not any("output_dir" in m for m in check_sweep([*BASE, "seed=0,1"], None, True)[2])


@pytest.mark.parametrize(
    ("line", "n"),
    [
        (["task=rte"], 1),
        (["seed=0,1,2", "site=[tokens],[pooled,layer_1]", "x='a,b'"], 6),
        (["seed=range(0,10,2)", "a=choice(1,2)", "b=shuffle(1,2,3)"], 30),
        (["task=glob(*)", "seed=0,1"], None),
        (["lr=interval(0,1)"], None),
        (["seed=0,1", "hydra/sweeper=toy"], None),
        (["seed=0,1", "hydra/sweeper=basic"], 2),
        (["seed=0,1", "+hydra.sweeper.params.task='rte,wic'"], None),
    ],
)
def test_the_number_of_jobs_of_a_grid(line, n):
    assert n_jobs(line) == n


def test_a_search_within_ranks_is_refused(toy_search):
    for rank, said in (("RANK", "start it once"), ("OTHER", "")):
        found = subprocess.run(
            [
                *(sys.executable, "-m", "isotrain", "train", "-m", *BASE, "hydra/sweeper=toy"),
                *("seed=0,1", "sede=1"),  # a mistake: nothing may start
            ],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, rank: "0"},
        )
        assert found.returncode == 2
        assert "no key sede" in found.stderr
        assert said in found.stderr
        assert ("torchrun" in found.stderr) == (rank == "RANK")


TOY = '''
"""A search of two trials: what it is told of the first would choose the second."""
import json
from dataclasses import dataclass
from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper

@dataclass
class ToyConf:
    _target_: str = "hydra_plugins.toy.ToySweeper"

ConfigStore.instance().store(group="hydra/sweeper", name="toy", node=ToyConf, provider="toy")

class ToySweeper(Sweeper):
    def setup(self, *, hydra_context, task_function, config):
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config)

    def sweep(self, arguments):
        told = []
        for trial in range(2):
            values = [a for a in arguments if "interval" not in a] + [f"seed={trial}"]
            (end,) = self.launcher.launch([values], initial_job_idx=trial)
            told.append(end.return_value)
        open("told.json", "w").write(json.dumps(told))
'''


@pytest.fixture
def toy_search(tmp_path, monkeypatch):
    """An adaptive sweeper of a plugin, `hydra/sweeper=toy`, for processes that a test starts."""
    (tmp_path / "plugins" / "hydra_plugins").mkdir(parents=True)
    (tmp_path / "plugins" / "hydra_plugins" / "toy.py").write_text(TOY)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "plugins"))


RAY = '''
"""The configuration of hydra-ray-launcher 1.2.2, without Ray."""
from dataclasses import dataclass, field
from typing import Any, Dict
from hydra.core.config_store import ConfigStore

@dataclass
class RayConf:
    init: Dict[str, Any] = field(default_factory=lambda: {"address": None})
    remote: Dict[str, Any] = field(default_factory=dict)

@dataclass
class RayLauncherConf:
    _target_: str = "hydra_plugins.hydra_ray_launcher.ray_launcher.RayLauncher"
    ray: RayConf = field(default_factory=RayConf)

ConfigStore.instance().store(
    group="hydra/launcher", name="ray", node=RayLauncherConf, provider="ray_launcher"
)
'''


def test_the_command_of_the_manual_for_ray_is_one_that_its_plugin_takes(toy_search, tmp_path):
    (tmp_path / "plugins" / "hydra_plugins" / "ray.py").write_text(RAY)
    manual = (ROOT / "docs" / "sweeps.md").read_text("utf-8").replace("\\\n", " ")
    (command,) = re.findall(r"^isotrain train (-m .*launcher=ray .*)", manual, re.MULTILINE)
    _, *line = shlex.split(command)
    code = (
        "from isotrain.config.sweep import check_sweep\n"
        f"for line in ({line!r}, [text.lstrip('+') for text in {line!r}]):\n"
        f"    print(check_sweep([*line, *{BASE!r}], None, True)[2])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    taken, without_plus = found.stdout.splitlines()
    assert taken == "[]"
    assert "num_cpus" in without_plus


# ----------------------------------------------------------------------------- one process a job

JOB = """
import json, os, signal, sys, time
from pathlib import Path
told, file = sys.argv[1].removeprefix("--folder="), Path(sys.argv[2])
cfg = json.loads(file.read_text())["config"]
print("threads", os.environ.get("OMP_NUM_THREADS"), "of", cfg["threads"])
print("gpus", os.environ.get("CUDA_VISIBLE_DEVICES"))
def stop(*_):
    print("stopped")
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
Path("started").touch()
for _ in range(1500 * (cfg["seed"] == 7)):  # is stopped
    time.sleep(0.02)
if cfg["seed"] == 3:
    print("the reason")
    sys.exit(1)
run = Path("run")
run.mkdir(exist_ok=True)
(run / "result.json").write_text(json.dumps({
    "status": "finished", "monitor": "val/accuracy",
    "scores": {"val/accuracy": 0.625 if cfg["seed"] != 4 else None, "val/loss": 1.0}}))
Path(told).write_text(str(run))
"""
LAUNCHERS = "hydra_plugins.x."


@pytest.fixture
def play(tmp_path, monkeypatch, composed):
    """`play(seed, launcher, number, ...)`: a job of a sweep whose run is a small script."""
    (tmp_path / "job.py").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(multirun, "COMMAND", (sys.executable, "job.py"))

    def play_one(seed=0, launcher="JoblibLauncher", number=2, *overrides):
        cfg = composed(*BASE, *overrides)
        cfg.seed = seed
        hydra = OmegaConf.create(
            {
                "sweep": {"dir": "sweep"},
                "job": {"num": number},
                "launcher": {"_target_": f"{LAUNCHERS}{launcher}"},
            }
        )
        return multirun.job_of_a_sweep(RunJob(cfg, "none", [f"seed={seed}"]), hydra)

    return play_one


def outcome(number=2):
    return json.loads(Path(f"sweep/{number}/outcome.json").read_text())


def test_a_job_gives_its_monitored_score(play):
    assert play() == 0.625
    assert isinstance(play(number=0), float)
    assert outcome() == {
        "overrides": ["seed=0"],
        "code": 0,
        "stopped": False,
        "log": "sweep/2/log.txt",
        "folder": "run",
        "monitor": "val/accuracy",
        "score": 0.625,
    }


def test_a_score_that_is_not_finite_is_told_as_such(play):
    assert str(play(seed=4)) == "nan"
    assert outcome()["score"] is None


def test_a_job_that_fails_gives_none_and_its_code(play):
    assert play(seed=3) is None
    assert (outcome()["code"], outcome()["stopped"]) == (1, False)
    assert "the reason" in Path("sweep/2/log.txt").read_text()


@pytest.mark.parametrize(
    ("launcher", "overrides", "threads"),
    [
        ("JoblibLauncher", (), "1 of 1"),
        ("SlurmLauncher", (), "1 of 1"),
        ("JoblibLauncher", ("threads=2",), "2 of 2"),
        ("BasicLauncher", (), "None of None"),
        ("BasicLauncher", ("threads=2",), "2 of 2"),
    ],
)
def test_jobs_side_by_side_have_one_thread_unless_one_says_so(
    play, capfd, launcher, overrides, threads
):
    assert play(0, launcher, 2, *overrides) == 0.625
    log = Path("sweep/2/log.txt")
    assert log.exists() == (launcher != "BasicLauncher")  # those in turn print here
    printed = log.read_text() if log.exists() else capfd.readouterr().out
    assert f"threads {threads}\n" in printed


@pytest.mark.parametrize(
    ("launcher", "devices", "overrides", "seen"),
    [
        ("JoblibLauncher", "0,1", (), ["0", "0", "0"]),  # free again: they run in turn here
        ("LocalLauncher", "4,7,9", (), ["4", "4", "4"]),
        ("LocalLauncher", "0", (), ["0", "0", "0"]),  # submitit would hide it
        ("JoblibLauncher", "", (), ["None", "None", "None"]),
        ("JoblibLauncher", "0,1", ("trainer.devices=2",), ["0,1", "0,1", "0,1"]),
        ("SlurmLauncher", "0,1", (), ["None", "None", "None"]),  # Slurm gives them out
        ("BasicLauncher", "0,1", (), ["None", "None", "None"]),
    ],
)
def test_jobs_side_by_side_have_a_gpu_each(
    play, monkeypatch, capfd, tmp_path, launcher, devices, overrides, seen
):
    monkeypatch.setenv("ISOTRAIN_DEVICES", devices)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # of the locks
    for number in range(3):
        assert play(0, launcher, number, *overrides) == 0.625
    logs = [Path(f"sweep/{n}/log.txt") for n in range(3)]
    text = "".join(p.read_text() for p in logs) if logs[0].exists() else capfd.readouterr().out
    assert re.findall(r"gpus (.*)", text) == seen


def test_a_job_takes_a_gpu_that_no_other_holds(play, monkeypatch, composed, tmp_path):
    monkeypatch.setenv("ISOTRAIN_DEVICES", "4,7")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with device_for(composed(*BASE), ["4", "7"], True):
        assert play() == 0.625
    assert "gpus 7\n" in Path("sweep/2/log.txt").read_text()


def test_a_sweep_that_stops_ends_its_jobs_and_starts_no_other(play):
    def stop():
        while not Path("started").exists():
            time.sleep(0.02)
        Path("sweep/stop").write_text("1")

    thread = threading.Thread(target=stop)
    thread.start()
    assert play(seed=7) is None
    thread.join()
    assert (outcome()["code"], outcome()["stopped"]) == (143, True)
    assert "stopped" in Path("sweep/2/log.txt").read_text()
    assert play(number=3) is None
    assert not Path("sweep/3").exists()


def test_a_job_is_killed_where_a_second_signal_asks_for_it(play):
    def stop():
        while not Path("started").exists():
            time.sleep(0.02)
        Path("sweep/stop").write_text("2")

    thread = threading.Thread(target=stop)
    thread.start()
    assert play(seed=7) is None
    thread.join()
    assert outcome()["code"] == 128 + signal.SIGKILL


# -------------------------------------------------------------------------------- the whole sweep

HYDRA = """
import fcntl, json, os, subprocess, sys, time
from pathlib import Path
sweep, codes = Path(os.environ["ISOTRAIN_SWEEP"]), json.loads(os.environ["CODES"])
def end(number, code):
    folder = sweep / str(number)
    end = {"overrides": ["task=rte", f"seed={number}"], "code": code, "stopped": False}
    end |= {"log": str(folder / "log.txt")}
    score = float(os.environ.get("SCORE", 0.5))
    end |= {} if code else {"folder": "run", "monitor": "val/accuracy", "score": score}
    (folder / "outcome.json").write_text(json.dumps(end))
for number, code in enumerate(codes):
    folder = sweep / str(number)
    folder.mkdir()  # as Hydra does, for a job that has not begun too
    if code == "not begun":
        continue
    (folder / "log.txt").write_text("first\\nthe reason\\n")
    (folder / "at_work").touch()
    if code == "vanished":
        text = json.dumps({"overrides": ["task=rte", f"seed={number}"]})
        (folder / "job.json").write_text(text)
    elif code == "late":  # a worker of its own, which goes on when its launcher has ended
        lock = (folder / "at_work").open()
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fork() == 0:
            time.sleep(1.5)
            end(number, 0)
            os._exit(0)
    else:
        end(number, code)
time.sleep(float(os.environ.get("TAKES", 0)))
while "WAIT" in os.environ and not (sweep / "stop").exists():
    time.sleep(0.02)
sys.exit(int(os.environ.get("CODE", 0)))
"""


@pytest.fixture
def hydra(tmp_path, monkeypatch):
    """`hydra(codes)`: a sweep whose jobs have ended with these codes."""
    (tmp_path / "hydra.py").write_text(HYDRA)

    def start(_arguments, folder):
        line = [sys.executable, str(tmp_path / "hydra.py")]
        environment = {**os.environ, "ISOTRAIN_SWEEP": str(folder)}
        return subprocess.Popen(line, stdin=subprocess.PIPE, env=environment, process_group=0)

    monkeypatch.setattr(multirun, "_start_hydra", start)

    def sweep(*codes, seeds=None):
        monkeypatch.setenv("CODES", json.dumps(codes))
        output_dir = tmp_path / f"runs{len(list(tmp_path.iterdir()))}"
        seeds = seeds or f"seed=range({len(codes)})"
        return multirun.run_sweep(["-m", "task=rte", seeds], output_dir)

    return sweep


def test_what_ended_is_told_and_a_failure_is_the_exit_code(hydra, capsys, monkeypatch):
    assert hydra(0, 0) == 0
    told = capsys.readouterr().out
    assert "done 1 seed=1, val/accuracy 0.5000; " in told
    assert "sweep: 2 jobs, 0 failed" in told
    assert hydra(0, 2, 0) == 1
    told = capsys.readouterr().out
    assert re.search(r"failed 1 seed=1; .*log.txt\n    first\n    the reason\n", told)
    assert "sweep: 3 jobs, 1 failed" in told
    assert "failed: 1 seed=1, exit code 2" in told
    monkeypatch.setenv("CODE", "1")  # of a launcher
    assert hydra(0) == 1


def test_a_score_of_nought_is_shown(hydra, capsys, monkeypatch):
    monkeypatch.setenv("SCORE", "0.0")
    assert hydra(0) == 0
    assert "done 0 seed=0, val/accuracy 0.0000; " in capsys.readouterr().out


def test_jobs_that_left_no_outcome_have_failed_and_those_planned_count(hydra, capsys):
    assert hydra(0, "vanished", "not begun", seeds="seed=range(5)") == 1
    told = capsys.readouterr().out
    assert "sweep: 5 jobs, 1 failed, 3 not begun; " in told
    assert "  failed: 1 seed=1, its worker vanished" in told
    assert hydra(0, seeds="task=glob(*)") == 0  # not known beforehand
    assert "sweep: 1 jobs, 0 failed; " in capsys.readouterr().out


def test_workers_that_go_on_without_their_launcher_are_waited_for(hydra, capsys, monkeypatch):
    monkeypatch.setenv("CODE", "1")
    assert hydra("vanished", "late") == 1
    told = capsys.readouterr().out
    assert "done 1 seed=1, val/accuracy 0.5000; " in told
    assert "sweep: 2 jobs, 1 failed; " in told
    assert "failed: 0 seed=0, its worker vanished" in told


def test_an_outcome_is_read_once_and_the_folder_once_a_second(hydra, monkeypatch):
    read, looks = [], []
    monkeypatch.setenv("TAKES", "2.5")
    loads, lacking = json.loads, multirun._lacking
    monkeypatch.setattr(multirun.json, "loads", lambda text: read.append(1) or loads(text))
    monkeypatch.setattr(multirun, "_lacking", lambda *x: looks.append(1) or lacking(*x))
    assert hydra(0, 0, 0) == 0
    assert len(read) == 3
    assert 3 <= len(looks) <= 8


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_writes_the_stop_file_and_is_the_exit_code(hydra, monkeypatch, capsys, number):
    monkeypatch.setenv("WAIT", "1")
    timer = threading.Timer(1, os.kill, (os.getpid(), number))
    timer.start()
    assert hydra(0) == 128 + number
    told = capsys.readouterr().out
    assert "stopping the jobs of the sweep" in told
    assert "the same command goes on" in told


def train(folder, *arguments, **environment):
    command = [sys.executable, "-m", "isotrain", "train", "-m", *arguments, "output_dir=my runs"]
    return subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("options", "rates"),
    [
        ([], ["1e30", "1e-3"]),  # one job after the other is the default
        (["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"], ["1e30", "1e-3", "1e-4"]),
        (["hydra/launcher=submitit_local"], ["1e30", "1e-3"]),
    ],
    ids=["basic", "joblib", "submitit_local"],
)
def test_every_launcher_runs_a_process_a_job_and_a_failure_stops_none(
    tmp_path, small, options, rates
):
    line = [*small, *options, "task=rte", "metric=[]", "trainer.max_steps=3"]
    process = train(tmp_path, *line, f"optimizer.lr={','.join(rates)}")
    out, err = process.communicate(timeout=280)
    assert process.returncode == 1, out + err
    results = [json.loads(p.read_text()) for p in tmp_path.glob("my runs/rte/*/result.json")]
    ends = {r["config"]["optimizer"]["lr"]: r["status"] for r in results}
    assert ends == {float(rate): "failed" if rate == "1e30" else "finished" for rate in rates}
    assert len(results) == len(rates)
    assert f"sweep: {len(rates)} jobs, 1 failed" in out
    assert len(re.findall(r"failed: \d optimizer.lr=1e\+?30.*, exit code 1", out)) == 1
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["my runs"]


@pytest.mark.campaign
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_sweep_that_is_stopped_leaves_checkpoints(tmp_path, small, number):
    """At Ctrl-C at once; where its first process is killed, by those that miss it."""
    line = [*small, "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", "task=rte", "metric=[]"]
    line += ["trainer.max_epochs=400", "seed=0,1,2", "checkpoint.every_steps=5"]
    process = train(tmp_path, *line)
    until = time.monotonic() + 120
    while len(list(tmp_path.glob("my runs/rte/*/resume.ckpt"))) < 2:
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == (130 if number == signal.SIGINT else -number)

    def statuses():
        files = tmp_path.glob("my runs/rte/*/result.json")
        return [json.loads(file.read_text())["status"] for file in files]

    while statuses() != ["interrupted"] * 2:  # and the third is not begun
        assert time.monotonic() < until + 60, statuses()
        time.sleep(0.05)
    assert len(list(tmp_path.glob("my runs/rte/*/resume.ckpt"))) == 2


@pytest.mark.campaign
def test_each_trial_of_a_search_over_two_devices_has_one_set_of_values(toy_search, tmp_path, small):
    """Were a rank to sweep for itself, the two would train with other seeds, or never meet."""
    line = [*small, "hydra/sweeper=toy", "task=rte", "metric=[]", "trainer.devices=2"]
    process = train(tmp_path, *line, "optimizer.lr=interval(1e-4,1e-3)", "trainer.max_steps=1")
    out, err = process.communicate(timeout=280)
    assert process.returncode == 0, out + err
    results = [json.loads(p.read_text()) for p in tmp_path.glob("my runs/rte/*/result.json")]
    scores = {r["seed"]: r["scores"]["val/accuracy"] for r in results}
    assert {r["n_processes"] for r in results} == {2}
    assert {r["status"] for r in results} == {"finished"}
    assert {r["config"]["seed"] for r in results} == {0, 1}
    assert json.loads((tmp_path / "told.json").read_text()) == [scores[0], scores[1]]
