"""The archived main study gives the figures that it gave when they were stored."""

from __future__ import annotations

import csv
import json
from typing import Any

import pytest

from tests.reporting.archive_figures import ARCHIVE, STORED, TASKS, figures

# Sums of at most 1,400 numbers from fixed records, by numpy and scipy: other builds differ by
# rounding alone.
CLOSE = {"rel": 1e-9, "abs": 1e-12}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return figures(tmp_path_factory.mktemp("archive"))


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = dict(enumerate(value)).items()
    else:
        return {path: value}
    return {k: v for name, own in items for k, v in leaves(own, f"{path}/{name}").items()}


def test_every_figure_is_the_stored_one(found: dict[str, Any]) -> None:
    stored, now = leaves(json.loads(STORED.read_text("utf-8"))), leaves(found)
    assert now.keys() == stored.keys()
    numbers = {k for k, v in stored.items() if isinstance(v, float)}
    assert {k: v for k, v in now.items() if k not in numbers} == {
        k: v for k, v in stored.items() if k not in numbers
    }
    assert {k: now[k] for k in numbers} == pytest.approx({k: stored[k] for k in numbers}, **CLOSE)


def test_the_table_of_the_docs_has_the_same_figures(found: dict[str, Any]) -> None:
    with (ARCHIVE.parent / "table.csv").open(encoding="utf-8") as file:
        table = [row for row in csv.DictReader(file) if row["baseline"]]
    rows = {f"{r['task']} {r['method']} {r['score']}": r for r in table}
    assert rows.keys() == found["scores"].keys()
    for name, row in rows.items():
        assert float(row["mean"]) == pytest.approx(found["scores"][name]["own"][1], rel=1e-7)
        if row["difference"]:
            difference = found["scores"][name]["difference"]
            assert float(row["difference"]) == pytest.approx(difference[1], rel=1e-6)
            assert row["p_holm"] == f"{found['scores'][name]['p_holm']:.8g}"
    assert set(TASKS.values()) == {row["task"] for row in rows.values()}
