"""The W&B service answers, refuses, falls silent or is not there: the run goes on and ends."""

import json
import re
import subprocess
import sys
import time

import pytest
import wandb

from isotrain.training.loggers.jsonl import RecordLog
from isotrain.training.loggers.wandb_logger import build_wandb_logger
from tests import wandb_record
from tests.wandb_service import Service

KEY = "0123456789" * 4
TIMEOUT_S, SLACK_S = 2.0, 6.0


@pytest.fixture
def service(monkeypatch, tmp_path):
    """A service that runs find by their environment; W&B's own process starts anew for it."""
    wandb.teardown()
    found = Service()
    for name in ("WANDB_MODE", "WANDB_DATA_DIR", "WANDB_ERROR_REPORTING"):
        monkeypatch.delenv(name, raising=False)
    for name, value in (("WANDB_BASE_URL", found.url), ("WANDB_API_KEY", KEY), ("HOME", tmp_path)):
        monkeypatch.setenv(name, str(value))
    yield found
    found.close()
    wandb.teardown()


@pytest.fixture
def begin(tmp_path):
    """Begins a run in a folder of its own; its logger."""
    return lambda **more: build_wandb_logger(
        "project", "group", save_dir=tmp_path, name="run", timeout_s=TIMEOUT_S, **more
    )


def rows_of(record):
    return [row["a"] for row in wandb_record.scalars(record)]


def test_a_run_that_is_online(service, begin, tmp_path, capfd):
    logger = begin(tags=["one", "two"])
    logger.log_hyperparams({"optimizer": {"lr": 0.1}})
    for step in range(3):
        logger.log_metrics({"a": step}, step)
    logger.close(failed=False)
    sent = "\n".join(service.bodies)
    upsert = next(body for body in service.bodies if "UpsertBucket" in body)
    found = json.loads(upsert.partition(" ")[2])["variables"]
    assert (found["groupName"], found["jobType"], found["displayName"]) == ("group", "train", "run")
    assert found["tags"] == ["one", "two"]
    assert re.search(r"optimizer.*lr.*0\.1", sent)
    stream = [
        json.loads(body.partition(" ")[2]) for body in service.bodies if "file_stream" in body
    ]
    lines = [
        json.loads(line)
        for part in stream
        for line in part.get("files", {}).get("wandb-history.jsonl", {}).get("content", [])
    ]
    assert [(line["trainer/global_step"], line["a"]) for line in lines] == [(0, 0), (1, 1), (2, 2)]
    assert stream[-1]["complete"] is True
    assert stream[-1]["exitcode"] == 0
    assert "offline" not in capfd.readouterr().out


def test_a_resumed_run_goes_on_from_the_row_that_the_service_has_got_to(service, tmp_path, begin):
    service.n_rows = 5
    logger = begin()
    assert logger.n_records_held == 5
    log = RecordLog(tmp_path / "metrics.jsonl", [logger])
    rows = [json.dumps({"step": step, "time_s": 1.0, "a": step}) + "\n" for step in range(7)]
    log.file.path.write_text("".join(rows))
    log.resume(log.file.path.stat().st_size)
    log.log_metrics({"a": 7}, 7)
    logger.close(failed=False)
    assert rows_of(wandb_record.newest(tmp_path)) == [5, 6, 7]


@pytest.mark.parametrize("how", ["silent", "refuses", "gone"])
def test_a_service_that_does_not_take_the_run_leaves_it_offline(
    service, begin, tmp_path, capfd, how
):
    if how == "gone":
        service.close()
    service.silent, service.status = how == "silent", 403 if how == "refuses" else 200
    (tmp_path / "wandb_id").write_text("abcd1234")
    started = time.monotonic()
    logger = begin()
    logger.log_metrics({"a": 1.0}, 0)
    logger.close(failed=False)
    assert time.monotonic() - started < TIMEOUT_S + SLACK_S
    record = wandb_record.newest(tmp_path, "offline-run-*")
    assert rows_of(record) == [1.0]
    assert record.name == "run-abcd1234.wandb"
    assert wandb_record.exit_codes(record) == [0]
    printed = capfd.readouterr().out
    assert "this run is logged offline" in printed
    assert f"wandb sync {record.parent}" in printed
    assert KEY not in printed


@pytest.mark.parametrize("how", ["silent", "refuses", "gone"])
def test_a_service_that_is_lost_on_the_way_costs_no_more_than_the_timeout(
    service, begin, tmp_path, capfd, how
):
    logger = begin()
    logger.log_metrics({"a": 1.0}, 0)
    service.silent, service.status = how == "silent", 403 if how == "refuses" else 200
    if how == "gone":
        service.close()
    started = time.monotonic()
    for step in (1, 2):
        logger.log_metrics({"a": 1.0 + step}, step)
    logger.close(failed=False)
    assert time.monotonic() - started < TIMEOUT_S + SLACK_S
    record = wandb_record.newest(tmp_path)
    assert rows_of(record) == [1.0, 2.0, 3.0]
    told = f"within 2 s; send the rest with: wandb sync --include-online {record.parent}"
    out, err = capfd.readouterr()
    assert told in out or (how == "refuses" and "still be written to disk" in err)


KILLED = """
import os, sys, time
from isotrain.training.loggers.jsonl import RecordLog
from isotrain.training.loggers.wandb_logger import build_wandb_logger
logger = build_wandb_logger("project", None, save_dir=sys.argv[1], name="run")
log = RecordLog(sys.argv[1] + "/metrics.jsonl", [logger])
for step in range(400):
    log.log_metrics({"a": step}, step)
time.sleep(0.5)
os._exit(9)
"""


@pytest.mark.parametrize(
    ("first", "synced_between", "ids"),
    [
        ("killed", False, ["abcd1234"]),
        ("closed", True, ["abcd1234"]),
        ("killed", True, ["abcd1234", "abcd1234-2"]),
        ("online", False, ["abcd1234", "abcd1234-2"]),
    ],
)
def test_a_run_resumed_offline_is_sent_once(
    service, begin, tmp_path, monkeypatch, first, synced_between, ids
):
    def opened():
        log = RecordLog(tmp_path / "metrics.jsonl", [logger := begin()])
        lines = log.file.path.read_bytes().splitlines(keepends=True)[:350]  # of a checkpoint
        log.resume(sum(map(len, lines)))
        for step in range(len(lines), 500 if lines else 400):
            log.log_metrics({"a": step}, step)
        logger.close(failed=not lines)

    def sync(*names):
        command = [sys.executable, "-m", "wandb", "sync", *(names or ["--yes"])]
        subprocess.run(command, check=True, cwd=tmp_path, capture_output=True, timeout=120)

    (tmp_path / "wandb_id").write_text("abcd1234")
    (tmp_path / "metrics.jsonl").touch()
    monkeypatch.setenv("WANDB_MODE", "online" if first == "online" else "offline")
    if first == "killed":
        subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=120)
    else:
        opened()
    if synced_between:
        sync()
    time.sleep(1.1)  # W&B names its folders by the second
    monkeypatch.setenv("WANDB_MODE", "offline")
    opened()
    for folder in sorted(tmp_path.glob("wandb/offline-run-*"), reverse=True):
        sync(str(folder))
    sync()
    assert sorted(service.rows) == ids
    for rows in service.rows.values():
        steps = [row["trainer/global_step"] for row in rows.values()]
        assert len(set(steps)) == len(steps)
    assert steps == list(range(500)), "the last run is complete"


def test_a_run_killed_before_it_has_caught_up_does_not_hide_what_was_logged(
    service, begin, tmp_path, monkeypatch
):
    monkeypatch.setenv("WANDB_MODE", "offline")
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], timeout=120)
    logger = begin()
    logger.log_metrics({"a": 0}, 0)
    assert not list(tmp_path.glob("wandb/*/*.synced"))
    logger.close(failed=False)
    assert len(list(tmp_path.glob("wandb/*/*.synced"))) == 1


CHILD = """
import sys, time
from isotrain.training.loggers.wandb_logger import build_wandb_logger
logger = build_wandb_logger("p", None, save_dir=sys.argv[1], name="run", timeout_s=1.0)
logger.log_metrics({"a": 1.0}, 0)
logger.close(failed=False)
print("closed", time.time(), flush=True)
"""


@pytest.mark.campaign
def test_the_process_ends_at_once_when_nothing_answers(service, tmp_path):
    """W&B's reports about itself would hold it for another 20 s."""
    service.silent = True
    command = [sys.executable, "-c", CHILD, str(tmp_path)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    closed_at = float(child.stdout.split("closed ")[1])
    assert time.time() - closed_at < 5
    assert "logged offline" in child.stdout
    assert rows_of(wandb_record.newest(tmp_path, "offline-run-*")) == [1.0]
