"""The archived main study gives the isotropy curves that it gave when they were stored.

Its table is compared with that of the docs in `tests/studies/test_archive.py`.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.reporting.archive_curves import STORED, curves

# Sums of at most 1,400 numbers from fixed records, by numpy and scipy: other builds differ by
# rounding alone.
CLOSE = {"rel": 1e-9, "abs": 1e-12, "nan_ok": True}


def test_every_curve_is_the_stored_one(tmp_path: Path) -> None:
    stored, now = json.loads(STORED.read_text("utf-8")), curves(tmp_path)
    assert now.keys() == stored.keys()
    for name, curve in stored.items():
        for part, wanted in curve.items():  # floats: an undefined value, None, becomes NaN
            found = np.array(now[name][part], float)
            assert found == pytest.approx(np.array(wanted, float), **CLOSE), (name, part)
