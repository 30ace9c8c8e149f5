"""The composition root: what it wires, and what it rejects."""

import pytest
import torch

from isotrain.transforms.cluster_pca import ClusterPCA

PROJECTION = "objective.simcse.projection=mlp"


def test_parts_are_those_of_the_configuration(built):
    experiment = built(
        "task=wic",
        "task.form=bi",
        "pooling=spans",
        "task.prompt=none",
        "isotropy=cluster_pca",
        "isotropy.n_clusters=3",
        "site=[layer_2,pooled]",
        "seed=4",
        "objective=[cosreg]",
        "metric=[partition]",
        "monitor.headline=[partition]",
    )
    model = experiment.module.model
    assert set(model.transforms) == {"layer_2", "pooled"}
    for layer in model.transforms.values():
        assert isinstance(layer, ClusterPCA)
        assert (layer.n_clusters, layer.warm_KD.shape[1], layer.seed) == (3, 16, 4)
    assert model.transforms["layer_2"] is not model.transforms["pooled"]
    assert model.head.n_vectors == 2
    assert list(experiment.module.extra.objectives) == ["cosreg"]
    assert experiment.data.n_rows == {"train": 96, "dev": 32, "test": 32}
    assert experiment.source_id.startswith("tiny random BERT")
    assert experiment.n_parameters["total"] == sum(p.numel() for p in model.parameters())


OBJECTIVE, BLOCK = ("objective=[simcse]", PROJECTION), "model.encoder.model.encoder.layer."


@pytest.mark.parametrize(
    ("part", "prefix", "others"),
    [
        *((OBJECTIVE, "extra.", others) for others in ((), ("training.reinit_blocks=2",))),
        (OBJECTIVE, "extra.", ("peft=lora",)),
        *((("training.reinit_blocks=1",), f"{BLOCK}1.", others) for others in ((), OBJECTIVE)),
        *((("peft=lora",), BLOCK, others) for others in ((), OBJECTIVE)),
    ],
)
def test_a_part_that_draws_changes_no_other_start_nor_the_first_dropout(
    built, part, prefix, others
):
    found = []
    for overrides in (others, (*others, *part)):
        module = built("task=rte", "metric=[]", "seed=5", *overrides).module.train()
        state = {k.replace(".base_layer", ""): x for k, x in module.state_dict().items()}
        found.append((state, torch.nn.functional.dropout(torch.ones(64))))
    (without, dropout), (with_part, dropout_with) = found
    assert dropout.equal(dropout_with)
    differing = {k for k, x in with_part.items() if k not in without or not x.equal(without[k])}
    assert differing
    assert without.keys() <= with_part.keys()
    assert all(name.startswith(prefix) for name in differing)


def test_rng_streams_follow_the_seed_and_the_name(built):
    def weights(seed, *more):
        names = "objective=[simcse,supcon]"
        both = (PROJECTION, "objective.supcon.projection=mlp", "task=rte")
        parts = built("metric=[]", f"seed={seed}", names, *both, *more).module.extra.parts
        return [parts[name].projection[0].weight.detach() for name in ("simcse", "supcon")]

    one, same, other = weights(1), weights(1, "training.reinit_blocks=1"), weights(2)
    assert all(a.equal(b) for a, b in zip(one, same, strict=True))
    assert not one[0].equal(other[0])
    assert not one[0].equal(one[1])


@pytest.mark.parametrize("group", ["task", "source", "freezing", "isotropy", "objective.cosreg"])
def test_a_key_that_no_signature_tells_is_reported_with_its_part(built, group):
    with pytest.raises(ValueError, match=rf"^{group} cannot be made: .*'formm'.* that isotrain\."):
        built("task=rte", "objective=[cosreg]", "isotropy=cluster_pca", f"+{group}.formm=x")


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_shipped_optimizer_and_clipping_work_at_each_precision(built, precision):
    experiment = built(
        "task=rte", f"trainer.precision={precision}", "trainer.max_steps=2", "isotropy=cluster_pca"
    )
    experiment.trainer.validate(experiment.module, datamodule=experiment.data, verbose=False)
    experiment.trainer.fit(experiment.module, datamodule=experiment.data)
    assert experiment.trainer.global_step == 2
    assert {p.dtype for p in experiment.module.parameters()} == {torch.float32}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["metric=[lid]", "metric.lid.function.n_neighbors=0"], r"metric\.lid, .*n_neighbors"),
        (["metric=[lid]", "monitor.max_rows=50"], r"metric\.lid, tried on 50 rows: .*n_neighbors"),
        (
            ["metric=[label_silhouette]", "metric.label_silhouette.function.max_rows=1"],
            r"metric\.label_silhouette, .*max_rows",
        ),
        (
            ["metric=[isoscore_star]", "metric.isoscore_star.function.shrinkage=2"],
            r"metric\.isoscore_star, .*shrinkage",
        ),
    ],
)
def test_a_metric_that_could_measure_no_cloud_is_rejected(built, overrides, message):
    with pytest.raises(ValueError, match=message):
        built("task=rte", *overrides)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda x: 0.5, r"metric\.isoscore must give 0-d tensors.*isoscore is float"),
        (lambda x: x[0], r"metric\.isoscore must give 0-d tensors.*Tensor \[16\]"),
        (lambda x: {"a": {"b": x.sum()}}, r"isoscore_a is dict"),
        (lambda x: {}["absent"], r"metric\.isoscore, tried on .*KeyError"),
    ],
)
def test_an_own_metric_that_gives_no_numbers_is_reported_before_training(
    built, monkeypatch, metric, message
):
    monkeypatch.setattr("isotrain.metrics.isoscore.isoscore", lambda x: metric(x))
    with pytest.raises(ValueError, match=message):
        built("task=rte", "metric=[isoscore]")
