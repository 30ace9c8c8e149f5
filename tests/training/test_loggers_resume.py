"""W&B and TensorBoard after a run was stopped and resumed: every row once."""

from __future__ import annotations

import json
import os
import signal
import struct

import pytest
from pytorch_lightning.utilities.exceptions import SIGTERMException
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from isotrain.config.compose import run_folder
from isotrain.row_file import read_rows
from isotrain.run import run, with_threads
from isotrain.training.fine_tuning import FineTuning

BLOCK = 32 * 1024


def wandb_records(path):
    """The records of a `.wandb` file: a LevelDB log of protobuf messages behind a 7-byte header."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, place, parts = path.read_bytes(), 7, []
    while place + 7 <= len(content):
        left = BLOCK - place % BLOCK
        if left < 7:
            place += left
            continue
        _crc, length, kind = struct.unpack("<IHB", content[place : place + 7])
        parts.append(content[place + 7 : place + 7 + length])
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part of one
            record = Record()
            record.ParseFromString(b"".join(parts))
            yield record
            parts = []


def history(path):
    for record in wandb_records(path):
        if record.WhichOneof("record_type") == "history":
            yield {
                "/".join(item.nested_key) or item.key: json.loads(item.value_json)
                for item in record.history.item
            }


def test_every_row_once(composed, small, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    cfg = composed(
        *small,
        *("task=wic", "metric=[]", "logger=[wandb,tensorboard]", "trainer.log_every_n_steps=2"),
        *("checkpoint.every_steps=3", "cache_dir=null", f"output_dir={tmp_path}"),
    )
    original = FineTuning.training_step

    def stopping(how, at):
        def step(self, batch, batch_idx):
            if batch_idx == at:
                how()
            return original(self, batch, batch_idx)

        return step

    def fail():
        raise RuntimeError("stopped")

    for how, at in ((fail, 7), (lambda: os.kill(os.getpid(), signal.SIGTERM), 9)):
        with monkeypatch.context() as patch:
            patch.setattr(FineTuning, "training_step", stopping(how, at))
            with pytest.raises((RuntimeError, SIGTERMException)):
                run(cfg, "arm")
    run(cfg, "arm")
    folder = run_folder(with_threads(cfg), "arm")
    rows = read_rows(folder / "metrics.jsonl")
    assert [row["step"] for row in rows if "train/loss" in row] == [1, 3, 5, 7, 9, 11]
    losses = [(row["step"], row["train/loss"]) for row in rows if "train/loss" in row]

    tries = sorted(
        folder.glob("wandb/offline-run-*/*.wandb"), key=lambda path: path.stat().st_mtime
    )
    assert len({path.name for path in tries}) == 1, "one id over all tries"
    sent = list(history(tries[-1]))
    assert len(sent) == len(rows), "the newest folder has every row"
    assert [r["train/loss"] for r in sent if "train/loss" in r] == [loss for _, loss in losses]
    assert [r["trainer/global_step"] for r in sent] == [row["step"] for row in rows]

    events = EventAccumulator(str(folder / "tensorboard"), purge_orphaned_data=True)
    events.Reload()
    found = [(event.step, pytest.approx(event.value)) for event in events.Scalars("train/loss")]
    assert found == losses
    assert len(events.Scalars("val/accuracy")) == sum("val/accuracy" in row for row in rows)
