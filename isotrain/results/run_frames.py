"""Scores of runs as flat tables, and tables as bytes."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from isotrain.results.runs import Run

if TYPE_CHECKING:
    from pandas import DataFrame

OF_A_RUN = ("task", "method", "seed", "collapsed", "code", "data", "folder")


def runs_frame(runs: Sequence[Run], more: Sequence[Mapping[str, str]] = ()) -> DataFrame:
    """One line per finished run: its provenance and all its scores.

    `more`: further columns, such as configuration keys, one mapping per run.
    """
    import pandas as pd  # slow to import; only tables need it

    keys = sorted({key for run in runs for key in run.scores})
    scores = pd.DataFrame([run.scores for run in runs], columns=keys, dtype="float64")
    return pd.concat([_provenance_frame(runs, more), scores], axis=1)


def scores_frame(runs: Sequence[Run], more: Sequence[Mapping[str, str]] = ()) -> DataFrame:
    """One line per finished run and score: provenance, `key`, `value` and `examples` (N)."""
    import pandas as pd

    provenance = _provenance_frame(runs, more)
    provenance = provenance.astype({name: "category" for name in provenance if name != "seed"})
    frame = provenance.loc[provenance.index.repeat([len(run.scores) for run in runs])]
    scores = [(key, value, run.n_rows(key)) for run in runs for key, value in run.scores.items()]
    keys, values, sizes = zip(*scores, strict=True) if scores else ((), (), ())
    return frame.assign(
        key=pd.Categorical(keys),
        value=np.asarray(values, float),
        examples=pd.array(list(sizes), dtype="Int64"),
    ).reset_index(drop=True)


def csv_text(frame: DataFrame) -> str:
    """A frame as CSV, floats with eight digits; empty cells for undefined values."""
    floats = frame.select_dtypes("float64")  # one by one, `to_csv` takes five times as long
    texts = {name: floats[name].map("{:.8g}".format, na_action="ignore") for name in floats}
    return str(frame.assign(**texts).to_csv(index=False, lineterminator="\n"))


def parquet_bytes(frame: DataFrame) -> bytes:
    """A frame as parquet; equal frames give equal bytes."""
    stream = io.BytesIO()
    frame.to_parquet(stream, compression="zstd", index=False)
    return stream.getvalue()


def _provenance_frame(runs: Sequence[Run], more: Sequence[Mapping[str, str]]) -> DataFrame:
    """One line per run with its provenance, and further columns."""
    import pandas as pd

    lines = [(r.task, r.method, r.seed, r.degenerate, r.code, r.data, r.name) for r in runs]
    return pd.concat([pd.DataFrame(lines, columns=OF_A_RUN), pd.DataFrame(list(more))], axis=1)
