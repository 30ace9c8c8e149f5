"""Tables to compute with: CSV and parquet, equal bytes for equal runs.

`runs.csv` has a line a run and a column a score, small and ready for a spreadsheet; `runs.parquet`
a line a run and score, with the N of each, under columns that no study changes.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from isotrain.reporting.table import Line
from isotrain.studies.definition import Study
from isotrain.studies.results import Run

COLUMNS = (
    *("runs", "task", "score", "arm", "N", "n", "mean", "sd", "low", "high", "best_of", "failed"),
    *("baseline", "diff_mean", "diff_sd", "diff_n", "diff_low", "diff_high", "p", "method"),
    *("p_holm", "comparisons", "margin", "p_equivalent", "n_for_a_point"),
    *("rows_mean", "rows_low", "rows_high", "rows_N", "rows_n", "rows_undefined", "why_no_rows"),
    "degenerate",  # how many runs of the arm and of the baseline are, in words
)
OF_A_RUN = ("task", "arm", "seed", "degenerate", "code", "data", "folder")


def table_csv(study: Study, tables: Mapping[str, Sequence[Line]]) -> str:
    """A line per table, task, score and arm, with `COLUMNS`; empty where nothing is defined.

    `tables` maps `all`, and `without degenerate` where there are such runs, to rows.
    """
    lines = [_cells(study, name, line) for name, own in tables.items() for line in own]
    return _csv([COLUMNS, *lines])


def runs_csv(runs: Sequence[Run], more: Sequence[Mapping[str, str]] = ()) -> str:
    """A line per finished run: what made it, and every score it has.

    `more`: further columns, such as keys of its configuration, one mapping a run.
    """
    keys = sorted({key for run in runs for key in run.scores})
    names = list(more[0]) if more else []
    lines = []
    for k, run in enumerate(runs):
        own = [more[k][name] for name in names]
        scores = (number(run.scores.get(key)) for key in keys)
        lines.append([*_of_a_run(run), *own, *scores])
    return _csv([[*OF_A_RUN, *names, *keys], *lines])


def runs_parquet(runs: Sequence[Run], more: Sequence[Mapping[str, str]] = ()) -> bytes:
    """A line per finished run and score: what made the run, `key`, `value`, and `n_rows`."""
    import pyarrow as pa  # what reads no parquet need not wait for it
    import pyarrow.parquet as pq

    counts = [len(run.scores) for run in runs]

    def repeated(values: Sequence[str]) -> Any:
        distinct = {value: code for code, value in enumerate(dict.fromkeys(values))}
        codes = np.repeat([distinct[value] for value in values], counts).astype(np.int32)
        return pa.DictionaryArray.from_arrays(codes, pa.array(list(distinct), pa.string()))

    made = list(zip(*map(_of_a_run, runs), strict=True))
    columns = {name: repeated(made[k]) for k, name in enumerate(OF_A_RUN) if name != "seed"}
    columns["seed"] = pa.array(np.repeat([run.seed for run in runs], counts), pa.int64())
    columns |= {name: repeated([own[name] for own in more]) for name in (more[0] if more else ())}
    keys = [key for run in runs for key in run.scores]
    columns["key"] = pa.array(keys, pa.string()).dictionary_encode()
    columns["value"] = pa.array([v for run in runs for v in run.scores.values()], pa.float64())
    sizes = [run.n_rows(key) for run in runs for key in run.scores]
    columns["n_rows"] = pa.array(sizes, pa.int64())
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream, compression="zstd")
    return stream.getvalue()


def number(value: float | None) -> str:
    """A value with eight digits; empty for None and NaN.

    >>> number(1 / 3), number(None)
    ('0.33333333', '')
    """
    return "" if value is None or math.isnan(value) else f"{value:.8g}"


def _of_a_run(run: Run) -> tuple[str, ...]:
    made = (run.degenerate, run.code, run.data, run.name)
    return (run.task, run.arm, str(run.seed), *made)


def _cells(study: Study, name: str, line: Line) -> list[str]:
    own, found, rows = line.own, line.comparison, line.rows
    cells = [name, line.task, line.score, line.arm, line.n_rows, str(own.n)]
    cells += map(number, (own.mean, own.sd, own.low, own.high))
    cells += [line.best_of, str(line.n_failed), study.baseline]
    if found is None:
        cells += [""] * 12
    else:
        difference = found.difference
        margin = study.margin if found.p_equivalent is not None else None
        cells += [number(difference.mean), number(difference.sd), str(difference.n)]
        cells += map(number, (difference.low, difference.high, found.p))
        cells += [found.method, number(line.p_holm), str(line.n_comparisons)]
        cells += map(number, (margin, found.p_equivalent, line.n_for_a_point))
    if rows is None:
        return [*cells, *[""] * 6, line.why_no_rows, line.degenerate]
    numbers = (rows.mean, rows.low, rows.high, rows.n_rows, rows.n_seeds, rows.n_undefined)
    return [*cells, *map(number, numbers), "", line.degenerate]


def _csv(lines: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()
