"""Every value of an evaluation, of every cloud, is that of an offline measurement of its rows."""

import numpy as np
import pytest
import torch

from isotrain.metrics.cosine_drift import cosine_drift
from isotrain.metrics.intra_sentence_similarity import intra_sentence_similarity
from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.linear_cka import linear_cka
from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.scatter_ratio import scatter_ratio
from isotrain.metrics.self_similarity import self_similarity
from tests.dev_rows import NO_WORD, dev_passes, monitor_of, rows_of, validated

OF_ROWS = {"isoscore": isoscore, "mean_cosine": mean_cosine}
OF_PAIRS = {"cosine_drift": cosine_drift, "linear_cka": linear_cka}
NAMES = (*OF_ROWS, "scatter_ratio", "self_similarity", "intra_sentence_similarity", *OF_PAIRS)
OVERRIDES = (
    f"metric=[{','.join(NAMES)}]",
    *("isotropy=cluster_pca", "isotropy.n_clusters=2", "site=[layer_1,tokens,pooled]"),
    *("monitor.max_rows=150", "monitor.map_rows=0", "trainer.max_steps=6"),
    "optimizer.lr=1e-2",
)


def by_hand(clouds, references):
    """Every value by key, each metric called with what its rows are known by."""
    expected = {}
    for place, rows in clouds.items():
        x, of_words = rows.x, bool((rows.words != NO_WORD).all())
        assert torch.equal(rows.ids, references[place].ids), "the same rows, after training too"
        found = {"n_rows": len(x)} | {name: metric(x) for name, metric in OF_ROWS.items()}
        found |= {name: f(x, references[place].x) for name, f in OF_PAIRS.items()}
        parts = {"scatter_ratio": classes_of(x, rows.labels)}
        if of_words:
            parts["self_similarity"] = self_similarity(x, rows.words)
            similarity = intra_sentence_similarity(x, rows.sentences)
            parts["intra_sentence_similarity"] = similarity
        for metric, values in parts.items():
            found |= {f"{metric}_{part}": value for part, value in values.items()}
        expected |= {f"isotropy/{name}/{place}": float(value) for name, value in found.items()}
    return expected


def classes_of(x, labels):
    """Scatter between the classes of rows; scores fall into five slices of the kept rows."""
    classes = labels
    if labels.is_floating_point():
        edges = np.quantile(labels.numpy(), [0.2, 0.4, 0.6, 0.8])
        classes = torch.from_numpy(np.searchsorted(edges, labels.numpy()))
    return scatter_ratio(x, classes)


def differing(found, expected):
    """Keys whose value is off by more than 1e-6, absolute or relative, or that one side lacks."""
    assert set(found) == set(expected)
    return {
        key: (found[key], value)
        for key, value in expected.items()
        if found[key] != pytest.approx(value, rel=1e-6, abs=1e-6)
    }


@pytest.mark.parametrize(
    "task",
    [
        ("task=rte",),
        ("task=wic", "task.form=bi", "pooling=spans", "task.prompt=none"),
        ("task=stsb", "task.form=bi", "pooling=mean"),
    ],
    ids=["classes", "two vectors", "scores"],
)
def test_every_value_before_and_after_training(built, task):
    """The rows of step 0 are what drift and CKA compare with, for good."""
    experiment = built(*OVERRIDES, *task)
    before = validated(experiment)
    at_start = rows_of(dev_passes(experiment), max_rows=150)
    assert len(at_start) == 3 * 3 + 2 * 3
    assert len(at_start["layer_00/tokens"].x) == 150
    assert differing(before, by_hand(at_start, at_start)) == {}
    for place in at_start:
        assert before[f"isotropy/cosine_drift/{place}"] == pytest.approx(0.0, abs=1e-12)
        if place != "layer_00/cls":  # one row again and again has no shape to compare
            assert before[f"isotropy/linear_cka/{place}"] == pytest.approx(1.0, abs=1e-12)
    experiment.trainer.fit(experiment.module, datamodule=experiment.data)
    after = validated(experiment)
    now = rows_of(dev_passes(experiment), max_rows=150)
    assert differing(after, by_hand(now, at_start)) == {}
    for place in ("layer_02/tokens", "layer_02/mean", "pooled/before"):
        assert after[f"isotropy/cosine_drift/{place}"] > 1e-4
        assert after[f"isotropy/linear_cka/{place}"] < 1.0 - 1e-6


def test_the_view_last_is_the_last_token_that_is_no_pad(built):
    experiment = built("task=rte", "metric=[mean_cosine]", "monitor.views=[last]")
    values = validated(experiment)
    for number in range(3):
        rows = [
            output.hidden_states[number][a, int(mask.sum()) - 1]
            for batch, output in dev_passes(experiment)
            for a, mask in enumerate(batch.attention_mask)
        ]
        expected = float(mean_cosine(torch.stack(rows)))
        assert values[f"isotropy/mean_cosine/layer_{number:02d}/last"] == pytest.approx(expected)


@pytest.mark.parametrize("views", ["cls", "mean", "tokens", "tokens,cls"])
def test_only_the_views_that_are_asked_for(built, views):
    experiment = built("task=rte", "metric=[isoscore]", f"monitor.views=[{views}]")
    places = {key.split("/", 2)[2] for key in validated(experiment)}
    names = {f"layer_{number:02d}/{view}" for number in range(3) for view in views.split(",")}
    assert places == names | {"pooled/after"}
    assert monitor_of(experiment).views == tuple(views.split(","))


def test_a_row_with_a_nan_is_left_out_and_counted(built):
    """With its label and its reference: values are those of the other rows."""
    experiment = built(*OVERRIDES, "task=rte", "site=[pooled]", "data.eval_batch_size=32")
    validated(experiment)
    (passed,) = dev_passes(experiment)
    at_start = rows_of([passed])
    model, keep = experiment.module.model, torch.tensor([i not in (3, 4, 5) for i in range(32)])

    def broken(_model, _given, output):
        if not model.training:
            output.site_embeddings["pooled"].after[3:6] = float("nan")

    with_hook = model.register_forward_hook(broken)
    values = validated(experiment)
    with_hook.remove()
    batch = passed[0]
    lost = set(batch.index[~keep].tolist())
    rows = at_start["pooled/after"]
    finite = torch.tensor([int(i) // (16 * 65536) not in lost for i in rows.ids])
    expected = scatter_ratio(rows.x[finite], rows.labels[finite])
    assert values["isotropy/n_rows/pooled/after"] == 29
    assert values["isotropy/n_rows_not_finite/pooled/after"] == 3
    assert "isotropy/n_rows_not_finite/pooled/before" not in values
    share = values["isotropy/scatter_ratio_share/pooled/after"]
    assert share == pytest.approx(float(expected["share"]), rel=1e-6)
    assert values["isotropy/cosine_drift/pooled/after"] == pytest.approx(0.0, abs=1e-12)
