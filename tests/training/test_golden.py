"""20 steps of a small run give the stored losses and isotropy.

On one CPU as it is, with ATEN_CPU_CAPABILITY=default or avx2, with MKL and oneDNN held to AVX2,
with MKL_CBWR=COMPATIBLE, with it and ATEN_CPU_CAPABILITY=default, and with `threads=2`, losses
differ by at most 3e-7 and measures by 2.7e-5 of their value. The bounds are ten times that.
"""

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
    assert found["losses"] == pytest.approx(stored["losses"], abs=3e-6)
    for when in ("first", "last"):
        assert set(found[when]) == set(stored[when])
        assert found[when] == pytest.approx(stored[when], rel=3e-4, abs=1e-6)
    assert max(stored["losses"]) - min(stored["losses"]) > 0.01
    assert stored["first"] != pytest.approx(stored["last"], rel=1e-2)
