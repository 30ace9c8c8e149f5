"""Rows of training steps: measured as training sees them, and training does not notice."""

import pytest
import torch

from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.scatter_ratio import scatter_ratio
from isotrain.metrics.self_similarity import self_similarity
from isotrain.runs.files import read_records
from isotrain.runs.keys import few, parse_key
from isotrain.training.loggers.jsonl import RecordLog
from tests.dev_rows import rows_of, validated
from tests.stopped_runs import differing
from tests.training.monitor.test_sampling import Calls

OVERRIDES = (
    *("task=wic", "isotropy=cluster_pca", "isotropy.n_clusters=2", "site=[tokens,pooled]"),
    *("metric=[isoscore,scatter_ratio,self_similarity,cosine_drift]", "monitor.max_rows=40"),
    "metric.self_similarity.function.min_count=2",
    *("trainer.max_steps=6", "trainer.max_epochs=2", "checkpoint.every_steps=0"),
)
ACCUMULATED = "trainer.accumulate_grad_batches=2"
TWO_VIEWS = ("objective=[simcse]", "objective.simcse.positives=dropout")


def fitted(experiment, folder, *loggers):
    """The rows that were logged of training steps, after a fit."""
    log = RecordLog(folder / "metrics.jsonl")
    experiment.trainer.loggers = [log, *loggers]
    experiment.trainer.fit(experiment.module, datamodule=experiment.data)
    rows = read_records(folder / "metrics.jsonl")
    return [row for row in rows if any(key.startswith("train_isotropy/") for key in row)]


def passes_of_steps(experiment):
    """What the model gives in training by the step under way: (batch, output), view by view."""
    found = {}

    def look(model, given, output):
        if model.training and torch.is_grad_enabled():
            step = experiment.trainer.global_step + 1
            found.setdefault(step, []).append((given[0], output))

    experiment.module.model.register_forward_hook(look)
    return found


def by_hand(passes, max_rows=40):
    expected = {}
    for place, rows in rows_of(passes, max_rows).items():
        found = {"n_rows": len(rows.x), "isoscore": isoscore(rows.x)}
        ratio = scatter_ratio(rows.x, rows.labels)
        found |= {f"scatter_ratio_{name}": value for name, value in ratio.items()}
        if place.startswith("tokens") or place.endswith("/tokens"):
            words = self_similarity(rows.x, rows.words, min_count=2)
            found |= {f"self_similarity_{name}": value for name, value in words.items()}
        expected |= {f"train_isotropy/{name}/{place}": float(v) for name, v in found.items()}
    return expected


@pytest.mark.parametrize(
    ("every", "more", "n_views", "n_batches"),
    [
        (1, (), 1, 1),
        (3, (ACCUMULATED,), 1, 2),
        (2, TWO_VIEWS, 2, 1),
        (2, (*TWO_VIEWS, ACCUMULATED), 2, 2),
    ],
)
def test_values_are_those_of_the_batches_of_a_step(
    built, tmp_path, every, more, n_views, n_batches
):
    experiment = built(*OVERRIDES, *more, f"monitor.every_steps={every}", "data.batch_size=12")
    passes = passes_of_steps(experiment)
    rows = fitted(experiment, tmp_path)
    assert [row["step"] for row in rows] == [*range(every, 7, every)]
    for row in rows:
        assert len(passes[row["step"]]) == n_views * n_batches
        first_views = passes[row["step"]][::n_views]
        found = {key: value for key, value in row.items() if parse_key(key)}
        assert found == pytest.approx(by_hand(first_views), rel=1e-6, abs=1e-6)
        assert not any("cosine_drift" in key for key in found), "there is no step 0 of these rows"
    assert not any(
        parse_key(key).rows == "isotropy" for row in rows for key in row if parse_key(key)
    )


@pytest.mark.parametrize("more", [(), (ACCUMULATED,), TWO_VIEWS])
def test_training_is_bit_identical_with_and_without(built, tmp_path, more):
    """Dropout draws from the global state: whatever drew there too would show."""
    weights = []
    for every in (0, 2):  # in some steps alone, so there are also steps after one that is measured
        experiment = built(*OVERRIDES, *more, f"monitor.every_steps={every}")
        folder = tmp_path / str(every)
        folder.mkdir()
        assert bool(fitted(experiment, folder)) == bool(every)
        state = experiment.module.state_dict()
        weights.append({name: tensor.clone() for name, tensor in state.items()})
    without, measured = weights
    assert differing(without, measured) == []


def test_other_loggers_get_the_headline_of_a_step(built, tmp_path):
    other = Calls()
    experiment = built(*OVERRIDES, "monitor.every_steps=3", "monitor.headline=[isoscore]")
    rows = fitted(experiment, tmp_path, other)
    assert [row["step"] for row in rows] == [3, 6]
    given = [(s, r) for s, r in other.rows if any(k.startswith("train_isotropy/") for k in r)]
    assert [step for step, _ in given] == [3, 6]
    for row, (_, scalars) in zip(rows, given, strict=True):
        isotropy = {key: value for key, value in row.items() if parse_key(key)}
        assert scalars == few(isotropy, ["isoscore"])
        assert 0 < len(scalars) < len(isotropy)


def test_training_rows_without_labels_have_no_label_geometry(built, tmp_path):
    """Sentences of running text have none; the pairs of dev have scores."""
    experiment = built(
        *("task=text", "objective=[simcse]", "metric=[isoscore,scatter_ratio]"),
        *("monitor.every_steps=1", "trainer.max_steps=2", "checkpoint.every_steps=0"),
    )
    with pytest.warns(UserWarning, match="isotropy/scatter_ratio is left out .*two classes"):
        rows = fitted(experiment, tmp_path)
    assert [row["step"] for row in rows] == [1, 2]
    for row in rows:
        assert "train_isotropy/isoscore/layer_02/tokens" in row
        assert not any("scatter_ratio" in key for key in row)
    assert "isotropy/scatter_ratio_share/layer_02/tokens" in validated(experiment)
