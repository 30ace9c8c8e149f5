"""What needs no Slurm of its launcher: the options, its errors, and what a node checks.

Real jobs are in tests/cluster.
"""

import errno
import fcntl
import os

import pytest

from isotrain.launch.nodes import NodeError, check_shared
from isotrain.studies.slurm import SlurmJob, SlurmJobs, write_jobs
from tests.processes import loaded_by
from tests.studies.test_call import errors

SLURM = "hydra/launcher=submitit_slurm"


@pytest.fixture
def no_slurm(monkeypatch, tmp_path):
    """A machine without the commands of Slurm."""
    monkeypatch.setenv("PATH", str(tmp_path))


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


def test_submitit_is_imported_when_it_launches():
    code = "import isotrain.app as app; app.isotrain_launchers.register()"
    assert loaded_by(code).isdisjoint({"submitit", "torch"})


def test_a_machine_without_slurm_cannot_submit(fake, capsys, no_slurm):
    (output,) = errors(capsys, fake.run(SLURM))
    assert output == "no sbatch on this machine: start it on a login node of the cluster"
    assert not fake.started


def test_a_machine_without_slurm_shows_the_rest(fake, capsys, no_slurm):
    assert fake.run() == 0
    (fake.runs / "rte").rename(fake.runs / "elsewhere")  # they have yet to run
    jobs = {job.log: SlurmJob(id="7_0", folder=".submitit/7_0") for job in fake.plan.jobs}
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
