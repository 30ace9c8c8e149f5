"""A study on two nodes of Ray that lose workers, nodes or their command: the bytes of joblib's."""

import os
import re
import signal
import time
from contextlib import suppress
from pathlib import Path

import pytest

from isotrain.launch.ray import _connected
from isotrain.runs.files import read_result
from isotrain.runs.stored import PlanError
from tests.studies.test_kill import (
    METHOD,
    RUN,
    call,
    finished,
    owners,
    owners_at_a_checkpoint,
    placed,
    runs,
    started,
    tables,
    wait_until,
)

pytestmark = pytest.mark.cluster
STUDY = """
overrides: [encoder=tiny, encoder.width=16, source=demo, trainer.accelerator=cpu, report=false,
            data.batch_size=16, monitor.max_rows=64, 'metric=[isoscore]', monitor.map_rows=0,
            checkpoint.final=false, checkpoint.every_steps=2, trainer.max_steps=16, data.n_dev=64,
            data.n_test=64]
tasks: {rte: [task=rte]}
methods:
  none: [isotropy=none]
  cluster_pca: [isotropy=cluster_pca]
baseline: none
seeds: [0, 1]
"""
EIGHT = STUDY.replace("[0, 1]", "[0, 1, 2, 3]")
COUNTED = '(Path(".") / "tries").open("a").write("x")\n    how = '


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one CPU each."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "node_name": "n1", "include_dashboard": False}
    both = Cluster(initialize_head=True, head_node_args=head)
    both.add_node(num_cpus=1, node_name="n2")
    yield both
    both.shutdown()


@pytest.fixture(scope="module")
def on_ray(cluster):
    """The command that runs the study there."""
    place = f"hydra.launcher.ray.init.address={cluster.address}"
    return (*RUN, "hydra/launcher=ray", place)


@pytest.fixture(autouse=True)
def one_code(monkeypatch):
    """Tables name the code, which may change meanwhile; Ray's nodes were started without these."""
    monkeypatch.setenv("GIT_DIR", os.devnull)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def place(tmp_path):
    return placed(tmp_path, STUDY)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a study of eight runs by joblib."""
    folder = placed(tmp_path_factory.mktemp("whole"), EIGHT)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GIT_DIR", os.devnull)
        patch.setenv("OMP_NUM_THREADS", "1")
        call(folder, timeout=900)
    assert len(runs(folder)) == 8
    return folder


def assert_same(folder, whole, n=4):
    """`n` runs ended, with the bytes of joblib's."""
    own, of_all = runs(folder), runs(whole)
    assert len(own) == n
    assert own == {name: of_all[name] for name in own}


def records(folder):
    return [read_result(path.parent) for path in (folder / "runs" / "rte").glob("*/result.json")]


def end_all(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def workers(node, pids):
    """Those of the processes that a node has started."""
    raylets = {one.process.pid for one in node.all_processes["raylet"]}
    return [pid for pid in pids if parent(pid) in raylets]


def parent(pid):
    """The process that started another, None if that has ended."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_a_study_is_that_of_joblib(tmp_path, whole, on_ray):
    place = placed(tmp_path, EIGHT)
    said = call(place, *on_ray, timeout=900)
    assert "8 to do, as many at a time as there is room for" in said
    assert len(re.findall(r"^done rte-\w+-seed\d: ", said, re.MULTILINE)) == 8
    assert_same(place, whole, 8)
    assert tables(place) == tables(whole)
    assert {one["place"]["host"] for one in records(place)} == {"n1", "n2"}
    assert len({one["place"]["job"] for one in records(place)}) == 8


def test_a_run_that_raises_is_not_repeated(tmp_path, on_ray):
    text = STUDY.replace("\n  cluster_pca: [isotropy=cluster_pca]\n", METHOD)
    place = placed(tmp_path, text.replace("[0, 1]", "[0]"))
    mine = place / "mine.py"
    mine.write_text(mine.read_text().replace("how = ", COUNTED, 1))
    (place / "fail").write_text("raise")
    said = call(place, *on_ray, code=1, timeout=900)
    assert re.search("failed rte-mine-seed0: .*no ink", said)
    assert "done rte-none-seed0" in said
    assert (place / "tries").read_text() == "x"


def test_a_command_ends_its_tasks_and_goes_on(place, whole, on_ray):
    before = {}
    for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        command = started(place, *on_ray)
        wait_until(lambda: owners_at_a_checkpoint(place), command)
        command.send_signal(how)
        assert command.wait(timeout=300) == (-how if how == signal.SIGKILL else 128 + how)
        deadline = time.monotonic() + 300
        while owners(place):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert finished(place).items() >= before.items(), "no finished run is trained again"
        before = finished(place)
        assert len(before) < 4
        if how != signal.SIGKILL:
            assert "study killed: stopped; the same command goes on" in (place / "log").read_text()
            assert "failed" not in (place / "log").read_text()
    call(place, *on_ray, timeout=900)
    assert_same(place, whole)
    assert any(one["resumed_after_step"] for one in records(place))


def test_a_worker_that_is_lost_for_good_fails_its_run_alone(place, whole, on_ray):
    command = started(place, *on_ray, "hydra.launcher.ray.remote.max_retries=0")
    end_all(wait_until(lambda: owners_at_a_checkpoint(place), command)[:1])
    assert command.wait(timeout=900) == 1
    said = (place / "log").read_text()
    assert re.search(
        r"failed rte-\w+-seed\d-\w+: WorkerCrashedError: its worker died, and Ray gave up after 0 "
        r"retries \(hydra\.launcher\.ray\.remote\.max_retries\); the same command goes on",
        said,
    )
    assert_same(place, whole, 3)


def test_runs_of_a_killed_worker_and_of_a_lost_node_end_elsewhere(tmp_path, whole, on_ray, cluster):
    place = placed(tmp_path, EIGHT)
    command = started(place, *on_ray, "rerun=true")
    head, (other,) = cluster.head_node, cluster.worker_nodes
    end_all(wait_until(lambda: workers(head, owners_at_a_checkpoint(place)), command))
    wait_until(lambda: finished(place) and workers(other, owners(place)), command)
    cluster.remove_node(other, allow_graceful=False)
    assert command.wait(timeout=900) == 0, (place / "log").read_text()
    assert_same(place, whole, 8)
    assert any(one["resumed_after_step"] for one in records(place))


def test_an_address_at_which_nothing_listens_is_an_error_at_once():
    began = time.monotonic()
    with pytest.raises(PlanError, match=r"Ray cannot be reached \(.*refused.*; start it with"):
        _connected({"address": "127.0.0.1:1"})
    assert time.monotonic() - began < 60
