"""Missing runs, n at a time: failures, signals, kills, and calls at the same time."""

import json
import os
import re
import signal
import threading

import pytest
from isotrain.jobs import pool
from isotrain.jobs.pool import call_at_work
from isotrain.jobs.process import fresh
from isotrain.studies.plan import check_parts, plan_jobs

from isotrain.commands.plans import run_study
from isotrain.config.compose import plain, run_folder
from isotrain.runs.stored import PlanError
from isotrain.studies.definition import load_study

ORDER = [f"rte-{method}-seed{seed}" for seed in (0, 1, 2) for method in ("none", "mean")]
TABLES = ("table.md", "table.csv", "runs.csv")


def start(fake, n_jobs=1, more=()):
    return run_study(str(fake.file), [*fake.overrides, *more], n_jobs, fake.backend)


def tables(fake):
    return [(fake.folder / name).read_bytes() for name in TABLES]


def test_one_at_a_time_in_plan_order_then_nothing_is_left(fake, capsys):
    assert start(fake) == 0
    events = [line.split()[:2] for line in fake.journal.read_text().splitlines()]
    assert events == [[what, name] for name in ORDER for what in ("start", "end")]
    printed = capsys.readouterr().out
    assert re.match(r"study \w+: checking its 6 runs\n", printed)
    assert "6 runs, 0 finished before, 6 to do, 1 at a time" in printed
    assert "done rte-mean-seed2 (6 of 6 finished, " in printed
    assert (fake.folder / "table.md").read_text() in printed
    jobs = plan_jobs(load_study(str(fake.file)), fake.overrides)
    left = {
        path.parent: json.loads(path.read_text()) for path in fake.runs.glob("rte/*/result.json")
    }
    assert {folder: result["config"] for folder, result in left.items()} == {
        run_folder(job.cfg, "demo-v1-seed0"): plain(job.cfg) for job in jobs
    }
    first = tables(fake)
    assert start(fake, 2) == 0
    assert "6 runs, 6 finished before, 0 to do" in capsys.readouterr().out
    assert len(fake.noted("start")) == 6
    assert tables(fake) == first


def test_at_most_n_at_a_time_and_as_many_as_that(fake, monkeypatch, tmp_path):
    monkeypatch.setenv("MEET", "yes")  # every run waits for a second one beside it
    assert start(fake, 2) == 0
    at_work, most = set(), 0
    for line in fake.journal.read_text().splitlines():
        _what, name, _pid = line.split()
        at_work ^= {name}
        most = max(most, len(at_work))
    assert most == 2
    two_at_a_time = tables(fake)
    monkeypatch.delenv("MEET")
    other = fake.at(tmp_path / "elsewhere")
    assert start(other) == 0
    assert tables(other) == two_at_a_time


def test_a_failure_stops_nothing_is_told_and_is_done_again(fake, monkeypatch, capsys):
    monkeypatch.setenv("FAIL", "rte-none-seed2")
    assert start(fake, 2) == 1
    printed = capsys.readouterr().out
    log = fake.folder / "logs" / "rte-none-seed2.log"
    assert f"exit code 3; {log} ends:\n    first line\n    the reason | in words\n" in printed
    assert re.search(r"failed rte-none-seed2 \([2-5] of 6 finished, ", printed)
    assert "(5 of 6 finished, " in printed
    assert "(6 of 6" not in printed
    assert "5 of 6 runs finished" in printed
    assert "- rte, none, seed 2: not run" in (fake.folder / "table.md").read_text()
    monkeypatch.delenv("FAIL")
    assert start(fake) == 0
    assert sorted(fake.noted("start")) == sorted([*ORDER, "rte-none-seed2"])
    assert "Missing" not in (fake.folder / "table.md").read_text()


def test_exit_code_0_without_a_result_is_a_failure(fake, capsys):
    assert run_study(str(fake.file), fake.overrides, 2, fresh(["true"])) == 1
    assert capsys.readouterr().out.count("failed rte-") == 6
    assert not (fake.folder / "table.md").exists()


def test_a_result_that_cannot_be_read_stops_no_other_run(fake, monkeypatch, capsys):
    found = pool.stored

    def fails_once(folder):
        if "mean-" in folder.name and fake.noted("end") == ORDER[:2]:
            raise PlanError("result.json cannot be read now")
        return found(folder)

    monkeypatch.setattr(pool, "stored", fails_once)
    assert start(fake) == 1
    printed = capsys.readouterr().out
    assert "rte-mean-seed0: result.json cannot be read now" in printed
    assert "failed rte-mean-seed0 (1 of 6 finished, " in printed
    assert fake.noted("end") == ORDER
    assert start(fake) == 0
    assert "0 to do" in capsys.readouterr().out


def test_a_call_is_at_work_while_the_parts_of_its_runs_are_imported(fake, monkeypatch):
    seen = []

    def note(jobs):
        seen.append(call_at_work(fake.folder).pid)
        return check_parts(jobs)

    monkeypatch.setattr("isotrain.commands.plans.check_parts", note)
    assert start(fake) == 0
    assert seen == [os.getpid()]


@pytest.mark.parametrize(("accelerator", "seen"), [("auto", ["5", "6"]), ("cpu", ["5,6"])])
def test_each_run_at_work_has_a_device_of_its_own(fake, monkeypatch, tmp_path, accelerator, seen):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))  # where devices are locked
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,6")
    monkeypatch.setenv("MEET", "yes")  # two and two are at work together
    noted = tmp_path / "devices"
    note = f'echo "$CUDA_VISIBLE_DEVICES" >> {noted}; exec "$0" "$@"'
    command = ["sh", "-c", note, *fake.command]
    overrides = [*fake.overrides, f"trainer.accelerator={accelerator}"]
    assert run_study(str(fake.file), overrides, 2, fresh(command)) == 0
    assert sorted(noted.read_text().split()) == sorted(seen * (6 // len(seen)))


def test_a_refusal_writes_nothing(fake):
    with pytest.raises(PlanError, match="no key sede"):
        start(fake, more=["sede=1"])
    assert not fake.runs.exists()
    assert not fake.journal.exists()


def test_a_place_that_cannot_be_written_to(fake):
    fake.runs.write_text("a file")
    with pytest.raises(PlanError, match=r"cannot write to .*output_dir"):
        start(fake)


def test_a_stop_signal_reaches_the_runs_and_the_next_call_goes_on(fake, monkeypatch, eventually):
    monkeypatch.setenv("HOLD", f"{ORDER[1]},{ORDER[2]}")
    parent = fake.parent(n_jobs=2)
    eventually(lambda: len(fake.noted("start")) == 3 and len(fake.noted("end")) == 1)
    os.killpg(parent.pid, signal.SIGINT)  # as a terminal does
    printed, _ = parent.communicate(timeout=60)
    assert parent.returncode == 128 + signal.SIGINT
    assert sorted(fake.noted("stop")) == ORDER[1:3]
    assert "stopping 2 runs" in printed
    assert "failed" not in printed
    assert start(fake.release(), 2) == 0
    assert fake.noted("start").count(ORDER[0]) == 1
    assert len(fake.noted("end")) == 6


def test_a_second_signal_kills(fake, monkeypatch, eventually):
    monkeypatch.setenv("HOLD", ORDER[0])
    monkeypatch.setenv("STUBBORN", "yes")
    parent = fake.parent()
    eventually(lambda: fake.noted("start"))
    parent.send_signal(signal.SIGTERM)
    assert any("SIGTERM: stopping 1 runs" in line for line in iter(parent.stdout.readline, ""))
    assert parent.poll() is None
    parent.send_signal(signal.SIGTERM)
    parent.communicate(timeout=60)
    assert parent.returncode == 128 + signal.SIGTERM
    assert fake.noted("end") == []


def test_a_signal_that_interrupts_no_wait_stops_too(fake, monkeypatch, eventually):
    """The system may hand it to another thread, or to the main one just before its wait."""
    monkeypatch.setenv("HOLD", ORDER[0])

    def stop():
        eventually(lambda: fake.noted("start"))
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    threading.Thread(target=stop).start()
    assert start(fake) == 128 + signal.SIGTERM
    assert fake.noted("stop") == ORDER[:1]


def test_after_a_kill_only_what_is_missing_is_done(fake, monkeypatch, eventually):
    monkeypatch.setenv("HOLD", ORDER[1])
    parent = fake.parent()
    eventually(lambda: fake.noted("start") == ORDER[:2])
    parent.kill()
    os.kill(fake.pids()[ORDER[1]], signal.SIGKILL)
    parent.communicate()
    assert start(fake.release()) == 0
    assert fake.noted("start") == [*ORDER[:2], *ORDER[1:]]
