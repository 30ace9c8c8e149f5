"""Which sets are measured, and the pairs of a set."""

from __future__ import annotations

import json

import pytest

from isotrain.analysis import sts_data_sets as sts
from isotrain.analysis.offline_isotropy.analysis import OfflineIsotropy
from isotrain.analysis.sts_sets import check_sets, chosen_sets, readable_sets, sts_pairs
from isotrain.runs.record import CannotRunError
from isotrain.tasks.data.sources import LocalSource
from tests.analysis.offline_isotropy.offline_rows import (
    SMALL,
    labelled_rows,
    pair_rows,
    subject_on,
    tiny_encoder,
    write,
    write_sets,
)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return write_sets(tmp_path_factory.mktemp("sets"))


def test_available_sets_are_those_of_the_source(root):
    names, absent = chosen_sets(LocalSource(str(root)), "available")
    assert names == ["sts12", "stsb", "stsb_dev", "sst2"]
    assert list(absent) == ["sts13", "sts14", "sts15", "sts16", "sickr"]
    assert "sts14" in absent["sts14"]
    assert OfflineIsotropy(**SMALL).missing(LocalSource(str(root))) == []


def test_a_named_set_that_is_absent_is_refused(root):
    missing = OfflineIsotropy(sets=["stsb", "sts14"]).missing(LocalSource(str(root)))
    assert len(missing) == 1
    assert "sts14" in missing[0]


def test_no_set_at_all_is_refused(tmp_path):
    missing = OfflineIsotropy().missing(LocalSource(str(tmp_path)))
    assert any("sts12" in text for text in missing)
    assert any("sst2" in text for text in missing)


def test_fitting_on_train_needs_sts_b(tmp_path):
    write(tmp_path, "sts12", "test", pair_rows(0, 12))
    write(tmp_path, "sst2", "train", labelled_rows(0, 12))
    write(tmp_path, "sst2", "dev", labelled_rows(1, 12))
    source = LocalSource(str(tmp_path))
    assert OfflineIsotropy(sets=["sts12"], fit_on="test").missing(source) == []
    assert OfflineIsotropy(sets=["sst2"], fit_on="train").missing(source) == []
    missing = OfflineIsotropy(sets=["sts12"]).missing(source)
    assert len(missing) == 1
    assert missing[0].startswith("fit_on=train needs the train split of STS-B")
    assert missing[0].endswith("or use analysis.fit_on=test")


def test_the_data_that_is_recorded_is_all_that_is_read(root):
    source = LocalSource(str(root))
    of_test = OfflineIsotropy(sets=["sts12"], fit_on="test")
    assert list(of_test.data_sets(source)) == [sts.STS["sts12"]]
    found = list(OfflineIsotropy(sets=["sts12"]).data_sets(source))
    assert found == [sts.STS["sts12"], sts.STS["stsb"]]


@pytest.mark.parametrize("sets", ["stsb", [], ["stsb", "stsb"], ["stsB"], "all"])
def test_sets_that_name_nothing(sets):
    with pytest.raises(ValueError, match="sets must be available, or a list"):
        check_sets(sets)


def test_rows_of_a_set(root):
    pairs = sts_pairs(LocalSource(str(root)), sts.STS["stsb"], "test")
    rows = [json.loads(line) for line in (root / "stsb" / "test.jsonl").read_text().splitlines()]
    for row, first, second in zip(rows, pairs.first_P, pairs.second_P, strict=True):
        assert pairs.sentences[first] == row["sentence1"]
        assert pairs.sentences[second] == row["sentence2"]
    assert len(set(pairs.sentences)) == len(pairs.sentences)
    assert pairs.gold_P.tolist() == [row["score"] for row in rows]
    assert pairs.subset_P.tolist() == [row["file"] for row in rows]


def test_rows_without_gold_and_without_subset(tmp_path):
    rows = pair_rows(0, 12, file=lambda i: "images")
    rows[3] |= {"score": None}
    del rows[5]["file"]
    for split in ("train", "dev", "test"):
        write(tmp_path, "stsb", split, rows if split == "test" else pair_rows(1, 3))
    pairs = sts_pairs(LocalSource(str(tmp_path)), sts.STS["stsb"], "test")
    assert len(pairs.gold_P) == 11
    assert pairs.subset_P is None
    write(tmp_path, "stsb", "test", [row | {"score": None} for row in rows])
    with pytest.raises(ValueError, match="stsb/test has no row with gold"):
        sts_pairs(LocalSource(str(tmp_path)), sts.STS["stsb"], "test")


@pytest.mark.parametrize("gold", ["hidden", "no file"])
def test_an_available_set_without_gold_is_left_out_and_named(tmp_path, gold):
    root = write_sets(tmp_path)
    write(root, "stsb", "test", [row | {"score": None} for row in pair_rows(2, 30)])
    if gold == "no file":
        (root / "stsb" / "test.jsonl").unlink()
    source = LocalSource(str(root))
    found = readable_sets(source, "available")
    assert found.names == ["sts12", "stsb_dev", "sst2"]
    assert list(found.pairs) == ["sts12", "stsb_dev"]
    assert "stsb/test has no row with gold" in found.absent["stsb"]
    with pytest.raises(CannotRunError, match="stsb/test has no row with gold"):
        readable_sets(source, ["stsb", "sts12"])
    analysis = OfflineIsotropy(**SMALL, transforms=["none"], layers=[2], n_iterations=1)
    parts = [*analysis.parts(subject_on(tiny_encoder(), root, tmp_path / "rows"))]
    assert [part.name for part in parts] == ["sets", *(f"{name}-layer_02" for name in found.names)]
    assert [r["set"] for r in parts[0].measure().records][-1] == "stsb"
    assert parts[1].measure().records


def test_where_no_set_has_gold_nothing_can_run(tmp_path):
    write(tmp_path, "sts12", "test", [row | {"score": -1.0} for row in pair_rows(0, 12)])
    with pytest.raises(CannotRunError, match="sts12/test has no row with gold"):
        readable_sets(LocalSource(str(tmp_path)), "available")


def test_each_split_is_read_once(root):
    class Counting(LocalSource):
        def read(self, data_set, split):
            read.append((data_set.name, split))
            return super().read(data_set, split)

    read = []
    readable_sets(Counting(str(root)), "available")
    assert read == [("sts12", "test"), ("stsb", "test"), ("stsb", "dev")]
