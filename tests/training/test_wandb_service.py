"""The W&B service answers, refuses or falls silent: the run goes on and ends."""

import json
import re
import subprocess
import sys
import time

import pytest
import wandb

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


@pytest.mark.parametrize("how", ["silent", "refuses"])
def test_a_service_that_does_not_take_the_run_leaves_it_offline(
    service, begin, tmp_path, capfd, how
):
    service.silent, service.refuses = how == "silent", how == "refuses"
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


def test_a_service_that_is_lost_on_the_way_costs_no_more_than_the_timeout(
    service, begin, tmp_path, capfd
):
    logger = begin()
    logger.log_metrics({"a": 1.0}, 0)
    service.silent = True
    started = time.monotonic()
    for step in (1, 2):
        logger.log_metrics({"a": 1.0 + step}, step)
    logger.close(failed=False)
    assert time.monotonic() - started < TIMEOUT_S + SLACK_S
    record = wandb_record.newest(tmp_path)
    assert rows_of(record) == [1.0, 2.0, 3.0]
    message = f"within 2 s; send the rest with: wandb sync --include-online {record.parent}"
    assert message in capfd.readouterr().out


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
