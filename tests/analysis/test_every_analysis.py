"""What holds for every analysis: its file, a small run, what it rejects, what is published."""

import math
import shutil
from importlib import import_module
from runpy import run_path

import pandas as pd
import pytest
import yaml
from omegaconf import OmegaConf

from isotrain.analysis.charts import DASHED, DOTTED, SOLID
from isotrain.analysis.published import read_published
from isotrain.analysis.show import text
from isotrain.analysis.types import Outcome
from isotrain.tasks.data.sources import LocalSource
from tests.analysis.offline_isotropy.offline_rows import labelled_rows, write
from tests.analysis.runs import SMALL, outcome_of, records_of, tiny
from tests.parts import CONF, names

NAMES = names("analysis")
WITHOUT = {"diagnostic", "norms_"}  # of data, and norms, that the fixture does not have
SOURCES = CONF.parent / "experiments" / "sources"
of_sources = run_path(str(SOURCES / "table.py"))
WIDTH = 125  # of a table in a terminal


def node_of(name):
    return OmegaConf.to_container(OmegaConf.load(CONF / "analysis" / f"{name}.yaml"))


def class_of(name):
    module, _, last = node_of(name)["_target_"].rpartition(".")
    return getattr(import_module(module), last)


def small(name, **changes):
    return class_of(name)(**{**SMALL[name], **changes})


MEASURED = {}


@pytest.fixture(scope="module")
def folder(data_dir, tmp_path_factory):
    """The data with SST-2."""
    folder = shutil.copytree(data_dir, tmp_path_factory.mktemp("data") / "whole")
    for seed, split in enumerate(("train", "dev", "test")):
        write(folder, "sst2", split, labelled_rows(seed, 30))
    return folder


@pytest.fixture
def subject(subject_of, encoder, folder):
    return subject_of(encoder, LocalSource(str(folder)))


@pytest.fixture(params=NAMES)
def measured(request, subject):
    """Each analysis with all that it measures of one encoder, as if before and after a run."""
    name = request.param
    if name not in MEASURED:
        once, both = outcome_of(small(name), subject), ("before", "after")
        MEASURED[name] = Outcome(
            [record | {"weights": weights} for weights in both for record in once.records],
            {
                f"{weights}/{key.partition('/')[2]}": array
                for weights in both
                for key, array in once.arrays.items()
            },
        )
    return small(name), MEASURED[name]


def test_tables_are_whole_and_fit_a_terminal(measured):
    analysis, outcome = measured
    tables = [*analysis.tables(outcome)]
    found = [table.name for table in tables]
    assert len(set(found)) == len(found)
    for spec in analysis.TABLES:
        begins = spec.name.partition("{")[0]
        assert spec.name in WITHOUT or any(name.startswith(begins) for name in found), spec.name
    for table in tables:
        assert table.rows
        assert isinstance(table.notes, list)
        assert all(len(row) == len(table.columns) for row in table.rows), table.name
        assert len(set(table.columns)) == len(table.columns), table.name
    if analysis.name in ("contextuality", "clusters"):
        alone = Outcome([r for r in outcome.records if r["weights"] == "before"], {})
        for table in analysis.tables(alone):
            cells = [[*table.columns], *([text(cell) for cell in row] for row in table.rows)]
            widths = [max(map(len, column)) + 3 for column in zip(*cells, strict=True)]
            assert sum(widths) <= WIDTH, table.name


def test_before_and_after_stand_side_by_side(measured):
    analysis, outcome = measured
    tables = [*analysis.tables(outcome)]
    for table in tables:
        columns = list(table.columns)
        if "weights" in columns:
            at = columns.index("weights")
            found = [row[at] for row in table.rows]
            assert found == ["before", "after"] * (len(found) // 2), table.name
    assert any("weights" in t.columns or "encoder before" in t.columns for t in tables)
    fits_heads = analysis.name in ("data_scale", "layer_probe")
    assert any("has seen the" in note for t in tables for note in t.notes) == fits_heads
    alone = Outcome([r for r in outcome.records if r["weights"] == "before"], {})
    for table in analysis.tables(alone):
        assert "weights" not in table.columns
        assert not any("has seen the" in note for note in table.notes)


def test_plots_are_drawn_and_before_is_dashed(measured):
    analysis, outcome = measured
    pictures = [*analysis.pictures(outcome)]
    found = [picture.name for picture in pictures]
    assert len(set(found)) == len(found)
    for plot in analysis.PLOTS:
        begins = getattr(plot, "name", "").partition("{")[0]
        assert begins in WITHOUT or any(name.startswith(begins) for name in found), plot
    assert all(picture.title and picture.description for picture in pictures)
    charts = [spec for picture in pictures for spec in picture.specs if "values" in spec["data"]]
    lines = [one["encoding"] for spec in charts for one in spec["layer"]]
    dashes = [line["strokeDash"]["scale"] for line in lines if "strokeDash" in line]
    looks = {
        (name.split()[0], tuple(dash))
        for scale in dashes
        for name, dash in zip(scale["domain"], scale["range"], strict=True)
        if name.startswith(("before", "after")) and dash != DOTTED
    }
    assert looks <= {("before", tuple(DASHED)), ("after", tuple(SOLID))}


def test_a_part_alone_finds_what_all_parts_find(measured, subject):
    """As after a stop: earlier parts are kept, the next one reads and encodes anew."""
    analysis, outcome = measured
    *_, last = analysis.parts(subject)
    for record, other in zip(
        reversed(last.measure().records), reversed(outcome.records), strict=False
    ):
        for key, value in record.items():
            if isinstance(value, float) and math.isfinite(value):
                value = pytest.approx(value, rel=1e-2, abs=0.06)
            assert other[key] == value or value != value, key


def claims_of(name, outcome, folder):
    """The rows of the sources' table that an outcome has figures for, and those it has none for."""
    (folder := folder / name / "tiny-0a").mkdir(parents=True)
    pd.DataFrame(outcome.records).to_csv(folder / "records.csv", index=False)
    here = {"beverage": "the", "a": "the", "word_content": "length"}
    here |= {"sst2": "rte"} if name == "data_scale" else {}
    if name == "offline_isotropy":
        here = {"stsb train": "stsb test"}
        for other in ("sts12", "sts13", "sts14", "sts15", "sts16", "sickr"):
            here |= {other: "stsb", f"{other} test": "stsb test"}
    claims = yaml.safe_load((SOURCES / "claims.yaml").read_text("utf-8"))
    without = ("static", "many_unseen")
    own = [one for one in claims if not any(text in str(one) for text in without)]
    small = [
        {**one, "where": {k: here.get(v, v) for k, v in one["where"].items()}}
        for one in own
        if one["analysis"] == name
    ]
    found = of_sources["figures"](small, folder.parents[1])
    value = r"−?[\d.][\d.e−+]*"
    is_found = found["tiny"].str.fullmatch(rf"{value}(, {value})*").tolist()
    return [
        [one for one, there in zip(small, is_found, strict=True) if there == wanted]
        for wanted in (True, False)
    ]


def test_each_claim_of_the_sources_has_its_record(measured, tmp_path):
    """Of the tiny data: with other words and tasks, few words in all, and no static vectors."""
    analysis, outcome = measured
    found, missing = claims_of(analysis.name, outcome, tmp_path)
    assert found
    assert missing == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [*(("gpt2", name) for name in NAMES), ("roberta", "tails"), ("roberta", "attention")],
)
def test_random_encoders_stand_in_for_those_of_the_sources(
    name, kind, subject_of, folder, tmp_path
):
    """A decoder has no CLS, and GPT-2 another name for its table of positions."""
    subject = subject_of(tiny(kind), LocalSource(str(folder)))
    found, missing = claims_of(name, outcome_of(small(name), subject), tmp_path)
    assert found
    allowed = {"cls", "table"} if kind == "gpt2" else set()
    assert {one["where"]["kind"] for one in missing} <= allowed


@pytest.mark.parametrize("name", ["contextuality", "data_scale"])
def test_the_seed_decides_every_number(name, subject):
    analysis = small(name, **{"max_rows": 150} if name == "contextuality" else {})
    found = []
    for k, seed in enumerate((0, 0, 1)):
        (folder := subject.folder / str(k)).mkdir()
        found.append(records_of(analysis, subject._replace(seed=seed, folder=folder)))
    first, again, other = found
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("contextuality", {"splits": ["trian"]}, "splits must be train, dev or test"),
        ("contextuality", {"min_count": 2}, "min_count must be at least 3, got 2"),
        ("clusters", {"corpus": "snli"}, "corpus must be wikitext-2 or ptb"),
        ("data_scale", {"tasks": ["wic"]}, "tasks must be .*sst2, rte, snli or chunks"),
        ("layer_probe", {"tasks": "rte"}, "tasks must be"),
        ("offline_isotropy", {"transforms": ["none", "zca"]}, "transforms must be own_pooling"),
    ],
)
def test_arguments_that_are_rejected(name, given, message):
    with pytest.raises(ValueError, match=message):
        small(name, **given)


def test_published_figures_name_what_is_measured(measured):
    analysis, outcome = measured
    for figure in read_published(node_of(analysis.name)["published"]):
        assert figure.source
        wanted = {*figure.where, figure.column}
        assert any(wanted <= set(record) for record in outcome.records), figure
