"""The page of a run: what it says, that it escapes, and that it is whole for any run."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from isotrain.pages.report import write_report
from isotrain.pages.verdict import binomial_error, sentences, warnings
from isotrain.results import read_result
from isotrain.row_file import RowFile, read_rows
from tests.pages.small_run import HOSTILE, value, write_run

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
    folder = write_run(tmp_path_factory.mktemp("runs") / "cluster_pca-0123456789")
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
        "Accuracy on dev rose from 0.500 to 0.600 from step 0 to step 40 (N = 640, binomial "
        "standard error 0.019); on test it is 0.550 (N = 1,400).",
        "tokens 0.",
        "One run with one seed",
    ):
        assert wanted in page.text
    before, after = (value(40, "pooled", side) for side in ("before", "after"))
    assert (
        f"from {before:.3f} before to {after:.3f} after, on the same rows at the end" in page.text
    )


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
        "isotrain job result.json",
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
    assert text.index("not finished") < text.index("Accuracy on dev")
    assert "Maps of rows" not in text


def test_one_evaluation_of_two_sites_without_isotropy_layers(tmp_path):
    page = small(tmp_path, steps=(0,), sites=("layer_1", "tokens"), layer=False, status="running")
    assert "Accuracy on dev is 0.500 at step 0" in page.text
    assert "What the head reads (tokens, no isotropy layer)" in page.text
    assert "Step 0." in page.text


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
    file = RowFile(folder / "metrics.jsonl")
    file.cut((folder / "metrics.jsonl").stat().st_size)
    file.append(row)
    page = Page(write_report(folder).read_text(encoding="utf-8"))
    assert "Rows that are not finite were left out of layer_02/cls." in page.text
    assert "Not a number at some step: isotropy/isoscore_corrected/layer_02/cls" in page.text


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"select": "best", "n_evaluations": 7}, "the best of 7 evaluations on dev"),
        ({"select": "holdout", "n_evaluations": 7}, "7 evaluations on held-out training rows"),
        ({"degenerate": True, "degenerate_reason": "one class"}, "degenerate: one class"),
        ({"n_rows": {"dev": 32}}, "Dev has 32 rows"),
        ({"stopped_by_patience": True}, "training.patience"),
        ({"config": {"trainer": {"limit_val_batches": 2}}}, "limit_val_batches = 2"),
    ],
)
def test_warnings(tmp_path, more, wanted):
    folder = write_run(tmp_path / "run", snapshots=False)
    rows, plain = read_rows(folder / "metrics.jsonl"), {"n_rows": {"dev": 5000}}
    result = read_result(folder) | plain
    assert not any(wanted in text for text in warnings(result, rows))
    assert any(wanted in text for text in warnings(result | more, rows))


def test_n_of_a_score_is_what_was_evaluated(tmp_path):
    folder = write_run(tmp_path / "run", snapshots=False)
    rows = [*read_rows(folder / "metrics.jsonl"), {"step": 40, "val/n_rows": 64}]
    first = sentences(read_result(folder), rows)[0]
    assert f"(N = 64, binomial standard error {binomial_error(0.6, 64):.3f}; the change" in first
    assert "less than two of them" not in sentences(read_result(folder), rows[:-1])[0]


def test_the_selected_weights_are_told(tmp_path):
    scores = {"val/accuracy": 0.58, "isotropy/isoscore_corrected/pooled/after": 0.123}
    folder = write_run(tmp_path / "run", snapshots=False, scores=scores, selected_step=20)
    found = " ".join(sentences(read_result(folder), read_rows(folder / "metrics.jsonl")))
    assert "to 0.580 from step 0 to step 20" in found
    assert "0.123 after" in found


def command(*arguments):
    code = (
        "import sys; sys.argv = ['isotrain', *sys.argv[1:]]\n"
        "from isotrain.cli import main\n"
        "try:\n    main()\n"
        "finally:\n    assert 'torch' not in sys.modules and 'transformers' not in sys.modules\n"
    )
    arguments = [sys.executable, "-W", "error", "-c", code, "report", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    return subprocess.run(arguments, capture_output=True, text=True, env=environment, timeout=120)


def test_the_command_without_torch(tmp_path):
    runs = [write_run(tmp_path / name, isotropy=False) for name in ("a", "b")]
    done = command(*runs)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [str(run / "report.html") for run in runs]
    assert all((run / "report.html").is_file() for run in runs)


def test_a_folder_that_is_no_run(tmp_path):
    run = write_run(tmp_path / "a", isotropy=False)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "result.json").write_text("{}")
    done = command(tmp_path / "nowhere", run, tmp_path / "c")
    assert done.returncode == 2
    assert "nowhere is no run folder" in done.stderr
    assert "give a folder such as" in done.stderr
    assert "Traceback" not in done.stderr
    assert str(run / "report.html") in done.stdout  # the others are written
