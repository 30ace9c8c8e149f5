"""20 steps of a small run give the stored losses and isotropy.

On one CPU as it is, with ATEN_CPU_CAPABILITY=default or avx2, with MKL and oneDNN held to AVX2,
with MKL_CBWR=COMPATIBLE, with it and ATEN_CPU_CAPABILITY=default, and with `threads=2`, losses
differ by at most 3e-7 and measures by 2.7e-5 of their value. The bounds are ten times that.
"""

import json

import pytest

from tests.golden import regenerate


def test_twenty_steps(write_fixture_data, tmp_path):
    stored = json.loads(regenerate.FILE.read_text(encoding="utf-8"))
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
