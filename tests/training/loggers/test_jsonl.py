"""metrics.jsonl: what is written is what is read."""

import json
import math

import pytest
import torch

from isotrain.runs.files import read_records
from isotrain.runs.keys import few
from isotrain.training.callbacks.collapse import MAJORITY
from isotrain.training.loggers.jsonl import RecordLog
from isotrain.training.monitor.callback import IsotropyMonitor
from tests.training.monitor.test_sampling import Calls
from tools.kill_points import untimed


def test_rows_come_back_in_order_with_their_steps(tmp_path):
    path = tmp_path / "metrics.jsonl"
    logger = RecordLog(path)
    logger.log_metrics({"a": 1.5}, step=0)
    logger.log_metrics({"a": 2.5, "b/c": -1.0}, step=10)
    rows = read_records(path)
    assert [(row["step"], row["a"]) for row in rows] == [(0, 1.5), (10, 2.5)]
    assert rows[1]["b/c"] == -1.0
    assert 0 <= rows[0]["time_s"] <= rows[1]["time_s"]
    assert len(path.read_text().splitlines()) == 2


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


# --- the hub ----------------------------------------------------------------------------------

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
    (monitor,) = (x for x in trainer.callbacks if isinstance(x, IsotropyMonitor))
    assert monitor.newest.items() <= dev.items()
    assert {"val/loss", "val/accuracy", "val/n_rows", "holdout/accuracy", MAJORITY} <= dev.keys()
    assert {"val/pooled/energy_kept", "isotropy/isoscore/layer_02/tokens"} <= dev.keys()
    assert {"test/loss", "test/accuracy", "test/scaled_loss"} <= test.keys()
    assert {key.partition("/")[0] for key in test} == {"test", "step"}
    assert {key.partition("/")[0] for key in dev} == {"val", "holdout", "isotropy", "step"}


def test_rates_are_those_since_the_last_record_of_training_and_no_part_of_comparisons(tmp_path):
    other = Calls()
    log = RecordLog(tmp_path / "metrics.jsonl", [other])
    log.count(8, torch.tensor(100), 0.5)
    log.log_metrics({"val/loss": 1.0}, step=0)
    log.count(8, torch.tensor(60), 1.5)
    log.log_metrics({"train/loss": 1.0}, step=1)
    log.log_metrics({"train/loss": 1.0}, step=2)
    rates = {"speed/examples_per_second": 8.0, "speed/tokens_per_second": 80.0}
    _, one, two = read_records(log.file.path)
    assert {key: one[key] for key in rates} == rates
    assert untimed(one) == {"step": 1, "train/loss": 1.0}
    assert not rates.keys() & two.keys()
    assert [row for _, row in other.rows][1] == {"train/loss": 1.0, **rates}


def test_other_loggers_get_no_flat_lines_and_no_line_twice(tmp_path):
    counts = {"val/n_rows": 32.0, "val/loss": 1.0}
    assert few(counts, ()) == {"val/loss": 1.0}
    assert few({"train/loss": 0.5, "train/task_loss": 0.5}, ()) == {"train/loss": 0.5}
    both = {"train/loss": 0.6, "train/task_loss": 0.5, "train/cosreg": 0.1}
    assert few(both, ()) == both


@pytest.mark.parametrize("headline", [(), ("lid",), ("other",)])
def test_the_file_has_everything_and_other_loggers_the_headline(tmp_path, headline):
    other = Calls()
    log = RecordLog(tmp_path / "metrics.jsonl", [other], headline)
    tokens = {f"isotropy/lid/layer_0{k}/tokens": float(k) for k in (0, 1)}
    log.log_metrics({"val/loss": 0.5} | LID | tokens, step=4)
    (row,) = read_records(log.file.path)
    assert row.items() >= (LID | tokens).items()
    shown = {"isotropy/lid/layer_01/cls": 3.0} | tokens if headline == ("lid",) else {}
    assert other.rows == [(4, {"val/loss": 0.5, **shown})]
