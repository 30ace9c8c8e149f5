"""Logged rows as series, as a figure, and as printed tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from isotrain.keys import Place
from isotrain.pages.curves import draw_curves
from isotrain.pages.rows import isotropy_places, series
from isotrain.pages.summary import print_layers, print_start, print_summary


def logged(step, value):
    places = [f"layer_{layer:02d}/{view}" for layer in range(3) for view in ("cls", "tokens")]
    places += [f"{site}/{side}" for site in ("layer_1", "pooled") for side in ("before", "after")]
    row = {"step": step, "val/accuracy": value}
    for number, place in enumerate(places):
        row[f"isotropy/isoscore/{place}"] = value + number / 100
        row[f"isotropy/n_rows/{place}"] = 1000 + number
    return row


ROWS = [logged(0, 0.25), {"step": 1, "train/loss": 0.7}, logged(2, 0.5)]
RESULT = {
    "seed": 3,
    "steps": 2,
    "n_rows": {"train": 9000, "dev": 277, "test": 0},
    "monitor": "val/accuracy",
    "scores": {"val/accuracy": 0.5},
    "timings_s": {"total": 12.3},
}


def test_series_are_in_the_order_of_steps():
    assert series(ROWS, "val/accuracy") == [(0, 0.25), (2, 0.5)]
    assert series(ROWS[::-1], "val/accuracy") == [(0, 0.25), (2, 0.5)]
    assert series(ROWS, "absent") == []


def test_places():
    places = isotropy_places(ROWS)
    assert len(places) == 2 * (6 + 4)
    assert places[Place("isoscore", "pooled", "after")] == [(0, 0.25 + 0.09), (2, 0.5 + 0.09)]
    assert isotropy_places([{"step": 0, "val/accuracy": 1.0}]) == {}


def figure_texts(monkeypatch, rows, path):
    """Every label, title and text of the figure that is drawn."""
    from matplotlib.figure import Figure

    texts = []
    save = Figure.savefig

    def record(figure, *arguments, **options):
        for axes in figure.axes:
            texts.extend([axes.get_title(), axes.get_ylabel(), *(t.get_text() for t in axes.texts)])
            texts.extend(line.get_label() for line in axes.get_lines())
        save(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", record)
    draw_curves(rows, path, "a title", "val/accuracy")
    return texts


def test_the_figure_names_every_layer_and_site(monkeypatch, tmp_path):
    texts = figure_texts(monkeypatch, ROWS, tmp_path / "curves.png")
    for wanted in ("layer_00", "layer_02", "layer_1, before", "pooled, after", "train/loss"):
        assert wanted in texts
    (counts,) = (text for text in texts if text.startswith("rows measured"))
    # Four clouds around isotropy layers, and two views: each with its N.
    for wanted in ("layer_1, before: N = 1,006", "pooled, after: N = 1,009", "tokens: N = "):
        assert wanted in counts
    assert (tmp_path / "curves.png").stat().st_size > 10_000


@pytest.mark.parametrize("rows", [[], [{"step": 0, "val/accuracy": 0.5}], ROWS[:1]])
def test_little_to_draw_is_drawn(tmp_path, rows):
    draw_curves(rows, tmp_path / "curves.png", "a title", "val/accuracy")
    assert (tmp_path / "curves.png").exists()


def test_summary(capsys, tmp_path):
    folder = tmp_path / "none-0123"
    folder.mkdir()
    (folder / "metrics.jsonl").touch()
    (folder / "result.json").touch()  # and no curves.png: it could not be drawn
    print_summary(RESULT, ROWS, folder)
    printed = capsys.readouterr().out
    for wanted in (
        "none-0123, seed 3",
        "val/accuracy (N = 277)",
        "0.2500",
        "0.5000",
        "step 2",
        "isoscore pooled/after (N = 1,009)",
        "isoscore layer_1/before",
        "layer_02/tokens",
        f"{folder}: metrics.jsonl, result.json; 12 s",
    ):
        assert wanted in printed
    assert "layer_01/tokens" not in printed  # the last layer only
    assert "test/accuracy" not in printed


ROWS_OF_FOUR = [*ROWS, logged(4, 0.25), logged(2, 0.5)]  # the selected weights once more


@pytest.mark.parametrize(
    ("more", "told", "not_told"),
    [
        ({}, [], ["best of", "degenerate", "stopped"]),
        (
            {"select": "best", "selected_step": 2, "n_evaluations": 3},
            ["step 2: best of 3 evaluations on dev: optimistic"],
            ["held-out", "stopped"],
        ),
        (
            {"select": "holdout", "selected_step": 2, "n_evaluations": 3, "stopped_by_patience": 1},
            ["step 2: best of 3 evaluations on 1,000 held-out", "stopped after step 4 by"],
            ["optimistic"],
        ),
        (
            {"select": "last", "config": {"training": {"select": "best"}}, "selected_step": 4},
            ["no evaluation had a score for training.select=best"],
            ["best of"],
        ),
        ({"degenerate": True, "degenerate_reason": "one class"}, ["degenerate: one class"], []),
        ({"degenerate": False, "degenerate_reason": ""}, [], ["degenerate"]),
    ],
)
def test_how_weights_were_selected_and_a_collapse_are_told(capsys, tmp_path, more, told, not_told):
    n_rows = {**RESULT["n_rows"], "holdout": 1000}
    result = {**RESULT, "steps": 4, "n_rows": n_rows, **more}
    print_summary(result, ROWS_OF_FOUR, tmp_path)
    printed = capsys.readouterr().out
    assert all(text in printed for text in told), printed
    assert not [text for text in not_told if text in printed]


def test_the_summary_has_the_values_of_the_selected_weights(capsys, tmp_path):
    scores = {key: value for key, value in ROWS[-1].items() if key != "step"}
    result = {**RESULT, "steps": 4, "scores": scores, "selected_step": 2, "select": "best"}
    print_summary(result, ROWS_OF_FOUR, tmp_path)
    printed = capsys.readouterr().out
    assert "step 2" in printed
    lines = [line for line in printed.splitlines() if "val/accuracy" in line or "after" in line]
    assert [line.split("│")[3].strip() for line in lines] == ["0.5000", "0.5700", "0.5900"]


@pytest.mark.parametrize("folder", ["/runs/[seed]/x", "/runs/a [bold]b"])
def test_a_path_is_printed_as_it_is(capsys, folder):
    parts = {"trainable": 1, "total": 2}
    print_start(Path(folder), parts, {"train": 9000, "dev": 5, "test": 0})
    print_summary(RESULT, ROWS, Path(folder), note="finished before")
    printed = capsys.readouterr().out
    assert f"{folder}: training 1 of 2 parameters (50%); rows: 9,000 train, 5 dev\n" in printed
    assert f"{folder} (finished before)" in printed


def test_layers_of_two_arms_side_by_side(capsys):
    print_layers({"none": ROWS, "mean": [logged(0, 0.1), logged(2, 0.75)]})
    printed = capsys.readouterr().out
    assert "every layer, end of training" in printed
    assert "N = 1,000" in printed
    lines = [line for line in printed.splitlines() if "layer_" in line]
    assert len(lines) == 3  # the layers, not the site layer_1
    assert [cell.strip() for cell in lines[0].split("│")[1:-1]] == [
        "layer_00", "0.5000", "0.7500", "0.5100", "0.7600",
    ]  # fmt: skip


def with_null(rows):
    """The rows with a metric and its null for each place, and one place without a value."""
    found = [dict(row) for row in rows]
    for row in found:
        for key in [key for key in row if "/isoscore/" in key]:
            row[key.replace("isoscore", "partition")] = -4.0
            row[key.replace("isoscore", "partition_null_low")] = -0.34
            row[key.replace("isoscore", "partition_null_median")] = -0.3
            row[key.replace("isoscore", "partition_null_high")] = -0.27
        row.pop("isotropy/partition/layer_00/cls", None)
    return found


def test_a_null_stands_beside_its_metric(capsys, tmp_path, monkeypatch):
    rows = with_null(ROWS)
    print_summary(RESULT, rows, tmp_path)
    out = capsys.readouterr().out
    assert "null -0.34…-0.27" in out
    assert "partition_null" not in out
    texts = figure_texts(monkeypatch, rows, tmp_path / "curves.png")
    assert "ln I(W) (0 = isotropic)" in texts
    assert not [text for text in texts if "null" in text]


def test_a_place_without_a_value_is_a_dash(capsys):
    print_layers({"none": with_null(ROWS), "layer": with_null(ROWS)})
    lines = [line for line in capsys.readouterr().out.splitlines() if "layer_00" in line]
    assert sum("–" in line for line in lines) == 1
