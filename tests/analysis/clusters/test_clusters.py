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


def test_what_does_not_fit_is_rejected(tmp_path):
    subject = subject_of(GPT2(), tmp_path)
    with pytest.raises(CannotRunError, match="at most 64, the positions of this encoder, got 512"):
        next(iter(Clusters().parts(subject)))
