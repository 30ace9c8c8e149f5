"""20 steps of a small run give the stored losses and isotropy."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture
def regenerate():
    spec = importlib.util.spec_from_file_location("regenerate", GOLDEN / "regenerate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_twenty_steps(regenerate, write_fixture_data, tmp_path):
    stored = json.loads((GOLDEN / "run20.json").read_text(encoding="utf-8"))
    assert len(stored["losses"]) == 20
    # metrics and n_rows × places, scores, share of one class, rows, what the layers did
    assert len(stored["last"]) == 4 * (3 * 3 + 2 * 2) + 4 + 3 + 4
    found = regenerate.measure(tmp_path, write_fixture_data)
    assert found["losses"] == pytest.approx(stored["losses"], rel=1e-3)
    for when in ("first", "last"):
        assert set(found[when]) == set(stored[when])
        assert found[when] == pytest.approx(stored[when], rel=1e-3, abs=1e-5)
    assert stored["losses"][0] != pytest.approx(stored["losses"][-1], rel=1e-2)
    assert stored["first"] != pytest.approx(stored["last"], rel=1e-2)
