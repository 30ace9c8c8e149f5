"""Folders for sentence-transformers: the vectors and the scores of the run."""

import json
import sys

import pytest
import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

from isotrain.cli import main
from isotrain.export.sentence_module import IsotropyLayer, layer_class

FORM = "sentence-transformers"
STSB = ("task=stsb", "task.form=bi", "metric=[]")
CLUSTERS = ("isotropy=cluster_pca", "isotropy.n_clusters=3", "isotropy.n_components=1")
PLAIN, FOLDED = ["Transformer", "Pooling"], ["Transformer", "Pooling", "Dense", "Dense"]
BEHIND = ["Transformer", "Pooling", "IsotropyLayer"]
BETWEEN = ["Transformer", "IsotropyLayer", "Pooling"]
CASES = {
    "no layer": (("pooling=mean", "isotropy=none"), "bert", PLAIN),
    "a tokenizer that pads at the left": (("pooling=last", "isotropy=none"), "left", PLAIN),
    "a shift": (("pooling=mean", "isotropy=mean"), "bert", FOLDED),
    "affine, pooled": (("pooling=mean", "isotropy=clip"), "roberta", FOLDED),
    "affine, the mean of tokens": (
        ("pooling=mean", "isotropy=zca", "site=[tokens]"),
        "distilbert",
        FOLDED,
    ),
    "affine, the last token": (("pooling=last", "isotropy=zca", "site=[tokens]"), "gpt2", FOLDED),
    "affine, not for all tokens": (
        ("pooling=mean", "isotropy=zca", "site=[tokens]", "rows=no_special"),
        "bert",
        BETWEEN,
    ),
    "clusters, pooled": (("pooling=cls", *CLUSTERS), "bert", BEHIND),
    "clusters, tokens": (("pooling=mean", *CLUSTERS, "site=[tokens]"), "gpt2", BETWEEN),
    "clusters at both": (
        ("pooling=mean", *CLUSTERS, "site=[tokens,pooled]", "rows=no_special"),
        "tiny",
        [*BETWEEN, "IsotropyLayer"],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_vectors_and_the_score_are_those_of_the_run(made_run, export, of_the_run, case):
    overrides, family, modules = CASES[case]
    run = made_run(*STSB, *overrides, family=family)
    folder = export(run, FORM)
    written = json.loads((folder / "modules.json").read_text())
    assert [entry["type"].rpartition(".")[2] for entry in written] == modules
    trusted = "IsotropyLayer" in modules
    model = SentenceTransformer(str(folder), device="cpu", trust_remote_code=trusted)
    assert model.tokenizer.padding_side == "right"
    known = of_the_run(run)
    with torch.no_grad():
        u, v = (model.encode(texts, convert_to_tensor=True) for texts in known.columns)
        found = torch.cosine_similarity(u, v)
        cosines = known.model.float()(known.batch).logits[:, 0]
    torch.testing.assert_close(found, cosines, rtol=0, atol=1e-6)
    model.double()
    u, v = (model.encode(texts, convert_to_tensor=True) for texts in known.columns)
    wide = torch.cosine_similarity(u, v)
    torch.testing.assert_close(wide, known.output.logits[:, 0], rtol=0, atol=1e-6)
    torch.testing.assert_close(torch.stack([u, v], 1), known.output.pooled, rtol=1e-6, atol=1e-6)
    scores = [spearmanr(c, known.batch.labels).statistic for c in (found, cosines)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-3)  # ties of float32 may fall otherwise


@pytest.mark.parametrize("prefix", ["ab: ", ["ab: ", "bank: "]])
def test_texts_as_they_are_get_the_prefix_of_the_run(made_run, export, of_the_run, prefix):
    run = made_run(*STSB, "pooling=mean", f"task.prefix={json.dumps(prefix)}")
    folder = export(run, FORM)
    model = SentenceTransformer(str(folder), device="cpu")
    known = of_the_run(run)
    ways = [(model.encode_query, model.encode_document)]
    ways += [(model.encode, model.encode)] if isinstance(prefix, str) else []
    expected = known.output.pooled.float()
    for columns in ways:
        vectors = [
            encode(texts, convert_to_tensor=True)
            for encode, texts in zip(columns, known.columns, strict=True)
        ]
        torch.testing.assert_close(torch.stack(vectors, 1), expected, rtol=1e-5, atol=1e-5)
    bare = model.encode(known.columns[0], prompt="", convert_to_tensor=True)
    assert not torch.allclose(bare, vectors[0], atol=1e-3)
    assert "prompt" in (folder / "README.md").read_text()


@pytest.fixture
def written(made_run, export):
    return export(made_run(*STSB, "pooling=mean", *CLUSTERS), FORM)


def test_a_scaled_cosine_is_left_out_and_the_card_says_so(made_run, export, of_the_run):
    more = ("pooling=mean", "task.scaled_cosine=true", "training.head_lr_factor=100")
    run = made_run(*STSB, *more)
    folder = export(run, FORM)
    assert "without scale and bias of the cosine" in (folder / "README.md").read_text()
    known = of_the_run(run)
    model = SentenceTransformer(str(folder), device="cpu").double()
    u, v = (model.encode(texts, convert_to_tensor=True) for texts in known.columns)
    head, cosines = known.model.double().head, torch.cosine_similarity(u, v)
    assert head.bias.abs().item() > 1e-3
    scaled = head.log_scale.exp() * cosines + head.bias
    torch.testing.assert_close(scaled.detach(), known.output.logits[:, 0], rtol=0, atol=1e-5)


def test_the_module_stays_frozen_in_training_and_lets_gradients_through(written):
    model = SentenceTransformer(str(written), device="cpu", trust_remote_code=True)
    layer = model[2]
    assert isinstance(layer, IsotropyLayer)
    model.train()
    assert layer.training
    assert not layer.layer.training
    before = {key: value.clone() for key, value in layer.layer.state_dict().items()}
    rows = torch.randn(4, 16, requires_grad=True)
    given = {"sentence_embedding": rows}
    layer(given)["sentence_embedding"].sum().backward()
    assert rows.grad is not None
    assert given["sentence_embedding"] is rows
    for key, value in layer.layer.state_dict().items():
        assert torch.equal(value, before[key])


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("subprocess.Popen", "must be a torch module of isotrain"),
        ("torch.optim.SGD", "must be a torch module of isotrain"),
        ("isotrain.tasks.wic.WiC", "must be a torch module of isotrain"),
        ("isotrain.model.heads.LinearHead", "must be a torch module of isotrain"),
        ("isotrain.transforms.zca.torch.nn.Linear", "cannot be imported"),
        ("isotrain.transforms.standardize.column_moments", "must be a torch module of isotrain"),
        ("isotrain.transforms.cut_tails.CutTailsStats", "must be a torch module of isotrain"),
        ("named_layers.make", "must be a torch module of isotrain"),
        ("named_layers.Layer", None),
    ],
)
def test_only_classes_of_layers_may_be_named_and_none_is_called(
    tmp_path, monkeypatch, target, message
):
    source = "import torch\ndef make(width): raise SystemExit\nclass Layer(torch.nn.Module): pass\n"
    (tmp_path / "named_layers.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    if message is None:
        with pytest.raises(ValueError, match=r"isotrain\.transforms.*ISOTRAIN_ALLOW"):
            layer_class(target)
    monkeypatch.setenv("ISOTRAIN_ALLOW", "named_layers")
    if message is None:
        assert layer_class(target).__name__ == "Layer"
    else:
        with pytest.raises(ValueError, match=message):
            layer_class(target)


def test_a_folder_cannot_name_what_is_no_layer(written):
    path = written / "2_IsotropyLayer" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "target": "subprocess.Popen"}))
    with pytest.raises(ValueError, match="the layer must be a torch module of isotrain"):
        IsotropyLayer.load(str(written), "2_IsotropyLayer")
    path.write_text(json.dumps({**config, "site": "layer_1"}))
    with pytest.raises(ValueError, match="site must be pooled or tokens"):
        IsotropyLayer.load(str(written), "2_IsotropyLayer")


def test_a_missing_package_is_reported(made_run, monkeypatch, capsys):
    run = made_run(*STSB, "pooling=mean")
    monkeypatch.setitem(sys.modules, "isotrain.export.sentences", None)
    assert main(["export", str(run), "--format", FORM]) == 2
    assert "pip install -e '.[export]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("task=rte",), "form=cross reads two"),
        (("task=wic", "task.form=bi", "pooling=spans"), "this run has SpanPooling"),
    ],
)
def test_runs_without_vectors_of_sentences_are_rejected(made_run, capsys, overrides, message):
    run = made_run(*overrides, "metric=[]", family="tiny")
    assert main(["export", str(run), "--format", FORM]) == 2
    assert message in capsys.readouterr().err
    assert not (run / "export").exists()
