"""The page of a run: its text, that it escapes, and that it is whole for any run."""

import base64
import gzip
import json
import math
from html.parser import HTMLParser

import pytest

from isotrain.pages.report import MOST_SNAPSHOTS, write_report
from isotrain.results.findings import finding
from isotrain.runs.files import RecordFile
from tests.pages.small_run import HOSTILE, with_snapshots, write_run
from tests.stored_texts import same_text, text_of

VOID = {"meta", "link", "input", "img", "br", "hr"}


class Page(HTMLParser):
    """Text, tags, ids, addresses and charts of a page; fails where tags do not match."""

    def __init__(self, page):
        super().__init__()
        self.ids, self.addresses, self.tags, self.handlers = [], [], [], []
        self.scripts, self._open = [], []
        self.feed(page)
        assert self._open == []
        self.text = text_of(page)
        packed = base64.b64decode(self.scripts[0]) if len(self.scripts) > 1 else b""
        self.charts = json.loads(gzip.decompress(packed)) if packed else {}

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        self.addresses += [v for n, v in attrs if n in ("src", "href", "xlink:href", "action")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open[-1:] == ["script"]:
            self.scripts.append(data)


def page_of(path):
    return Page(path.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    parent = tmp_path_factory.mktemp("of a module") / "wic"
    return page_of(write_report(write_run(parent / "cluster_pca-0123456789")))


def test_what_a_reader_reads(page):
    same_text("run.txt", page.text)


def test_nothing_from_outside_is_needed_and_ids_are_unique(page):
    assert [a for a in page.addresses if not a.startswith(("#", "data:"))] == []
    assert len(page.ids) == len(set(page.ids))
    assert {address[1:] for address in page.addresses if address[0] == "#"} <= set(page.ids)


def test_hostile_texts_stay_texts(page):
    assert HOSTILE in page.text  # the configuration, as a reader sees it
    assert page.handlers == []
    assert "img" not in page.tags
    assert len(page.scripts) == 3  # charts, library, script: no token has closed the first
    known = page.charts["maps"]["layer"][0]["transform"][3]["from"]["data"]["values"]
    assert HOSTILE in {row.get("token") for row in known}


def test_every_next_step_as_a_sentence(tmp_path, monkeypatch):
    every = [
        finding("not_learned", beside="below", level="chance"),
        finding("not_learned", beside="not told apart from", level="majority class"),
        finding("overfits", lowest=(40, 0.6), last=2.0),
        finding("cone", cosine=0.95),
        finding("only_the_output", site="pooled", by=["isoscore", "partition"]),
        finding("only_the_output", site="pooled", by=[]),
        finding("unlike"),
        finding("changed", metric="isoscore", where="layer_00", view="cls", pair=(0.25, 0.5)),
        finding("before_quoting", n=1),
        finding("before_quoting", n=0),
    ]
    monkeypatch.setattr("isotrain.pages.report.next_steps", lambda *_: every)
    text = page_of(write_report(write_run(tmp_path / "run", isotropy=False, layer=False))).text
    same_text(
        "next_steps.txt", text.partition("look at next\n")[2].partition("Score and loss\n")[0]
    )


def test_pictures_are_written_if_they_are_asked_for(tmp_path):
    folder = write_run(tmp_path / "run", isotropy=False)
    write_report(folder)
    assert not (folder / "figures").exists()
    write_report(folder, figures=True)
    starts = {"png": b"\x89PNG", "svg": b"<svg", "pdf": b"%PDF"}
    found = {file.name: file.read_bytes() for file in (folder / "figures").iterdir()}
    assert set(found) == {f"{name}.{form}" for name in ("score", "loss") for form in starts}
    assert all(content.startswith(starts[name[-3:]]) for name, content in found.items())


def test_one_evaluation_of_two_sites_of_a_causal_encoder_without_layers(tmp_path):
    more = {"steps": (0,), "layer": False, "status": "running", "is_causal": True}
    run = write_run(tmp_path / "run", views=("cls",), sites=("layer_1", "tokens"), **more)
    page = page_of(write_report(run))
    same_text(
        "run_without_layers.txt",
        page.text.partition("Score and loss\n")[0].partition("seed 3\n")[2],
    )
    assert "CLS" not in page.text
    assert {row["of"] for row in page.charts["sites"]["data"]["values"]} == {"layer_1", "tokens"}


def test_values_that_are_not_numbers(tmp_path):
    folder = write_run(tmp_path / "run", snapshots=False, views=("cls",))
    row = {
        "step": 60,
        "val/accuracy": math.nan,
        "isotropy/isoscore_corrected/layer_02/cls": math.nan,
        "isotropy/partition/layer_02/cls": math.inf,
        "isotropy/n_rows/layer_02/cls": 0,
    }
    file = RecordFile(folder / "metrics.jsonl")
    file.cut((folder / "metrics.jsonl").stat().st_size)
    file.append(row)
    rows = page_of(write_report(folder)).charts["heatmap"]["data"]["values"]
    ends = [row["value"][row["step"].index(60)] for row in rows if 60 in row["step"]]
    assert ends == [None, None]


def test_the_selected_weights_are_shown_everywhere(tmp_path):
    folder = write_run(tmp_path / "run", selected_step=20, select="best", n_candidates=3)
    page = page_of(write_report(folder))
    for wanted in (
        "First evaluation → kept weights (step 20).",
        "The last evaluation here: kept weights (step 20).",
        "pooled: energy_kept | evaluations | 0.500 | 0.300",
        "308 (0.25) → 308 (0.30)",
        "| 0 → 0.200 |",  # drift
    ):
        assert wanted in " ".join(page.text.split())
    assert "0 → 0.400" not in page.text
    at = {row["at"] for row in page.charts["spectra_cls"]["data"]["values"]}
    assert at == {"step 0", "kept weights (step 20)"}
    assert shown_of(page.charts["maps"]).startswith("kept weights (step 20) · 12 of 640 embeddings")
    kept = [one["encoding"].get("x") for one in page.charts["score"]["layer"]]
    assert {"datum": 20} in kept


def shown_of(maps):
    """The caption of the map that a page opens with."""
    cloud, at = (param["value"] for param in maps["params"][:2])
    (row,) = (r for r in maps["data"]["values"] if (r["cloud"], r["at"]) == (cloud, at))
    return row["caption"]


def test_a_snapshot_that_cannot_be_read_costs_nothing_else(tmp_path):
    folder = with_snapshots(tmp_path / "run", (0, 20, 40))
    (folder / "snapshots" / "step_00000040.npz").write_bytes(b"PK\x03\x04 cut")
    (folder / "snapshots" / "step_00000000.npz").write_bytes(b"")
    page = page_of(write_report(folder))
    assert "could not be read: step_00000000.npz, step_00000040.npz." in page.text
    assert shown_of(page.charts["maps"]).startswith("step 20 ·")
    assert len(page.charts["maps"]["data"]["values"]) == 1


def test_few_of_many_snapshots_are_shown_that_of_the_kept_weights_among_them(tmp_path):
    folder = with_snapshots(tmp_path / "run", range(0, 300, 10), selected_step=150)
    page = page_of(write_report(folder))
    captions = [row["caption"].partition(" ·")[0] for row in page.charts["maps"]["data"]["values"]]
    assert len(captions) == MOST_SNAPSHOTS + 1
    assert {"step 0", "kept weights (step 150)", "step 290"} <= set(captions)
    assert shown_of(page.charts["maps"]).startswith("kept weights (step 150) ·")
    assert f"at {MOST_SNAPSHOTS + 1} of 30 snapshots" in page.text
    assert "could not be read" not in page.text
