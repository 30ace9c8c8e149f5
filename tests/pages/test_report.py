"""The page of a run: what it says, that it escapes, and that it is whole for any run."""

from __future__ import annotations

import json
import math
import os
import re
from html.parser import HTMLParser

import pytest

from isotrain.pages.report import MOST_SNAPSHOTS, write_report
from isotrain.pages.verdict import CAUTION
from isotrain.runs.files import RecordFile, read_result, write_json
from tests.pages.small_run import HOSTILE, value, with_snapshots, write_run

VOID = {"meta", "link", "input", "img", "br", "hr"}


class Page(HTMLParser):
    """Texts, ids, addresses and event handlers of a page; fails where tags do not match."""

    def __init__(self, text):
        super().__init__()
        self.texts, self.ids, self.addresses, self.tags, self.handlers = [], [], [], [], []
        self.scripts, self._open = [], []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag, attrs):
        self._look(tag, attrs)
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self._look(tag, attrs)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        (self.scripts if self._open[-1:] == ["script"] else self.texts).append(data)

    def _look(self, tag, attrs):
        self.tags.append(tag)
        self.ids += [value for name, value in attrs if name == "id"]
        self.addresses += [v for n, v in attrs if n in ("src", "href", "xlink:href", "action")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    @property
    def text(self):
        return re.sub(r"\s+", " ", " ".join(self.texts))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    parent = tmp_path_factory.mktemp("of a module") / "runs0"
    parent.mkdir()
    folder = write_run(parent / "cluster_pca-0123456789")
    write_report(folder)
    return folder


@pytest.fixture(scope="module")
def page(folder):
    return Page((folder / "report.html").read_text(encoding="utf-8"))


def test_what_a_reader_sees_first(page):
    for wanted in (
        "WiC · cluster_pca · seed 3",
        "isotrain 0.1.0 (0123456789ab)",
        "rows: 5,428 train, 640 dev, 1,400 test",
        "2031-02-03 04:05 UTC+02:00",
        "Accuracy on dev rose from 0.500 to 0.600 from step 0 to step 40 (N = 640; 95 % Wilson "
        "interval of the last value 0.562 to 0.637); on test it is 0.550 (N = 1,400).",
        "tokens 0.",
        "One run with one seed",
    ):
        assert wanted in page.text
    before, after = (value(40, "pooled", side) for side in ("before", "after"))
    assert (
        f"from {before:.3f} before to {after:.3f} after, on the same rows at step 40" in page.text
    )
    assert page.text.count(CAUTION) == 1


def test_sections_in_their_order(page):
    titles = [
        *("Score and loss", "Isotropy by layer", "Layer × step", "Spectra", "Maps of rows"),
        *("Label geometry", "Drift from step 0", "Outlier dimensions", "Counters"),
        *("Read with care", "Configuration and environment", "Repeat this run", "How to read it"),
    ]
    behind = page.text[page.text.index("How to read it") :]  # the contents list ends with it
    places = [behind.index(title) for title in titles[:-1]]
    assert places == sorted(places)
    for wanted in (
        "isotrain run 'my runs/runs0/cluster_pca-0123456789/result.json'",
        "Run it in the folder that this run was started in",
        "task.prompt",
        "Mu & Viswanath 2018",
        "Rajaee & Pilehvar 2021",
        "Shaded: what chance gives",
        "308 (0.25) → 308 (0.35)",
        "pooled: energy kept",
        "tokens · N = 2,048",
    ):
        assert wanted in behind


def test_nothing_from_outside_is_needed_and_ids_are_unique(page):
    outside = [a for a in page.addresses if not a.startswith(("#", "data:"))]
    assert outside == []
    assert len(page.ids) == len(set(page.ids))
    assert "url(http" not in " ".join(page.texts)


def test_hostile_texts_stay_texts(folder, page):
    assert HOSTILE in " ".join(page.texts)  # the configuration, as a reader sees it
    assert page.handlers == []
    assert "img" not in page.tags
    data, _ = page.scripts  # no token has closed the first
    assert HOSTILE in json.loads(data)["maps"]["groups"]["tokens"]["token"]
    assert HOSTILE not in (folder / "report.html").read_text(encoding="utf-8")


def test_figures_are_files_too(folder):
    names = {path.name for path in (folder / "figures").iterdir()}
    for stem in (
        "score",
        "loss",
        "partition_tokens",
        "heatmap_partition_cls",
        "spectra_cls",
        "maps",
    ):
        assert {f"{stem}.svg", f"{stem}.png"} <= names


def small(folder, **more):
    return Page(
        write_report(write_run(folder / "run", views=("cls",), **more)).read_text(encoding="utf-8")
    )


def test_a_run_that_failed_says_so_first(tmp_path):
    page = small(tmp_path, status="failed", error="NonFiniteError: <b>step 3</b>", snapshots=False)
    text = page.text
    assert "The run is not finished (failed: NonFiniteError: <b>step 3</b>)" in text
    assert text.count("The run is not finished") == 1
    assert text.index("not finished") < text.index("Accuracy on dev")
    assert "Maps of rows" not in text


def test_a_run_that_stopped_goes_on_where_it_has_a_checkpoint(tmp_path):
    folder = write_run(tmp_path / "run", status="interrupted", isotropy=False)
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert "the last row is of step 40" in page.text
    assert "The same command starts it from the beginning." in page.text
    (folder / "resume.ckpt").touch()
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert "The same command goes on from the last checkpoint." in page.text


def test_one_evaluation_of_two_sites_without_isotropy_layers(tmp_path):
    more = {"steps": (0,), "layer": False, "status": "running", "is_causal": True}
    page = small(tmp_path, sites=("layer_1", "tokens"), **more)
    assert "first token (causal: it sees nothing else) 0." in page.text
    assert "CLS" not in page.text
    assert "Accuracy on dev is 0.500 at step 0" in page.text
    assert "What the head reads (tokens, no isotropy layer)" in page.text
    assert "Shown: step 0." in page.text


def test_no_isotropy(tmp_path):
    page = small(tmp_path, isotropy=False)
    assert "No isotropy was measured" in page.text
    assert "layer" not in page.ids


def test_nothing_logged_yet(tmp_path):
    folder = write_run(tmp_path / "run", status="running")
    (folder / "metrics.jsonl").unlink()
    for path in (folder / "snapshots").iterdir():
        path.unlink()
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert "No score was evaluated." in page.text


def test_values_that_are_not_numbers(tmp_path):
    folder = write_run(tmp_path / "run", snapshots=False, views=("cls",))
    row = {
        "step": 60,
        "val/accuracy": math.nan,
        "isotropy/isoscore_corrected/layer_02/cls": math.nan,
        "isotropy/partition/layer_02/cls": math.inf,
        "isotropy/n_rows/layer_02/cls": 0,
        "isotropy/n_rows_not_finite/layer_02/cls": 640,
    }
    file = RecordFile(folder / "metrics.jsonl")
    file.cut((folder / "metrics.jsonl").stat().st_size)
    file.append(row)
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert "Rows that are not finite were left out of layer_02/cls." in page.text
    assert "Not a number at some step: isotropy/isoscore_corrected/layer_02/cls" in page.text


def test_the_selected_weights_are_shown_everywhere(tmp_path):
    folder = write_run(tmp_path / "run", selected_step=20, views=("cls",))
    text = Page(write_report(folder).read_text(encoding="utf-8")).text
    assert "from 0.500 to 0.550 from step 0 to the kept weights (step 20)" in text
    after = value(20, "pooled", "after")
    assert f"to {after:.3f} after, on the same rows at the kept weights (step 20)" in text
    assert "Sites: kept weights (step 20) solid, step 0 dashed." in text
    assert "pooled: energy kept evaluations 3 0.500 0.300" in text
    assert "The last evaluation here: kept weights (step 20)." in text
    assert text.count("First evaluation → kept weights (step 20).") == 3
    assert "0 → 0.200" in text  # drift, and not
    assert "0 → 0.400" not in text
    assert "308 (0.25) → 308 (0.30)" in text


def test_names_of_the_configuration_stand_beside_those_for_readers(folder, page):
    text = (folder / "report.html").read_text(encoding="utf-8")
    for wanted in (
        "<h3>ln I(W) (0 = isotropic) <code>partition</code></h3>",
        "<summary>outlier dimensions <code>outlier_dims</code></summary>",
        "between over within class scatter: share <code>scatter_ratio_share</code></caption>",
        '<th scope="row">cosine drift from step 0 (0 = none) <code>cosine_drift</code></th>',
        "<code>isoscore_corrected</code> at the last layer (layer_02)",
    ):
        assert wanted in text
    for wanted in (
        "energy kept energy_kept scatter of the rows about their mean",
        "outlier_dims_share its contribution over the mean cosine",
        "Its contribution over the mean cosine; 1/D where all dimensions are alike",
        "isotropy of N = 640 to 2,048 rows, D = 384 (hidden size)",
    ):
        assert wanted in page.text


def test_the_share_of_labels_has_its_n_and_what_chance_gives(page):
    # 2 classes: 1/639 and 1/2,047
    assert "first token (CLS) N = 640 random labels: 0.00156" in page.text
    assert "tokens N = 2,048 random labels: 0.000489" in page.text


def test_what_the_command_needs_is_told(tmp_path):
    config = {"init_from": "runs/wic/none-0", "logger": {"wandb": {"host": "a <redacted>"}}}
    page = small(tmp_path, config=config, isotropy=False)
    assert "isotrain run runs/" in page.text
    assert "Not recorded, as it may be secret: logger.wandb.host." in page.text
    assert "The encoder starts from runs/wic/none-0, which has to be in that folder" in page.text
    page = small(tmp_path, config={"init_from": "/elsewhere/none-0"}, isotropy=False)
    assert "Not recorded" not in page.text
    assert "has to be in that folder" not in page.text


def test_an_older_record_without_width_and_date(tmp_path):
    folder = write_run(tmp_path / "run", isotropy=False)
    old = {k: v for k, v in read_result(folder).items() if k not in ("width", "finished_at")}
    write_json(folder / "result.json", old)
    os.utime(folder / "result.json", (0, 1_000_000_000))
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert "2001-09-09" in page.text


def test_a_snapshot_that_cannot_be_read_costs_nothing_else(tmp_path):
    folder = with_snapshots(tmp_path / "run", (0, 20, 40))
    (folder / "snapshots" / "step_00000040.npz").write_bytes(b"PK\x03\x04 cut")
    (folder / "snapshots" / "step_00000000.npz").write_bytes(b"")
    text = Page(write_report(folder).read_text(encoding="utf-8")).text
    lost = "step_00000000.npz, step_00000040.npz"
    assert f"Of snapshots/ could not be read: {lost}." in text
    assert "at 1 of 3 snapshots" in text
    assert "Shown: step 20." in text


def test_few_of_many_snapshots_are_shown_that_of_the_kept_weights_among_them(tmp_path):
    folder = with_snapshots(tmp_path / "run", range(0, 300, 10), selected_step=150)
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    data = json.loads(page.scripts[0])["maps"]
    assert len(data["steps"]) == MOST_SNAPSHOTS + 1
    assert {0, 150, 290} <= set(data["steps"])
    assert data["titles"][data["shown"]] == "kept weights (step 150)"
    assert f"at {MOST_SNAPSHOTS + 1} of 30 snapshots" in page.text
    assert "could not be read" not in page.text
