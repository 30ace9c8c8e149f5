"""The folder of an analysis: parts kept, and dropped where what they depend on has changed."""

import math

import numpy as np
import pytest

from isotrain.analysis.store import Store
from isotrain.analysis.types import PartResult
from isotrain.runs.files import write_json

FACTS = {"data": "rte, version 1", "from_run": None}
CODE = {"code": {"git": "0123"}}


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "out" / "mine")
    store.folder.mkdir(parents=True)
    store.begin(FACTS | CODE, anew=False)
    store.keep("as given", "layers", PartResult([{"layer": 0}]))
    return store


def test_what_a_part_found_comes_back(store):
    records = [{"layer": 0, "value": 0.1 + 0.2, "word": "é|"}, {"layer": 1, "value": math.nan}]
    arrays = {"map": np.arange(6, dtype=np.float32).reshape(3, 2)}
    assert not store.has("before", "layers")
    store.keep("before", "layers", PartResult(records, arrays))
    assert store.has("before", "layers")
    outcome = store.outcome([("before", "layers"), ("as given", "layers")])
    assert outcome.records == [
        {"weights": "before", "layer": 0, "value": 0.1 + 0.2, "word": "é|"},
        {"weights": "before", "layer": 1, "value": None},  # JSON has no NaN
        {"weights": "as given", "layer": 0},
    ]
    assert list(outcome.arrays) == ["before/map"]
    np.testing.assert_array_equal(outcome.arrays["before/map"], arrays["map"])


def test_parts_stay_until_a_fact_changes(store):
    store.begin(FACTS | CODE, anew=False)
    assert store.has("as given", "layers")
    for changed in ({"data": "rte, version 2"}, {"code": {"git": "4567"}}):
        store.keep("as given", "layers", PartResult([{"layer": 0}]))
        store.begin(FACTS | CODE | changed, anew=False)
        assert not store.has("as given", "layers")


def test_a_finished_analysis_is_one_of_the_same_facts(store):
    assert store.finished(FACTS) == {}
    record = {"status": "finished", "parts": [["as given", "layers"]], **FACTS}
    write_json(store.folder / "result.json", record)
    assert store.finished(FACTS) == record
    assert store.finished({**FACTS, "from_run": "0123"}) == {}


def test_anew_drops_what_is_finished_and_goes_on_with_what_is_not(store):
    store.begin(FACTS | CODE, anew=True)
    assert store.has("as given", "layers")
    write_json(store.folder / "result.json", {"status": "finished", **FACTS})
    store.begin(FACTS | CODE, anew=True)
    assert not store.has("as given", "layers")
    assert store.finished(FACTS) == {}
