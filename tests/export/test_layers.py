"""Every option of `conf/isotropy` and every family: folded, kept as a module, or refused."""

from __future__ import annotations

import json

import pytest
import torch

from isotrain.export.command import main
from isotrain.export.errors import CannotExportError
from isotrain.export.folding import check_layers, layer_sites
from isotrain.export.rebuilt import merge_adapters, rebuild
from isotrain.export.source_run import read_run
from isotrain.export.target import MARK
from isotrain.export.transformers_folder import (
    check_transformers,
    plan_transformers,
    write_transformers,
)
from tests.parts import names

AFFINE = {
    *("all_but_the_top", "batch_norm", "clip", "frozen_zca", "group_whitening", "iso_bn"),
    *("iter_norm", "mean", "none", "standardize", "whitening", "zca"),
}
CLUSTERS = {
    *("clip_cluster_pca", "cluster_mean", "cluster_pca", "gmm_pca", "protect_labels"),
    *("random_directions", "shrink_clip"),
}
OTHERS = {"cut_tails", "published"}  # bounds; batch-mates
FEW = {"all_but_the_top": ["isotropy.n_components=2"], "iter_norm": ["isotropy.group_size=8"]}


def options(name):
    return [f"isotropy={name}", "metric=[]", *FEW.get(name, [])]


def test_the_lists_are_of_options_that_there_are():
    assert set(names("isotropy")) >= AFFINE | CLUSTERS | OTHERS
    assert len(AFFINE) == 12


@pytest.mark.parametrize("name", sorted(AFFINE))
def test_an_affine_layer_is_folded_into_the_head(made_run, tmp_path, name):
    rebuilt = rebuild(read_run(made_run("task=rte", *options(name))))
    check_layers(rebuilt)
    plan = plan_transformers(rebuilt)
    assert plan.classifier is not None, plan.reason
    layer = rebuilt.model.transforms["pooled"]
    if name != "none":  # it does something, or nothing would be tested
        assert layer_sites(rebuilt) == ["pooled"]
        rows = rebuilt.double.site_rows["pooled"]
        assert not torch.allclose(rows.before, rows.after, rtol=1e-2)
    assert not layer.training
    write_transformers(tmp_path / "out", rebuilt, plan)
    found = check_transformers(tmp_path / "out", rebuilt, plan)
    assert found.double <= 1e-6 * max(1.0, float(rebuilt.double.logits.abs().max()))
    assert found.n_rows == 32


@pytest.mark.parametrize("name", sorted(CLUSTERS))
def test_a_layer_of_clusters_is_not_folded_and_the_reason_is_told(made_run, name):
    rebuilt = rebuild(read_run(made_run("task=rte", *options(name))))
    check_layers(rebuilt)
    plan = plan_transformers(rebuilt)
    assert plan.classifier is None
    assert "the layer at pooled (ClusterPCA) is no affine map:" in plan.reason
    assert "rows of this run are not where" in plan.reason
    assert "isotropy=all_but_the_top" in plan.reason


def test_tails_are_folded_where_none_is_clipped(made_run):
    zeroed = ("isotropy.dims=[1,3]", "isotropy.mode=zero")
    clipped = ("isotropy.dims=[1,3]", "isotropy.clip_sd=0.5")
    for more, is_affine in ((zeroed, True), (clipped, False)):
        run = made_run("task=rte", *options("cut_tails"), *more, name=f"run{is_affine}")
        plan = plan_transformers(rebuild(read_run(run)))
        assert (plan.classifier is not None) == is_affine, plan.reason


def test_a_layer_of_the_batch_is_refused(made_run):
    rebuilt = rebuild(read_run(made_run("task=rte", *options("published"), "data.batch_size=16")))
    with pytest.raises(CannotExportError, match="must not depend on its batch-mates"):
        check_layers(rebuilt)


def test_a_layer_inside_of_the_encoder_is_refused(made_run):
    run = made_run("task=rte", "isotropy=mean", "site=[layer_1]", "metric=[]")
    with pytest.raises(CannotExportError, match="site=layer_1 is inside of it"):
        check_layers(rebuild(read_run(run)))


def test_no_layer_inside_of_the_encoder_is_none(made_run):
    run = made_run("task=rte", "isotropy=none", "site=[layer_1,pooled]", "metric=[]")
    rebuilt = rebuild(read_run(run))
    check_layers(rebuilt)
    assert plan_transformers(rebuilt).classifier is not None


POOLING = {"tiny": "cls", "bert": "cls", "roberta": "cls", "distilbert": "cls", "gpt2": "last"}


@pytest.mark.parametrize(
    ("family", "task"),
    [*((family, "rte") for family in POOLING), ("gpt2", "stsb"), ("tiny", "stsb"), ("tiny", "wic")],
)
def test_every_family_gives_the_logits_of_its_run(made_run, family, task):
    run = made_run(
        *(f"task={task}", "isotropy=zca", "site=[tokens,pooled]", "metric=[]"),
        f"pooling={POOLING[family]}",
        family=family,
    )
    assert main([str(run), "--format", "transformers"]) == 0
    folder = run / "export" / "transformers"
    config = json.loads((folder / "config.json").read_text())
    kind = "regression" if task == "stsb" else "single_label_classification"
    assert config["problem_type"] == kind
    classes = {
        "rte": {"0": "entailment", "1": "not_entailment"},
        "stsb": {"0": "score"},
        "wic": {"0": "False", "1": "True"},
    }
    assert config["id2label"] == classes[task]
    assert (folder / "model.safetensors").is_file()
    assert not list(folder.glob("*.bin"))
    mark = json.loads((folder / MARK).read_text())
    assert mark["differences"]["double"] <= mark["differences"]["limit"]
    assert mark["what"].startswith("a classifier, the isotropy layer folded")


def test_the_pads_of_gpt2_are_not_taken_for_the_end(made_run):
    """Its end-of-text token ends sentences and pads; the head looks for the last non-pad."""
    short = ("data.hypothesis_only=true", "task.max_length=40")
    run = made_run("task=rte", "pooling=last", "metric=[]", *short, family="gpt2")
    rebuilt = rebuild(read_run(run))
    lengths = rebuilt.batch.attention_mask.sum(dim=1)
    assert lengths.min() < lengths.max(), "rows of different lengths are padded"
    assert main([str(run), "--format", "transformers"]) == 0


@pytest.mark.parametrize("pooling", ["mean", "spans"])
def test_without_a_head_the_encoder_is_written(made_run, pooling, capsys):
    run = made_run("task=wic", "task.prompt=none", f"pooling={pooling}", "metric=[]", family="tiny")
    assert main([str(run), "--format", "transformers"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "the encoder alone, without head" in printed
    config = json.loads((run / "export/transformers/config.json").read_text())
    assert config["architectures"] == ["BertModel"]


def test_adapters_are_put_into_the_weights(made_run):
    run = made_run("task=rte", "peft=lora", "metric=[]")
    rebuilt = rebuild(read_run(run))
    merge_adapters(rebuilt.model)
    assert not any("lora" in name for name, _ in rebuilt.network.named_parameters())
    assert main([str(run), "--format", "transformers"]) == 0
