"""Scores of runs as a flat table, and tables as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from isotrain.results.runs import Run

if TYPE_CHECKING:
    from pandas import DataFrame

OF_A_RUN = ("task", "method", "seed", "collapsed", "code", "data", "folder")


def runs_frame(runs: Sequence[Run], more: Sequence[Mapping[str, str]] = ()) -> DataFrame:
    """One line per finished run: its provenance and all its scores.

    `more`: further columns, such as configuration keys, one mapping per run.
    """
    import pandas as pd  # slow to import; only tables need it

    lines = [(r.task, r.method, r.seed, r.degenerate, r.code, r.data, r.name) for r in runs]
    keys = sorted({key for run in runs for key in run.scores})
    scores = pd.DataFrame([run.scores for run in runs], columns=keys, dtype="float64")
    parts = [pd.DataFrame(lines, columns=OF_A_RUN), pd.DataFrame(list(more)), scores]
    return pd.concat(parts, axis=1)


def csv_text(frame: DataFrame) -> str:
    """A frame as CSV, floats with eight digits; empty cells for undefined values."""
    floats = frame.select_dtypes("float64")  # one by one, `to_csv` takes five times as long
    texts = {name: floats[name].map("{:.8g}".format, na_action="ignore") for name in floats}
    return str(frame.assign(**texts).to_csv(index=False, lineterminator="\n"))
