"""Logged rows as series, places and numbers."""

from __future__ import annotations

from pathlib import Path

from isotrain.keys import Place
from isotrain.pages.readings import READINGS, SOURCES, base_of
from isotrain.pages.rows import isotropy_places, n_rows, series
from tests.pages.small_run import clouds, evaluation, value

ROWS = [evaluation(0, clouds()), {"step": 1, "train/loss": 0.7}, evaluation(20, clouds())]
ROOT = Path(__file__).parents[2]


def test_series_are_in_the_order_of_steps():
    assert series(ROWS, "val/accuracy") == [(0, 0.5), (20, 0.55)]
    assert series(ROWS[::-1], "val/accuracy") == [(0, 0.5), (20, 0.55)]
    assert series(ROWS, "absent") == []


def test_places_of_all_metrics_and_of_one():
    assert len(isotropy_places(ROWS)) == 9 * len(clouds())
    places = isotropy_places(ROWS, "partition")
    assert len(places) == len(clouds())  # without its null
    wanted = [(step, -10 * value(step, "pooled", "after")) for step in (0, 20)]
    assert places[Place("partition", "pooled", "after")] == wanted
    assert isotropy_places([{"step": 0, "val/accuracy": 1.0}]) == {}


def test_rows_of_training_steps_are_apart():
    rows = [{"step": 4, "train_isotropy/lid/layer_00/cls": 2.0, "isotropy/lid/layer_00/cls": 3.0}]
    (place,) = isotropy_places(rows, source="train_isotropy")
    assert place == Place("lid", "layer_00", "cls", "train_isotropy")


def test_n_of_places_that_differ_is_a_range_and_nan_is_none():
    places = [Place("lid", "layer_00", "cls"), Place("lid", "layer_00", "tokens")]
    assert n_rows(ROWS, places) == "N = 640 to 2,048"
    assert n_rows(ROWS, places[:1]) == "N = 640"
    assert n_rows([{"step": 0, "isotropy/n_rows/layer_00/cls": float("nan")}], places) == ""


def test_every_metric_of_the_configuration_has_a_reading():
    names = [path.stem for path in (ROOT / "conf" / "metric").glob("*.yaml")]
    assert len(names) >= 32
    assert [n for n in names if base_of(n) not in READINGS] == []


def test_every_source_is_of_a_part_that_exists():
    folders = (ROOT / "isotrain" / "transforms", ROOT / "isotrain" / "objectives")
    parts = {path.stem for folder in folders for path in folder.glob("*.py")}
    assert [name for name in SOURCES if name not in parts] == []
