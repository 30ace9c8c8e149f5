"""The clusters analysis on tiny encoders: records, tables, pictures, and its pitfalls."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from isotrain.analysis.clusters.analysis import Clusters
from isotrain.analysis.clusters.rows import sample_encoder
from isotrain.analysis.types import Outcome
from isotrain.cli import main
from isotrain.encoders.random_vectors import random_vectors
from isotrain.encoders.tiny import build_tiny
from isotrain.metrics.lid import lid
from isotrain.runs.files import read_result
from isotrain.runs.record import CannotRunError
from isotrain.tasks.data.sources import LocalSource
from tests.analysis.clusters.cluster_subjects import (
    BERT,
    DISTILBERT,
    GPT,
    GPT2,
    LINES,
    SMALL,
    Lines,
    subject_of,
    texts_of,
)
from tests.analysis.runs import of, outcome_of
from tests.parts import CONF


@pytest.fixture(scope="module")
def of_bert(tmp_path_factory):
    """What is measured with the defaults of these tests."""
    return outcome_of(Clusters(**SMALL), subject_of(BERT(), tmp_path_factory.mktemp("bert")))


@pytest.mark.parametrize(("build", "n_layers"), [(BERT, 3), (GPT2, 4), (GPT, 3), (DISTILBERT, 2)])
@pytest.mark.parametrize("form", ["chunks", "sentences"])
def test_every_layer_is_measured(build, n_layers, form, tmp_path):
    analysis = Clusters(text=form, max_tokens=4000, **SMALL)
    outcome = outcome_of(analysis, subject_of(build(), tmp_path))
    layers, lids = of(outcome, "layer"), of(outcome, "lid")
    assert [r["layer"] for r in layers] == [r["layer"] for r in lids] == [*range(n_layers)]
    for record in layers:
        assert record["n_rows"] + record["n_repeated"] == of(outcome, "sample")[0]["n_rows"]
        for key in ("s_inter", "s_intra"):
            assert all(-1 <= record[f"{key}{form}"] <= 1 for form in ("", "_centred", "_clustered"))
        assert sum(c["n"] for c in of(outcome, "cluster") if c["layer"] == record["layer"]) == (
            record["n_rows"] if record["k"] > 1 else 0
        )
    mean = of(outcome, "lid mean")[0]
    assert mean["lid"] == pytest.approx(np.mean([r["lid"] for r in lids[1:]]))
    assert mean["lid_cosine_squared"] == pytest.approx(mean["lid_cosine"] / 2)
    assert mean["of_layers"] == ("1" if n_layers == 2 else f"1 to {n_layers - 1}")
    errors = [r["lid_cosine_squared_error"] for r in lids[1:]]
    assert mean["lid_cosine_squared_error"] == pytest.approx(np.mean(errors))
    assert all(error > 0 for error in errors)


def test_static_vectors_count_each_type_once(tmp_path):
    encoder = random_vectors(build_tiny(8, 1, 1).tokenizer, 12, 0, "tiny").eval()
    outcome = outcome_of(Clusters(**{**SMALL, "n_neighbors": 5}), subject_of(encoder, tmp_path))
    (layer,) = of(outcome, "layer")
    assert layer["n_rows"] == layer["n_types"] == of(outcome, "sample")[0]["n_types"] > 10
    assert layer["n_repeated"] == 0  # they were drawn so
    assert layer["s_intra"] is None
    assert of(outcome, "lid mean")[0]["lid"] == of(outcome, "lid")[0]["lid"]
    table = {t.name: t for t in Clusters().tables(outcome)}["cosines"]
    assert table.rows[0][table.columns.index("intra")] is None


def test_duplicates_do_not_move_the_dimension(tmp_path):
    """Layer 0 of a BERT: a token at one position has one row, however often it is drawn."""
    analysis = Clusters(**{**SMALL, "max_rows": 2000, "lid_queries": None})
    subject = subject_of(BERT(), tmp_path, Lines(LINES * 40))
    record = of(outcome_of(analysis, subject), "lid")[0]
    texts = texts_of(subject.encoder, chunk=16, lines=LINES * 40)
    sample = sample_encoder(subject, texts, 2000)
    rows = sample.rows(0)
    unique = torch.from_numpy(np.unique(rows.numpy(), axis=0))
    assert record["n_rows"] == len(unique) < len(rows)
    assert record["lid"] == pytest.approx(float(lid(unique, n_neighbors=10)), rel=1e-6)
    try:
        naive = float(lid(rows, n_neighbors=10))
    except ValueError:  # every row among ten copies of itself
        naive = 0.0
    assert abs(naive - record["lid"]) > 0.1 * record["lid"]


def test_what_does_not_fit_is_refused(tmp_path):
    subject = subject_of(GPT2(), tmp_path)
    with pytest.raises(CannotRunError, match="at most 64, the positions of this encoder, got 512"):
        next(iter(Clusters().parts(subject)))
    with pytest.raises(CannotRunError, match="a chunk needs 60 tokens, and the text has 11"):
        texts_of(subject.encoder, chunk=60, lines=[" a dog sees the cat . "])


def test_layers_that_are_drawn(tmp_path):
    outcome = outcome_of(Clusters(map_layers=[2], **SMALL), subject_of(BERT(), tmp_path))
    assert {name.split("/")[1] for name in outcome.arrays} == {"layer-2"}
    points = outcome.arrays["as given/layer-2/map"]
    assert points.shape == (50, 3)
    assert points.dtype == np.float32
    symbols = outcome.arrays["as given/layer-2/symbol"]
    assert 0 < symbols.mean() < 0.5
    names = [p.name for p in Clusters().pictures(outcome)]
    assert names == [
        "s_inter",
        "s_intra",
        "silhouette",
        "lid",
        "islands_as_given",
        "rolls_as_given",
    ]


def test_tables_name_their_method(of_bert):
    analysis, outcome = Clusters(**SMALL), of_bert
    notes = " ".join(note for table in analysis.tables(outcome) for note in table.notes)
    assert "300 rows of" in notes
    assert "10 neighbours" in notes
    assert "call layer 1 layer 0" in notes
    lid_table = {t.name: t for t in analysis.tables(outcome)}["lid"]
    assert lid_table.columns[-2:] == ["chord", "1 − cos"]
    assert lid_table.rows[-1][0] == "mean"
    mean = of(outcome, "lid mean")[0]
    half = 1.96 * mean["lid_cosine_squared_error"]
    assert lid_table.rows[-1][-1] == f"{mean['lid_cosine_squared']:.2f} ± {half:.2f}"


def test_of_vectors_that_are_given_every_layer_is_averaged(tmp_path):
    """Nobody knows whether their first layer is an embedding output."""
    generator = np.random.default_rng(0)
    np.save(tmp_path / "v.npy", generator.normal(size=(3, 120, 6)).astype(np.float32))
    (tmp_path / "v.txt").write_text("\n".join(f"w{k % 9}" for k in range(120)), encoding="utf-8")
    files = {"vectors": str(tmp_path / "v.npy"), "tokens": str(tmp_path / "v.txt")}
    small = {key: value for key, value in SMALL.items() if key != "chunk"}
    analysis = Clusters(**files, **small)
    assert analysis.instead == "v"
    assert Clusters().instead is None
    outcome = outcome_of(analysis, subject_of(BERT(), tmp_path / "rows"))
    mean, lids = of(outcome, "lid mean")[0], of(outcome, "lid")
    assert mean["n_layers"] == 3
    assert mean["lid"] == pytest.approx(np.mean([r["lid"] for r in lids]))
    notes = " ".join(note for table in analysis.tables(outcome) for note in table.notes)
    assert "mean: over layers 0 to 2" in notes


def test_small_clusters_are_told_beside_both_means(tmp_path):
    analysis = Clusters(**{**SMALL, "cut": -1.0})
    outcome = outcome_of(analysis, subject_of(BERT(), tmp_path))
    records = [
        {**r, "s_intra_without_error": 2} if r["kind"] == "layer" and r["layer"] == 1 else r
        for r in outcome.records
    ]
    table = {t.name: t for t in analysis.tables(Outcome(records, {}))}["inside_clusters"]
    assert [row[0] for row in table.rows] == [0, 1, 2]
    for row, record in zip(table.rows, of(outcome, "layer"), strict=True):
        sizes = [c["n"] for c in of(outcome, "cluster") if c["layer"] == record["layer"]]
        assert row[:3] == [record["layer"], len(sizes), min(sizes)]
        assert row[-1].startswith(f"{record['s_intra_by_rows']:.3f} ± ")
    assert "−1/(n − 1)" in table.notes[1]
    assert "layer 1 (2 of S_intra)" in table.notes[-1]


@pytest.mark.slow
@pytest.mark.real_data
def test_minilm_on_wikitext(tmp_path):
    from isotrain.encoders.huggingface import load_minilm

    keys = OmegaConf.load(CONF / "encoder" / "minilm.yaml")
    encoder = load_minilm(keys.name, keys.revision, keys.sha256).eval()
    source = LocalSource(
        str(OmegaConf.select(OmegaConf.create("r: ${oc.env:ISOTRAIN_DATA_DIR}"), "r"))
    )
    analysis = Clusters(splits=["dev"], chunk=64, max_tokens=6000, max_rows=1500, k_max=4)
    outcome = outcome_of(analysis, subject_of(encoder, tmp_path, source, batch_size=16))
    for record in of(outcome, "layer"):
        assert record["s_intra"] > record["s_inter"] + 0.05
        assert record["s_intra_centred"] > abs(record["s_inter_centred"])
    assert all(4 < record["lid"] < 60 for record in of(outcome, "lid"))


def test_a_file_of_vectors_needs_no_encoder(tmp_path, capsys):
    x = np.random.default_rng(0).normal(size=(2, 300, 4)).astype(np.float32)
    np.save(tmp_path / "elmo.npy", x)
    (tmp_path / "t.txt").write_text("".join(f"w{n % 40}\n" for n in range(300)))
    command = [
        *("analysis=clusters", "source=demo", "encoder=tiny", "threads=1"),
        *(f"analysis.vectors={tmp_path / 'elmo.npy'}", f"analysis.tokens={tmp_path / 't.txt'}"),
        *("analysis.max_rows=200", "analysis.lid_queries=50", f"output_dir={tmp_path}"),
    ]
    assert main(["analyze", *command]) == 0
    (folder,) = (tmp_path / "analysis" / "clusters").iterdir()
    assert folder.name.startswith("elmo-")
    record = read_result(folder)
    assert (record["encoder"], record["weights"]) == ("elmo", "no encoder")
    assert record["data"] == f"{tmp_path / 'elmo.npy'}, {tmp_path / 't.txt'}"
    assert "Here: elmo." in capsys.readouterr().out
