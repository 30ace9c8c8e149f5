"""Every option of `conf/isotropy` and every family: folded, kept as a module, or rejected."""

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoTokenizer

from isotrain.export.folders import TransformersFolder, linear_head
from isotrain.export.folding import NotAffineError, check_layers, layer_sites
from isotrain.export.rebuilt import rebuild
from tests.export.conftest import same_logits

AFFINE = {
    *("all_but_the_top", "anti_clip", "batch_norm", "clip", "frozen_zca", "group_whitening"),
    *("iso_bn", "iso_grad", "iter_norm", "mean", "mean_direction", "none", "spectral_temper"),
    *("standardize", "whitening", "zca", "zca_dense"),
}
CLUSTERS = {
    *("clip_cluster_pca", "cluster_mean", "cluster_pca", "gmm_pca", "protect_labels"),
    *("random_directions", "shrink_clip"),
}
OTHERS = {"cut_tails", "published"}  # bounds; batch-mates
FEW = {"all_but_the_top": ["isotropy.n_components=2"], "iter_norm": ["isotropy.group_size=8"]}


def printed(capsys):
    return " ".join(capsys.readouterr().out.split())


def options(name):
    return [f"isotropy={name}", "metric=[]", *FEW.get(name, [])]


@pytest.mark.parametrize("name", sorted(AFFINE))
def test_an_affine_layer_is_folded_into_the_head(made_run, of_the_run, loaded, tmp_path, name):
    run = made_run("task=rte", *options(name))
    known, rebuilt = of_the_run(run), rebuild(run)
    check_layers(rebuilt)
    if name not in ("iso_grad", "none"):  # it does something, or nothing would be tested
        assert layer_sites(rebuilt) == ["pooled"]
        rows = known.output.site_embeddings["pooled"]
        assert not torch.allclose(rows.before, rows.after, rtol=1e-2)
    TransformersFolder(rebuilt).write(tmp_path / "out")
    same_logits(loaded(tmp_path / "out", known.columns, "cls"), known)


@pytest.mark.parametrize("task", ["rte", "stsb"])
def test_the_bare_encoder_with_an_amplifiers_head_predicts_what_the_run_does(
    made_run, export, of_the_run, task
):
    run = made_run(f"task={task}", "isotropy=anti_clip", "metric=[]")
    head, known = load_file(export(run) / "head.safetensors"), of_the_run(run)
    rows = known.output.site_embeddings["pooled"]
    found_BC = rows.before.double() @ head["weight"].double().T + head["bias"].double()
    same_logits(found_BC.to(known.output.logits), known)
    # The map is one of rank 3 about the identity: directions amplified by 3.
    weight_CD = known.model.head.state_dict()["linear.weight"].double()
    layer = known.model.transforms["pooled"]
    v_DR = layer.direction_KDR[0].double()
    expected_CD = weight_CD + 2.0 * (weight_CD @ v_DR) @ v_DR.T
    torch.testing.assert_close(head["weight"].double(), expected_CD, rtol=1e-5, atol=1e-6)
    assert float((expected_CD - weight_CD).norm()) > 0.1


@pytest.mark.parametrize("name", sorted(CLUSTERS))
def test_a_layer_of_clusters_is_not_folded_and_the_reason_is_reported(made_run, name):
    rebuilt = rebuild(made_run("task=rte", *options(name)))
    check_layers(rebuilt)
    why = r"\(\w+\) is no affine map: .* embeddings of this run .* isotropy=all_but_the_top"
    with pytest.raises(NotAffineError, match=why):
        linear_head(rebuilt)


def test_tails_are_folded_where_they_are_zeroed_and_not_where_any_row_may_be_clipped(made_run):
    zeroed, clipped, unclipped = "clip_sd=0.0", "clip_sd=0.5", "clip_sd=100.0"
    for option in (zeroed, clipped, unclipped):
        more = ("isotropy.dims=[1,3]", f"isotropy.{option}")
        run = made_run("task=rte", *options("cut_tails"), *more, name=option.replace("=", "_"))
        rebuilt = rebuild(run)
        rows = rebuilt.double.site_embeddings["pooled"]
        assert torch.equal(rows.before, rows.after) == (option == unclipped)
        if option == zeroed:
            linear_head(rebuilt)
        else:
            message = (
                "1,000 times as far from their mean" if option == unclipped else "no affine map"
            )
            with pytest.raises(NotAffineError, match=message):
                linear_head(rebuilt)


def test_a_layer_of_the_batch_is_rejected(made_run):
    rebuilt = rebuild(made_run("task=rte", *options("published"), "data.batch_size=16"))
    with pytest.raises(ValueError, match="must not depend on its batch-mates"):
        check_layers(rebuilt)


def test_a_layer_inside_of_the_encoder_is_rejected(made_run):
    run = made_run("task=rte", "isotropy=mean", "site=[layer_1]", "metric=[]")
    with pytest.raises(ValueError, match="site=layer_1 is inside of it"):
        check_layers(rebuild(run))


POOLING = {"gpt2": "last", "roberta": "mean"}  # and of all others the first token
SEVERAL = ("tiny", "bert", "left", "roberta", "xlm-roberta", "camembert", "distilbert", "gpt2")


@pytest.mark.parametrize(
    ("family", "task"),
    [*((family, "rte") for family in SEVERAL), ("gpt2", "stsb"), ("tiny", "stsb"), ("tiny", "wic")],
)
def test_every_family_gives_the_logits_of_its_run(made_run, exported_as_run, family, task):
    pooling = POOLING.get(family, "cls")
    run = made_run(
        *(f"task={task}", "isotropy=zca", "site=[tokens,pooled]", "metric=[]"),
        *(f"pooling={pooling}", *["task.prompt=none"] * (task == "wic")),
        family=family,
    )
    folder, _ = exported_as_run(run, pooling)
    names = {"rte": "entailment, not_entailment", "stsb": "score", "wic": "False, True"}
    assert f"print(logits)  # {names[task]}\n" in (folder / "README.md").read_text()
    assert (folder / "model.safetensors").is_file()
    assert not list(folder.glob("*.bin"))


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_cut_encoder_is_exported_cut(made_run, exported_as_run, family):
    pooling = POOLING.get(family, "cls")
    more = ("encoder.n_blocks=1", f"pooling={pooling}", "isotropy=zca", "metric=[]")
    run = made_run("task=rte", *more, family=family)
    folder, known = exported_as_run(run, pooling)
    assert AutoConfig.from_pretrained(folder).num_hidden_layers == known.model.encoder.n_blocks == 1


def test_what_is_written_gives_the_segments_of_the_run_and_pads_at_the_right(made_run, export):
    run = made_run("task=rte", "metric=[]", "data.hypothesis_only=true", family="left")
    tokenizer = AutoTokenizer.from_pretrained(export(run))
    given = tokenizer(["a", "a bank"], ["b", "b"], padding=True)
    assert given["token_type_ids"][0] == [0, 0, 0, 1, 1, 0]
    assert given["attention_mask"][0] == [1, 1, 1, 1, 1, 0]


def test_a_long_text_is_cut_where_the_run_cut_it(made_run, exported_as_run):
    run = made_run("task=rte", "metric=[]", "task.max_length=9", family="tiny")
    folder, known = exported_as_run(run, "cls")
    whole = AutoTokenizer.from_pretrained(folder)(*known.columns, truncation=False)["input_ids"]
    assert min(map(len, whole)) > 9
    assert known.batch.input_ids.shape[1] == 9


@pytest.mark.parametrize("form", ["cross", "bi"])
def test_a_text_with_target_words_is_cut_where_the_run_cut_it(made_run, export, of_the_run, form):
    """What is tokenised again, whole, to find lost target words is no input."""
    own = ("task=wic", "metric=[]", f"task.form={form}", "task.prompt=none", "pooling=spans")
    whole = of_the_run(made_run(*own, family="tiny", name="whole"))
    length = int(whole.batch.attention_mask.sum(dim=1).max()) - 1
    run = made_run(*own, f"task.max_length={length}", family="tiny")
    assert of_the_run(run).batch.input_ids.shape[1] == length
    assert AutoTokenizer.from_pretrained(export(run)).model_max_length == length


def test_the_pads_of_gpt2_are_not_taken_for_the_end(made_run, exported_as_run):
    """Its end-of-text token ends sentences and pads."""
    short = ("data.hypothesis_only=true", "task.max_length=40")
    run = made_run("task=rte", "pooling=last", "metric=[]", *short, family="gpt2")
    _, known = exported_as_run(run, "last")
    lengths = known.batch.attention_mask.sum(dim=1)
    assert lengths.min() < lengths.max(), "rows of different lengths are padded"


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("task=wic", "task.prompt=none", "pooling=spans"), "the pooling reads target words"),
        (("task=rte", "task.form=bi"), "the head of form=bi compares two embeddings"),
    ],
)
def test_without_a_linear_head_the_encoder_is_written(
    made_run, export, of_the_run, loaded, capsys, overrides, message
):
    run = made_run(*overrides, "metric=[]", family="tiny")
    folder = export(run)
    printed = " ".join(capsys.readouterr().out.split())
    assert f"the encoder alone, without pooling and head: {message}" in printed
    known = of_the_run(run)
    texts = known.columns if "task=wic" in overrides else [[*known.columns[0], *known.columns[1]]]
    expected = known.states[known.batch.attention_mask.bool()]
    scale = max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(loaded(folder, texts), expected, rtol=0, atol=1e-6 * scale)


@pytest.mark.parametrize("adapter", ["lora", "ia3"])
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_adapters_are_put_into_the_weights(made_run, exported_as_run, adapter, pooling):
    run = made_run("task=rte", f"peft={adapter}", f"pooling={pooling}", "metric=[]", family="left")
    _, known = exported_as_run(run, pooling)
    assert any(adapter in name for name, _ in known.model.named_parameters())
