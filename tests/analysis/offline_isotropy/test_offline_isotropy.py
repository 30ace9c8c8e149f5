"""The analysis as a whole: its records, tables, pictures, rules and published figures."""

import math
import os
from itertools import product

import pytest
from omegaconf import OmegaConf

from isotrain.analysis.offline_isotropy.analysis import OWN_POOLING, RECIPES, OfflineIsotropy
from isotrain.analysis.published import beside, read_published
from isotrain.analysis.types import Outcome
from isotrain.config.shipped import conf_folder
from isotrain.runs.record import CannotRunError
from isotrain.tasks.data.sources import LocalSource
from tests.analysis import runs
from tests.analysis.offline_isotropy.offline_rows import (
    SMALL,
    subject_on,
)
from tests.analysis.runs import minilm, of, outcome_of, tiny


@pytest.fixture
def subject(encoder, tmp_path):
    return lambda sets, folder="rows": subject_on(encoder, sets, tmp_path / folder)


@pytest.fixture(scope="module")
def whole(sets, encoder, tmp_path_factory):
    """All layers, with the published protocol."""
    folder = tmp_path_factory.mktemp("rows")
    analysis = OfflineIsotropy(**SMALL, fit_on="test", layers="all")
    return outcome_of(analysis, subject_on(encoder, sets, folder))


@pytest.fixture(scope="module")
def outcome(whole):
    """Its last layer."""
    return whole._replace(records=[r for r in whole.records if r.get("layer", 2) == 2])


def test_every_setting_of_every_set_and_layer_is_recorded(whole):
    settings = OfflineIsotropy().transforms
    for name, layer in product(("sts12", "stsb", "stsb_dev"), range(3)):
        found = of(whole, kind="similarity", set=name, layer=layer)
        assert tuple(r["setting"] for r in found) == settings
        assert {r["n_pairs"] for r in found} == {30}
        clouds = of(whole, kind="cloud", set=name, layer=layer)
        assert tuple(r["setting"] for r in clouds) == settings[1:]
    every = [r for r in whole.records if r["kind"] != "set left out"]
    assert {r["layer"] for r in every} == {0, 1, 2}


def test_a_set_without_a_correlation_has_a_dash_and_no_mean(outcome):
    """All gold scores of sts12 are equal: no mean is one over the other sets."""
    undefined = dict.fromkeys(("spearman", "pearson", "spearman_gain"), math.nan)
    records = [r | undefined if r.get("set") == "sts12" else r for r in outcome.records]
    tables = {table.name: table for table in OfflineIsotropy(**SMALL).tables(Outcome(records, {}))}
    for name in ("spearman", "pearson"):
        rows = {row[0]: row[2:] for row in tables[name].rows}
        assert {*rows.get("sts12", [None]), *rows["mean of 2 test sets"]} == {None}
        assert None not in rows["stsb"]


def test_sst2_accuracy_has_its_n_and_interval(outcome):
    heads = of(outcome, kind="head")
    assert {(r["split"], r["n_rows"], r["n_train"]) for r in heads} == {
        ("dev", 30, 30),
        ("test", 30, 30),
    }
    assert {r["setting"] for r in heads} == {*RECIPES}
    accuracy = {(r["split"], r["setting"]): r["accuracy"] for r in heads}
    for split in ("dev", "test"):  # a head absorbs a shift of all rows
        assert accuracy[split, "mean"] == accuracy[split, "none"]
    for record in heads:
        assert 0 <= record["accuracy_low"] < record["accuracy"] < record["accuracy_high"] <= 1


def test_own_pooling_has_cls_and_sep_in_it(outcome):
    found = of(outcome, kind="similarity", set="sts12")
    score = {r["setting"]: r["spearman"] for r in found}
    assert score[OWN_POOLING] != pytest.approx(score["none"], abs=0.1)


def test_a_set_and_layer_is_a_part(sets, subject):
    parts = OfflineIsotropy(**SMALL, sets=["stsb", "sst2"], layers=[0, 2]).parts(subject(sets))
    names = [f"{s}-layer_{n:02d}" for s in ("stsb", "sst2") for n in (0, 2)]
    assert [part.name for part in parts] == ["sets", *names]


def test_gains_need_none_and_a_layer_has_to_be_there(sets, subject):
    assert OfflineIsotropy(transforms=["mean"]).transforms == ("none", "mean")
    for layer in (3, -1):
        with pytest.raises(CannotRunError, match=rf"0 \(embeddings\) to 2, got \[{layer}\]"):
            list(OfflineIsotropy(**SMALL, layers=[layer]).parts(subject(sets)))


@pytest.mark.parametrize(("n_blocks", "layers"), [(2, [0, 2]), (3, [1, 3])])
def test_every_second_layer_is_measured_by_default(sets, tmp_path, n_blocks, layers):
    subject = subject_on(tiny(n_blocks=n_blocks), sets, tmp_path)
    names = [part.name for part in OfflineIsotropy(**SMALL, sets=["stsb"]).parts(subject)]
    assert names[1:] == [f"stsb-layer_{n:02d}" for n in layers]


def test_isotropy_before_and_after_each_transform_stands_in_one_line(outcome):
    (table,) = [t for t in OfflineIsotropy(**SMALL).tables(outcome) if t.name == "partition"]
    assert [*table.columns] == ["set", "layer", *OfflineIsotropy().transforms[1:]]
    for row in table.rows:
        clouds = of(outcome, kind="cloud", set=row[0], layer=row[1])
        assert row[2:] == [r["ln_partition"] for r in clouds]


@pytest.fixture(scope="module")
def published():
    conf = OmegaConf.load(f"{conf_folder()}/analysis/offline_isotropy.yaml")
    return read_published(OmegaConf.to_container(conf)["published"])


@pytest.mark.campaign
@pytest.mark.real_data
@pytest.mark.parametrize("name", ["sts12", "sts13", "sts15"])
def test_minilm_scores_what_is_published(name, published, tmp_path):
    """Of STS-B: tests/tasks/test_real_data.py."""
    source = LocalSource(os.environ["ISOTRAIN_DATA_DIR"])
    subject = runs.subject_on(minilm(), source, tmp_path, batch_size=32, max_length=128)
    analysis = OfflineIsotropy(sets=[name], transforms=["own_pooling", "none"], layers=[6])
    records = outcome_of(analysis, subject).records
    figures = beside(published, records, "sentence-transformers/all-MiniLM-L6-v2")
    judged = [one for one in figures if one.verdict and one.published.where["set"] == name]
    assert [one.verdict for one in judged] == ["agrees"]
