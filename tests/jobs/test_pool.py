"""What the pool makes of a job that cannot start, and of an old record beside a new failure."""

import json
import sys

import pytest

from isotrain.config.compose import compose_run
from isotrain.jobs.archive import job_of
from isotrain.jobs.pool import Pool, call_at_work
from isotrain.jobs.process import fresh

WRITES = (
    "import json, pathlib, sys; folder = pathlib.Path(sys.argv[1]);"
    "folder.mkdir(exist_ok=True);"
    "(folder / 'result.json').write_text(json.dumps({'status': 'finished', 'scores': {}}))"
)


def planned(name, folder, rerun=False):
    cfg = compose_run(["task=rte", "encoder=tiny", "source=demo", "threads=1"])
    return job_of(cfg, "none", (), label=name, rerun=rerun)._replace(folder=folder)


def starting(code, fails=()):
    """A backend whose processes run `code` with the job's folder; some cannot be started."""

    def start(job, file, log, environment, locks):
        if file.stem in fails:
            raise OSError("no process can be started")
        folder = str(log.parents[2] / file.stem)
        command = [sys.executable, "-I", "-S", "-c", code, folder]
        return fresh(command)(job, file, log, environment, locks)

    return start


def test_a_job_that_cannot_start_fails_alone(tmp_path, capsys):
    jobs = [planned(name, tmp_path / name) for name in ("a", "b")]
    with Pool(tmp_path / "pool", 1, "pool", starting(WRITES, fails="a")) as pool:
        assert pool.run(jobs) == 1
        assert not pool.received
    assert "failed a: no process can be started" in capsys.readouterr().out
    assert (tmp_path / "b" / "result.json").is_file()


@pytest.mark.parametrize(("code", "n_unfinished"), [(WRITES, 0), ("raise SystemExit(1)", 1)])
def test_a_rerun_is_judged_by_its_own_record(tmp_path, code, n_unfinished):
    job = planned("a", tmp_path / "a", rerun=True)
    job.folder.mkdir()
    (job.folder / "result.json").write_text(json.dumps({"status": "finished", "scores": {}}))
    with Pool(tmp_path / "pool", 1, "pool", starting(code)) as pool:
        assert pool.run([job]) == n_unfinished


@pytest.mark.parametrize(
    ("pid", "known"), [(77, (77, "here", 2)), (-1, None), ("x", None), (2.5, None)]
)
def test_a_call_is_a_process_and_no_group(tmp_path, monkeypatch, pid, known):
    monkeypatch.setattr("isotrain.runs.locks.is_locked", lambda path: True)
    (tmp_path / "lock").write_text(json.dumps({"pid": pid, "n": 2, "host": "here"}))
    assert call_at_work(tmp_path) == known
