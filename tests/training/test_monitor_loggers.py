"""What a logger of a plain Trainer gets of the monitor: few scalars, each with its step."""

import csv

import pytest
import pytorch_lightning as pl
from pytorch_lightning.loggers import CSVLogger

from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.runs.keys import parse_key
from isotrain.training.monitor.callback import RunMonitor
from tests.dev_rows import plain_trainer

METRICS = {"isoscore": isoscore, "mean_cosine": mean_cosine, "outside": lambda x: x.sum().double()}


def few_keys(metrics, n_blocks=2):
    """Tokens of every layer, every view of the last one, and around the site."""
    places = [f"layer_{number:02d}/tokens" for number in range(n_blocks + 1)]
    places += [f"layer_{n_blocks:02d}/{view}" for view in ("cls", "mean")]
    places += ["pooled/before", "pooled/after"]
    return {f"isotropy/{metric}/{place}" for metric in metrics for place in places}


@pytest.mark.parametrize("headline", [["isoscore", "mean_cosine"], ["mean_cosine"], []])
def test_a_csv_file_has_the_few_scalars_of_each_evaluation(built, tmp_path, headline):
    experiment = built("task=rte", "isotropy=mean", "metric=[isoscore]")
    monitor = RunMonitor(METRICS, 500, headline)
    logger = CSVLogger(tmp_path)
    trainer = plain_trainer(tmp_path, monitor, logger)
    trainer.fit(experiment.module, datamodule=experiment.data)
    logger.save()
    with open(f"{logger.log_dir}/metrics.csv") as file:
        lines = list(csv.DictReader(file))
    expected = few_keys(headline)
    written = {key for line in lines for key, value in line.items() if value and parse_key(key)}
    assert written == expected
    for key in expected:
        assert [int(line["step"]) for line in lines if line[key]] == [2, 4]
    of_the_last = {line["step"]: line for line in lines if any(line[key] for key in expected)}
    for key in expected:
        assert float(of_the_last["4"][key]) == pytest.approx(monitor.newest[key])
    n_places = 3 * 3 + 2
    assert sum(key.startswith("isotropy/") for key in monitor.newest) == n_places * 4


def test_the_bar_has_the_metric_that_is_asked_for(built, tmp_path):
    """Names that begin alike are other metrics."""
    experiment = built("task=rte", "isotropy=mean", "metric=[isoscore]")
    metrics = {"isoscore": isoscore, "isoscore_corrected": lambda x: isoscore(x) * 0.0 - 7.0}
    for name in metrics:
        monitor, shown = RunMonitor(metrics, 60, [name, "isoscore"]), []

        class Bar(pl.Callback):
            def on_validation_end(self, trainer, pl_module, shown=shown):
                shown.append(dict(trainer.progress_bar_metrics))

        trainer = plain_trainer(tmp_path, monitor, False)
        trainer.callbacks.append(Bar())
        trainer.validate(experiment.module, datamodule=experiment.data, verbose=False)
        assert set(shown[0]) & set(metrics) == {name}
        expected = monitor.newest[f"isotropy/{name}/layer_02/tokens"]
        assert shown[0][name] == pytest.approx(expected)
