"""The folder of an analysis: parts kept, changed facts told, one process at a time."""

import json
import math
from contextlib import suppress

import numpy as np
import pytest

from isotrain.analysis.store import Store
from isotrain.analysis.types import Found
from isotrain.runs.files import write_json

FACTS = {"data": "rte, version 1", "from_run": None}
CODE = {"isotrain": "1.0", "git": "0123"}


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "out" / "mine")
    store.folder.mkdir(parents=True)
    assert store.begin(FACTS, anew=False) == []
    return store


def finish(store):
    store.keep("as given", "layers", Found([{"layer": 0}]), 1.5, CODE)
    write_json(
        store.folder / "result.json", {"status": "finished", "parts": [("as given", "layers")]}
    )


def test_what_a_part_found_comes_back(store):
    records = [{"layer": 0, "value": 0.1 + 0.2, "word": "é|"}, {"layer": 1, "value": math.nan}]
    arrays = {"map": np.arange(6, dtype=np.float32).reshape(3, 2)}
    assert not store.has("as given", "layers")
    store.keep("as given", "layers", Found(records, arrays), 1.234, CODE)
    store.keep("after", "layers", Found([{"layer": 0}]), 0, CODE)
    assert store.has("as given", "layers")
    assert store.seconds("as given", "layers") == 1.23
    outcome = store.outcome([("as given", "layers"), ("after", "layers")])
    assert outcome.records == [
        {"weights": "as given", "layer": 0, "value": 0.1 + 0.2, "word": "é|"},
        {"weights": "as given", "layer": 1, "value": None},  # JSON has no NaN
        {"weights": "after", "layer": 0},
    ]
    assert list(outcome.arrays) == ["as given/map"]
    np.testing.assert_array_equal(outcome.arrays["as given/map"], arrays["map"])


def test_a_stopped_attempt_keeps_its_parts(store):
    store.keep("as given", "layers", Found([{"layer": 0}]), 1, CODE)
    (store.rows("as given") / "x.npy").write_bytes(b"rows")
    again = Store(store.folder)
    assert again.begin(FACTS, anew=False) == []
    assert again.has("as given", "layers")
    assert (again.rows("as given") / "x.npy").read_bytes() == b"rows"


def test_changed_data_are_told_and_earlier_parts_go(store):
    store.keep("as given", "layers", Found([{"layer": 0}]), 1, CODE)
    (store.rows("as given") / "x.npy").write_bytes(b"rows")
    told = store.begin({**FACTS, "data": "rte, version 2"}, anew=False)
    assert told == [
        "data changed since this analysis was begun, from rte, version 1 to rte, version 2; "
        "1 part measured before cannot be used, all is measured again"
    ]
    assert not store.has("as given", "layers")
    assert not (store.rows("as given") / "x.npy").exists()
    assert store.begin({**FACTS, "data": "rte, version 2"}, anew=False) == []


def test_a_finished_analysis_of_other_data_is_none(store):
    assert store.finished(FACTS) == {}
    finish(store)
    assert store.finished(FACTS)["parts"] == [["as given", "layers"]]
    assert store.finished({**FACTS, "from_run": "0123"}) == {}
    store.begin({**FACTS, "from_run": "0123"}, anew=False)
    assert store.finished({**FACTS, "from_run": "0123"}) == {}


def test_anew_drops_all_and_tells_nothing(store):
    finish(store)
    assert store.begin(FACTS, anew=True) == []
    assert not store.has("as given", "layers")
    assert store.finished(FACTS) == {}


def stopped(store, kept=None):
    """A store whose owner began, kept something and was stopped."""
    with suppress(KeyboardInterrupt), store.owned():
        store.begin(FACTS, anew=False)
        rows = store.rows("as given")
        if kept == "part":
            store.keep("as given", "layers", Found([]), 1, CODE)
        elif kept == "rows":
            (rows / "x.npy").write_bytes(b"rows")
        raise KeyboardInterrupt
    return store


def test_a_failure_before_anything_is_kept_leaves_no_folder(tmp_path):
    assert not stopped(Store(tmp_path / "new")).folder.exists()


def test_a_failure_leaves_an_earlier_folder_as_it_was(store):
    (store.folder / "tables.md").write_text("of an earlier call")
    assert (stopped(store).folder / "tables.md").read_text() == "of an earlier call"


@pytest.mark.parametrize("kept", ["part", "rows"])
def test_a_failure_later_keeps_what_is_there(kept, tmp_path):
    store = stopped(Store(tmp_path / "new"), kept)
    assert json.loads((store.folder / "begun.json").read_text()) == FACTS
