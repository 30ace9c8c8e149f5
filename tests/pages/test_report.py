"""The page of a run: what it says, that it escapes, and that it is whole for any run."""

import json
import math
import re
from html.parser import HTMLParser

import pytest

from isotrain.pages.report import MOST_SNAPSHOTS, write_report
from isotrain.pages.verdict import CAUTION
from isotrain.runs.files import RecordFile
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
    before, after = (value(40, "pooled", side) for side in ("before", "after"))
    first, last = (value(step, "layer_02", "tokens") for step in (0, 40))
    for wanted in (
        "wic · cluster_pca · seed 3",
        "examples: 5,428 train, 640 dev, 1,400 test",
        "2031-02-03 04:05 UTC+02:00",
        "Did it learn the task? Accuracy on test 55.0 (95 % CI 52.4 to 57.6, N = 1,400), "
        "below the majority class (60.0). On dev from 50.0 to 60.0, step 0 to step 40.",
        f"of tokens, last layer (layer_02): {first:.3f} → {last:.3f}; ln I(W) (0 = isotropic) "
        f"partition : −{10 * first:.2f} → −{10 * last:.2f} (N = 2,048).",
        "The measures disagree: more isotropic by isoscore_corrected , less isotropic by partition",
        "Input → output at step 40: pooled about as isotropic: isoscore_corrected "
        f"{before:.3f} → {after:.3f}, partition −{10 * before:.2f} → −{10 * after:.2f} (N = 640).",
        "What to look at next The score is below the majority class:",
        "read its 2 limitations . One run with one seed",
    ):
        assert wanted in page.text
    assert page.text.count(CAUTION) == 1


def test_sections_in_their_order(page):
    titles = [
        *("Score and loss", "All values, by layer", "outlier dimensions", "Spectra", "Maps of"),
        *("Counters", "Limitations (2)", "Configuration and environment", "Repeat this run"),
    ]
    places = [page.text.index(title) for title in titles]
    assert places == sorted(places)
    for wanted in (
        "cfg = config_of(read_result(Path('my runs/runs0/cluster_pca-0123456789')))",
        "Run it in the folder that this run was started in",
        "task.prompt",
        "Mu & Viswanath 2018",
        "cluster_pca: Rajaee & Pilehvar 2021",
        "308 (0.25) → 308 (0.35)",
        "pooled: energy_kept evaluations 0.500 0.100 scatter of the layer output",
        "outlier dimensions: share 1: its contribution over",
        "Isotropy of N = 640 to 2,048 embeddings of dev, D = 384 (hidden size)",
        "isotrain 0.1.0",
    ):
        assert wanted in page.text


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


def small(folder, **more):
    return Page(
        write_report(write_run(folder / "run", views=("cls",), **more)).read_text(encoding="utf-8")
    )


def test_one_evaluation_of_two_sites_without_isotropy_layers(tmp_path):
    more = {"steps": (0,), "layer": False, "status": "running", "is_causal": True}
    page = small(tmp_path, sites=("layer_1", "tokens"), **more)
    assert "of first token (causal: it sees nothing else), last layer (layer_02): 0." in page.text
    assert "CLS" not in page.text
    assert "Accuracy on dev 50.0 (95 % CI 46.1 to 53.9, N = 640)" in page.text
    assert (
        "What does the head read? Without a layer that changes embeddings, at layer_1 "
        "isoscore_corrected 0." in page.text
    )
    assert "Shown: step 0." in page.text


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
    assert "Embeddings that are not finite were left out of layer_02/cls." in page.text
    assert "Not a number at some step: isotropy/isoscore_corrected/layer_02/cls" in page.text


def test_the_selected_weights_are_shown_everywhere(tmp_path):
    folder = write_run(tmp_path / "run", selected_step=20, views=("cls",))
    text = Page(write_report(folder).read_text(encoding="utf-8")).text
    assert "On dev from 50.0 to 55.0, step 0 to the kept weights (step 20)." in text
    before, after = (value(20, "pooled", side) for side in ("before", "after"))
    assert f"isoscore_corrected {before:.3f} → {after:.3f}, partition" in text
    assert "Input → output at the kept weights (step 20): pooled" in text
    assert "Sites: kept weights (step 20) solid, step 0 dashed." in text
    assert "pooled: energy_kept evaluations 0.500 0.300" in text
    assert "The last evaluation here: kept weights (step 20)." in text
    assert "First evaluation → kept weights (step 20)." in text
    assert "0 → 0.200" in text  # drift, and not
    assert "0 → 0.400" not in text
    assert "308 (0.25) → 308 (0.30)" in text


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
