"""What needs no Slurm of its launcher: the options, its errors, and what a node checks.

Real jobs are in tests/cluster.
"""

import errno
import fcntl
import json
import os
import pickle
from types import SimpleNamespace
from typing import ClassVar

import pytest

from isotrain.launch import slurm
from isotrain.launch.nodes import NodeError, check_shared
from isotrain.studies.slurm import SlurmError, SlurmJob, SlurmJobs, states_of, write_jobs
from tests.studies.test_call import errors

SLURM = "hydra/launcher=submitit_slurm"


@pytest.fixture
def no_slurm(monkeypatch, tmp_path):
    """A machine without the commands of Slurm."""
    monkeypatch.setenv("PATH", str(tmp_path))


@pytest.fixture
def slurm_says(monkeypatch, tmp_path):
    """`slurm_says(text)`: what each command of Slurm prints from now on; `code`, how it ends."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def says(text, code=0):
        for name in ("squeue", "scontrol"):
            (tmp_path / name).write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\nexit {code}\n")
            (tmp_path / name).chmod(0o755)

    return says


def test_its_keys_are_those_of_the_plug_in_and_a_time_limit_is_no_end(fake):
    keys = {"gpus_per_node": 2, "gres": "gpu:a100:2", "partition": "p", "timeout_min": 5}
    given = [f"hydra.launcher.{key}={value}" for key, value in keys.items()]
    _, call = fake.planned("-m", f"study='{fake.file}'", f"output_dir={fake.runs}", SLURM, *given)
    launcher = call.config.hydra.launcher
    assert {key: launcher[key] for key in keys} == keys
    assert launcher.max_num_timeout == 20
    assert launcher.signal_delay_s >= 120
    assert call.n_at_once == launcher.array_parallelism


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["-j", "2"], ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]),
        (["--launcher", "slurm"], [SLURM]),
        (["--launcher", "slurm", "-j", "3"], [SLURM, "hydra.launcher.array_parallelism=3"]),
        (["--launcher", "ray"], ["hydra/launcher=ray"]),
        (["-j", "1"], []),
    ],
)
def test_a_launcher_by_its_short_name(fake, monkeypatch, words, expected):
    found = []
    monkeypatch.setattr("isotrain.app.main", lambda line: found.append(line) or 0)
    assert fake.main("run", "smoke", *words) == 0
    assert found == [["-m", "study=smoke", *expected]]


def test_a_machine_without_slurm_cannot_submit(fake, capsys, no_slurm):
    (output,) = errors(capsys, fake.run(SLURM))
    assert output == "no sbatch on this machine: start it on a login node of the cluster"
    assert not fake.started


def test_a_machine_without_slurm_shows_the_rest(fake, capsys, no_slurm):
    assert fake.run() == 0
    (fake.runs / "rte").rename(fake.runs / "elsewhere")  # they have yet to run
    jobs = {
        job.log: SlurmJob(id="7_0", folder=".submitit/7_0", launch="a1") for job in fake.plan.jobs
    }
    write_jobs(SlurmJobs(folder=fake.folder, jobs=jobs))
    capsys.readouterr()
    assert fake.main("status", str(fake.folder)) == 0
    *_, line, last = capsys.readouterr().out.splitlines()
    why = "squeue is not on this machine"
    assert line == f"{why}: what is pending or runs in Slurm may stand as waiting"
    assert last.startswith("study few: 4 runs, 0 finished, 4 waiting")


def test_a_node_must_see_the_folder_of_the_launcher(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    marker = tmp_path / "study.json"
    rule = "must be on a file system that all nodes share; give output_dir=... there"
    with pytest.raises(NodeError, match=f"n7 has no {marker}, .*: {tmp_path} {rule}"):
        check_shared(marker)
    marker.touch()
    check_shared(marker)


def test_a_node_must_be_able_to_lock(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    monkeypatch.setattr(fcntl, "flock", flock)
    (tmp_path / "study.json").touch()
    with pytest.raises(NodeError, match=f"n7 cannot lock files in {tmp_path} .*mount it with"):
        check_shared(tmp_path / "study.json")


def test_what_squeue_says_of_jobs(slurm_says, monkeypatch, tmp_path):
    slurm_says("CLUSTER: alpha\n7_0|RUNNING|n1|4:00|None\n7_1|PENDING||1:00|launch|held")
    found = states_of(["7_0", "7_1"])
    assert found["7_0"] == ("RUNNING", "n1", "4:00", "None")
    assert found["7_1"].reason == "launch|held"
    (tmp_path / "squeue").write_text('#!/bin/sh\necho "7_0|RUNNING|$SQUEUE_PARTITION|1:00|None"\n')
    monkeypatch.setenv("SQUEUE_PARTITION", "other")
    assert states_of(["7_0"])["7_0"].node == "", "its filters would hide jobs"


@pytest.mark.parametrize(
    ("state", "code", "expected"),
    [("RUNNING", 0, True), ("COMPLETING", 0, False), ("CANCELLED", 0, False), ("", 1, True)],
)
def test_a_job_that_is_preempted_is_requeued_and_a_cancelled_one_is_not(
    slurm_says, state, code, expected
):
    slurm_says(f"7_0|{state}|n1|4:00|None", code)
    assert slurm._is_running("7_0") == expected


def job_of(folder, number=0, launch="a1"):
    (folder / "logs").mkdir(exist_ok=True)
    log = folder / f"rte-none-seed{number}-0a.log"
    job = SlurmJob(id=f"7_{number}", folder="logs", launch=launch)
    outcome = SlurmJobs(folder=folder).outcome(job)
    return slurm.Submitted(log.stem, ["a=1"], job.id, log, outcome)


def written(job, value=None, error=None):
    place = {"launcher": "submitit_slurm", "host": "n1", "job": job.id}
    content = {"value": value, "error": error, **place}
    job.outcome.write_text(json.dumps(content))


def test_jobs_with_one_folder_of_logs_have_an_outcome_each(
    slurm_says, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(slurm, "POLL_S", 0.01)
    monkeypatch.setattr(slurm, "ASK_S", 0.01)
    monkeypatch.setattr(slurm, "LAG_S", 0.0)
    slurm_says("7_1|CANCELLED|n2|0:00|None")
    done, cancelled = job_of(tmp_path, 0), job_of(tmp_path, 1)
    written(done, value=0.5)
    (tmp_path / "logs/7_1_0_log.err").touch()
    one, other = slurm._wait_for_jobs([done, cancelled])
    assert one.return_value == 0.5
    with pytest.raises(slurm.RunError, match="CANCELLED: Slurm ended job 7_1 on n2"):
        _ = other.return_value
    assert cancelled.log.read_text() == "isotrain: failed: CANCELLED: Slurm ended job 7_1 on n2\n"
    assert f"{cancelled.log}, {tmp_path}/logs/7_1_0_log.err" in capsys.readouterr().out


def test_a_job_with_an_outcome_is_over_unless_it_waits_again(slurm_says, tmp_path):
    job, states = job_of(tmp_path), {}
    for state in ("RUNNING", "PENDING", "COMPLETED"):
        slurm_says(f"7_0|{state}|n1|4:00|None")
        states |= states_of(["7_0"])
        assert slurm._is_there(states["7_0"], job.outcome) == (state != "COMPLETED")
    written(job, error=["ValueError", "no ink"])
    slurm_says("7_0|RUNNING|n1|4:00|None")
    assert not slurm._is_there(states_of(["7_0"])["7_0"], job.outcome), "it is ending"
    slurm_says("7_0|PENDING||4:00|BeginTime")
    assert slurm._is_there(states_of(["7_0"])["7_0"], job.outcome)
    assert not list(job.outcome.parent.iterdir()), "the outcome is that of its first time"


def test_a_job_of_the_same_number_in_another_slurm_is_not_over(tmp_path):
    """A controller that is set up anew counts its jobs from 1 again."""
    written(job_of(tmp_path, launch="a1"), value=0.5)
    assert slurm._read(job_of(tmp_path, launch="a1"))["value"] == 0.5
    assert slurm._read(job_of(tmp_path, launch="b2")) == {}


def test_a_launch_marks_its_jobs_and_gives_them_the_mark(slurm_says, monkeypatch, tmp_path):
    class Executor:
        """Of submitit: its jobs get the pickled launcher."""

        sent: ClassVar = []

        def __init__(self, **given):
            assert given["cluster"] == "slurm"

        def update_parameters(self, **given):
            assert given["slurm_additional_parameters"] == {"requeue": True}

        def map_array(self, call, *arguments):
            self.sent.append(pickle.loads(pickle.dumps(call)).mark)
            paths = SimpleNamespace(folder=tmp_path / ".submitit" / "7_0")
            return [SimpleNamespace(job_id="7_0", paths=paths) for _ in arguments[0]]

    slurm_says("MaxArraySize = 9")
    monkeypatch.setattr("submitit.AutoExecutor", Executor)
    launcher = slurm.SlurmArray(submitit_folder=str(tmp_path), max_num_timeout=1)
    jobs = [launcher._submit(tmp_path, [["a=1"], ["a=2"]], 0) for _ in range(2)]
    assert [job.launch for launch in jobs for job in launch] == [
        mark for mark in Executor.sent for _ in range(2)
    ]
    assert len(set(Executor.sent)) == 2
    assert jobs[0][0].folder == ".submitit/7_0"


def test_why_a_job_waits_is_said_once(slurm_says, tmp_path, capsys):
    jobs, said = [job_of(tmp_path, number) for number in range(3)], set()
    reason = "launch failed requeued held"
    slurm_says(f"7_0|PENDING||1:00|{reason}\n7_1|PENDING||1:00|Priority\n7_2|RUNNING|n1|1:00|None")
    for _ in range(2):
        slurm._report_waiting(jobs, states_of(job.id for job in jobs), said)
    line = f"waits rte-none-seed0: job 7_0, {reason}; scontrol release 7_0\n"
    assert capsys.readouterr().out == line


def test_an_array_has_no_more_runs_than_slurm_takes(slurm_says):
    slurm_says("MaxArraySize            = 21\nMaxJobCount = 9")
    assert slurm._most_runs() == 20
    slurm_says("unknown", 1)
    assert slurm._most_runs() == 1000


def test_slurm_that_cannot_be_asked_is_an_error(slurm_says):
    slurm_says("", 1)
    with pytest.raises(SlurmError, match="squeue cannot tell"):
        states_of(["7_0"])
