"""metrics.jsonl: what is written is what is read."""

import json
import math
from types import SimpleNamespace

import pytest

from isotrain.runs.files import read_records, sha256_of
from isotrain.training.callbacks.collapse import MAJORITY
from isotrain.training.loggers.jsonl import RecordLog, send
from isotrain.training.monitor.callback import RunMonitor
from tests.training.monitor.test_sampling import Calls
from tools.kill_points import untimed


def test_an_old_file_is_replaced_at_the_first_row(tmp_path):
    path = tmp_path / "metrics.jsonl"
    RecordLog(path).log_metrics({"old": 1.0}, step=7)
    logger = RecordLog(path)
    logger.log_metrics({"new": 1.0}, step=0)
    logger.log_metrics({"new": 2.0}, step=1)
    assert [sorted(set(row) - {"step", "time_s"}) for row in read_records(path)] == [["new"]] * 2


def test_values_that_are_not_finite_are_null_and_read_as_nan(tmp_path):
    path = tmp_path / "metrics.jsonl"
    RecordLog(path).log_metrics({"a": math.nan, "b": -math.inf, "c": 1.0}, step=0)
    stored = json.loads(path.read_text(), parse_constant=pytest.fail)
    assert [stored[key] for key in "abc"] == [None, None, 1.0]
    (row,) = read_records(path)
    assert math.isnan(row["a"])
    assert math.isnan(row["b"])
    assert row["c"] == 1.0


LID = {"isotropy/lid/layer_00/cls": 2.0, "isotropy/lid/layer_01/cls": 3.0}


def test_an_evaluation_is_one_record_with_all_its_values(built, tmp_path):
    more = ("task=wic", "isotropy=zca", "metric=[isoscore]", "training.select=holdout")
    experiment = built(*more, "data.holdout=0.25")
    trainer, module, data = experiment.trainer, experiment.module, experiment.data
    log = RecordLog(tmp_path / "metrics.jsonl")
    trainer.loggers = [log]
    trainer.validate(module, datamodule=data, verbose=False)
    trainer.test(module, datamodule=data, verbose=False)
    dev, test = map(untimed, read_records(log.file.path))
    (monitor,) = (x for x in trainer.callbacks if isinstance(x, RunMonitor))
    assert monitor.newest.items() <= dev.items()
    assert {"val/loss", "val/accuracy", "val/n_rows", "holdout/accuracy", MAJORITY} <= dev.keys()
    assert {"val/pooled/energy_kept", "isotropy/isoscore/layer_02/tokens"} <= dev.keys()
    assert {"test/loss", "test/accuracy", "test/scaled_loss"} <= test.keys()
    assert {key.partition("/")[0] for key in test} == {"test", "step"}
    assert {key.partition("/")[0] for key in dev} == {"val", "holdout", "isotropy", "step"}


def test_recorded_steps_have_rates_in_every_logger_and_comparisons_have_none(built, tmp_path):
    more = ("task=wic", "metric=[]", "trainer.max_steps=5", "trainer.log_every_n_steps=2")
    experiment = built(*more, "trainer.accumulate_grad_batches=2")
    log, other = RecordLog(tmp_path / "metrics.jsonl"), Calls()
    experiment.trainer.loggers = [log, other]
    experiment.trainer.fit(experiment.module, datamodule=experiment.data)
    of_steps = [row for row in read_records(log.file.path) if "train/loss" in row]
    assert [row["step"] for row in of_steps] == [1, 3]
    assert [step for step, row in other.rows if "train/loss" in row] == [1, 3]
    for row in (*of_steps, *(row for _, row in other.rows if "train/loss" in row)):
        assert row["speed/tokens_per_second"] > row["speed/examples_per_second"] > 0
        assert not any("_per_second" in key for key in untimed(row))


@pytest.mark.parametrize("headline", [(), ("lid",), ("other",)])
def test_the_file_has_everything_and_other_loggers_the_headline(tmp_path, headline):
    log, other = RecordLog(tmp_path / "metrics.jsonl"), Calls()
    tokens = {f"isotropy/lid/layer_0{k}/tokens": float(k) for k in (0, 1)}
    values = {"val/loss": 0.5, "val/n_rows": 32.0} | LID | tokens
    send(SimpleNamespace(loggers=[log, other]), values, headline, 4)
    (row,) = read_records(log.file.path)
    assert untimed(row) == {"step": 4} | values
    shown = {"isotropy/lid/layer_01/cls": 3.0} | tokens if headline == ("lid",) else {}
    assert other.rows == [(4, {"val/loss": 0.5, **shown})]


def test_a_resumed_file_goes_on_after_the_checkpoint(tmp_path):
    path = tmp_path / "metrics.jsonl"
    first = RecordLog(path)
    for step in range(3):
        first.log_metrics({"a": float(step)}, step)
    kept = first.file.n_bytes
    first.log_metrics({"a": 9.0}, 3)  # after the checkpoint: comes again
    log = RecordLog(path)
    log.resume(kept)
    for step in (3, 4):
        log.log_metrics({"a": float(step)}, step)
    rows = read_records(path)
    assert [(row["step"], row["a"]) for row in rows] == [(k, float(k)) for k in range(5)]
    assert sorted(row["time_s"] for row in rows) == [row["time_s"] for row in rows]
    assert log.file.digest.hexdigest() == sha256_of(path)
