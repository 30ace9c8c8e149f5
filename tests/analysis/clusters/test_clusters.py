"""The clusters analysis on tiny encoders: records, tables, pictures, and its pitfalls."""

import numpy as np
import pytest

from isotrain.analysis.clusters.analysis import Clusters
from isotrain.encoders.random_vectors import random_vectors
from isotrain.encoders.tiny import build_tiny
from isotrain.runs.record import CannotRunError
from tests.analysis.clusters.cluster_subjects import (
    BERT,
    GPT2,
    MANY,
    SMALL,
    subject_of,
)
from tests.analysis.runs import of, outcome_of


@pytest.mark.parametrize(("build", "n_layers"), [(BERT, 3), (GPT2, 4)])
def test_every_layer_is_measured(build, n_layers, tmp_path):
    analysis = Clusters(max_tokens=4000, **SMALL)
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


def test_static_vectors_stand_beside_the_layers(tmp_path):
    """scikit-dimension has (m − 1)/m of LID at each point, and its harmonic mean over points."""
    words = sorted({word.lower() for line in MANY for word in line.split()})
    table_VD = np.random.default_rng(0).normal(size=(len(words), 4)).round(3)
    lines = [" ".join([w, *map(str, v)]) for w, v in zip(words, table_VD.tolist(), strict=True)]
    (tmp_path / "vectors.txt").write_text("\n".join(lines))
    given = {**SMALL, "n_neighbors": 5, "static": str(tmp_path / "vectors.txt")}
    analysis, subject = Clusters(**given, max_tokens=16), subject_of(BERT(), tmp_path)
    outcome = outcome_of(analysis, subject, ("before",))
    (static,) = of(outcome, "static")
    known = table_VD[[word != "<unk>" for word in words]]
    assert static["n_rows"] == len(known)  # each type of all the text, [UNK] left out
    for key, x_VD in (
        ("lid", known),
        ("lid_cosine_squared", known / np.linalg.norm(known, axis=1, keepdims=True)),
    ):
        apart_VV = np.sort(np.linalg.norm(x_VD[:, None] - x_VD[None], axis=2), axis=1)
        near_VM = apart_VV[:, 1:6]
        lid_V = -1 / np.log(near_VM / near_VM[:, -1:]).mean(axis=1)
        halved = 2 if key == "lid_cosine_squared" else 1
        assert static[key] == pytest.approx(lid_V.mean() / halved, rel=1e-4)
    rows = {t.name: t for t in analysis.tables(outcome)}["lid"].rows
    assert [row[0] for row in rows] == [0, 1, 2, "mean", "vectors.txt"]
    names = [part.name for part in analysis.parts(subject._replace(weights="after"))]
    assert "static" not in names


def test_maps_show_the_second_and_the_third_direction(tmp_path):
    outcome = outcome_of(Clusters(max_tokens=4000, **SMALL), subject_of(BERT(), tmp_path))
    (islands,) = [p for p in Clusters().pictures(outcome) if p.name.startswith("islands")]
    assert len(islands.specs) == 3 * 2 * 3  # layers, planes, colours
    map_M3, frequency_M = (outcome.arrays[f"as given/layer-1/{k}"] for k in ("map", "frequency"))
    record = of(outcome, "layer", layer=1)[0]
    for k, spec in enumerate(islands.specs[6:12]):
        order_M = np.argsort(-frequency_M, kind="stable") if k % 3 == 0 else slice(None)
        shown = [(one["x"], one["y"]) for one in spec["data"]["values"]]
        plane_M2 = map_M3[order_M][:, [0, 1 + k // 3]]
        np.testing.assert_allclose(shown, plane_M2, rtol=1e-3, atol=1e-5)
    shares = [record[f"map_variance_{k}"] for k in (1, 2, 3)]
    assert 1 > shares[0] > shares[1] > shares[2] > 0


def test_what_does_not_fit_is_rejected(tmp_path):
    subject = subject_of(GPT2(), tmp_path)
    with pytest.raises(CannotRunError, match="at most 64, the positions of this encoder, got 512"):
        next(iter(Clusters().parts(subject)))
