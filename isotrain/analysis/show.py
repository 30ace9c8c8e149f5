"""Tables of records, as data with one renderer; principal maps of embeddings.

A standard error `<column>_error` is shown as the half width of a 95 % CI, everywhere, as are bands.
N embeddings, D dimensions, R directions, M points.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pandas as pd
import torch
from torch import Tensor

from isotrain.geometry.clusters import centre_rows
from isotrain.geometry.spectra import leading_directions
from isotrain.runs.numbers import number

Cell = str | float | int | None
Record = Mapping[str, Any]
"""One measurement, of cells: flat, so that it is a line of a CSV file and a row of a table."""

DIGITS = 4  # of a number in a table for readers; CSV files have full precision
Z = 1.959963984540054  # half a 95 % CI in standard errors


class Table(NamedTuple):
    """A table for readers."""

    name: str  # of its file
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    notes: Sequence[str] = ()  # method, N, how to read it


def text(cell: Cell) -> str:
    """A formatted cell; a dash if undefined.

    >>> text(0.123456), text(80.6), text(1234.5), text(3), text(None), text("layer_3")
    ('0.1235', '80.60', '1,234', '3', '–', 'layer_3')
    """
    return number(cell, DIGITS) if cell is None or isinstance(cell, float) else str(cell)


def texts(rows: Sequence[Sequence[Cell]]) -> list[list[str]]:
    """Every cell as `text`."""
    return [[*map(text, row)] for row in rows]


class Frames:
    """Records as data frames, one for each kind, columns of objects: 3 stays 3.

    >>> Frames([{"kind": "layer", "layer": 3}, {"kind": "layer", "n": None}]).of("layer")["layer"]
    0       3
    1    None
    Name: layer, dtype: object
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records

    def of(self, kind: str) -> pd.DataFrame:
        """The records of a kind; missing values are None."""
        records = [record for record in self.records if record["kind"] == kind]
        return without_nan(pd.DataFrame(records, dtype=object))

    @property
    def weights(self) -> list[Cell]:
        """The measured weights: `as given`, or `before` and `after`."""
        return list(dict.fromkeys(record["weights"] for record in self.records))


def best_on_dev(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """For each value of `keys` the row with the best `dev`, the first of equal ones.

    >>> frame = pd.DataFrame({"task": ["a", "a", "b"], "layer": [0, 1, 0], "dev": [0.1, 0.2, 0.3]})
    >>> best_on_dev(frame, ["task"])["layer"].tolist()
    [1, 0]
    """
    frame = frame.assign(dev=frame["dev"].astype(float))
    best = frame.sort_values("dev", ascending=False, kind="stable")
    return best.drop_duplicates(keys).sort_index()


def without_nan(frame: pd.DataFrame) -> pd.DataFrame:
    """A frame of objects whose missing values are None."""
    frame = frame.astype(object)
    return frame.where(frame.notna(), None)


Rows = str | Callable[[Frames], pd.DataFrame]
Note = str | Callable[[Frames], Iterable[str]]


@dataclass(frozen=True)
class TableSpec:
    """A table as data.

    A value with a column `<value>_error` reads `value ± 1.96 · error`; one with `<value>_low` and
    `<value>_high` has a column `95 % CI` after it. For a run, a column `weights` follows the index.
    Rows are grouped by the index, left to right, in order of first occurrence.

    Args:
        name: of the table's file.
        title: with fields, as notes.
        of: a kind of record, or a function of all of them.
        index: columns that identify a row.
        values: columns and their headings; those that no record has are left out.
        across: a column whose values are side by side, each with all of `values`.
        notes: with fields `{n_rows:,}` of the first record, `{analysis.seeds}`; or a function.
        each: a column: one table for each of its values.
        form: of a value with an error or a CI, such as `.3f`.
        bare: only values, without errors and CIs.
    """

    name: str
    title: str
    of: Rows
    index: Mapping[str, str]
    values: Mapping[str, str]
    across: str | None = None
    notes: Sequence[Note] = ()
    each: str | None = None
    form: str = ".3f"
    bare: bool = False


def render(spec: TableSpec, frames: Frames, analysis: object) -> Iterator[Table]:
    """The table of a specification, or one for each value of `each`, with its texts filled in."""
    for fields, frame in groups_of(spec.of, spec.each, frames, analysis):
        if len(frame):
            notes: list[str] = []
            for note in spec.notes:
                notes += [note.format_map(fields)] if isinstance(note, str) else note(frames)
            name, title = (text.format_map(fields) for text in (spec.name, spec.title))
            has_weights = len(frames.weights) > 1 and "weights" in frame
            yield Table(name, title, *_columns_and_rows(spec, frame, has_weights), notes)


def groups_of(
    of: Rows, each: str | None, frames: Frames, analysis: object
) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The records of a table or plot, in groups, with the fields for its texts."""
    frame = frames.of(of) if isinstance(of, str) else without_nan(of(frames))
    values = [None] if each is None or frame.empty else list(dict.fromkeys(frame[each]))
    for value in values:
        group = frame if value is None else frame[frame[each] == value]
        first = {} if group.empty else group.iloc[0].to_dict()
        yield {"analysis": analysis, **first}, group


def interval(low: Cell, high: Cell, form: str = ".3f") -> str | None:
    """A formatted 95 % CI.

    >>> interval(0.25, 0.5), interval(None, None)
    ('0.250 to 0.500', None)
    """
    if not isinstance(low, int | float) or not isinstance(high, int | float):
        return None
    return f"{low:{form}} to {high:{form}}"


def with_error(value: Cell, error: Cell, form: str = ".3f") -> str | None:
    """A formatted value with the half width of its 95 % CI; the error may be unknown.

    >>> with_error(0.12345, 0.001), with_error(0.5, None), with_error(None, 0.1)
    ('0.123 ± 0.002', '0.500', None)
    """
    if not isinstance(value, int | float) or math.isnan(value):
        return None
    has_error = isinstance(error, int | float) and math.isfinite(error)
    return f"{value:{form}}" + (f" ± {Z * float(error):{form.lstrip('+')}}" if has_error else "")  # type: ignore[arg-type]


def left_out(kind: str, column: str) -> Callable[[Frames], Iterator[str]]:
    """A note on unmeasured items: the records of a kind, by a column."""

    def note(frames: Frames) -> Iterator[str]:
        frame = frames.of(kind)
        if len(frame):
            yield f"left out: {', '.join(dict.fromkeys(frame[column]))}; records.csv says why"

    return note


def run_saw(frames: Frames) -> Iterator[str]:
    """A note on probes of an encoder after a run."""
    if "after" in frames.weights:
        yield (
            "after: where the run was trained on this very task, its encoder has seen the training "
            "examples, the held-out part among them; dev may have chosen the run's checkpoint."
        )


def _columns_and_rows(
    spec: TableSpec, frame: pd.DataFrame, has_weights: bool
) -> tuple[list[str], list[list[Cell]]]:
    keys = [*spec.index, *["weights"] * has_weights]
    lines: dict[tuple[Cell, ...], dict[str, Cell]] = {}
    columns: dict[str, None] = {}
    for record in frame.to_dict("records"):
        prefix = "" if spec.across is None else f"{record[spec.across]} "
        cells = {(prefix + name).strip(): cell for name, cell in _cells(spec, frame, record)}
        lines.setdefault(tuple(record[key] for key in keys), {}).update(cells)
        columns |= dict.fromkeys(cells)

    def order(index: tuple[Cell, ...]) -> list[int]:  # first occurrence of each prefix
        lengths = range(1, len(spec.index) + 1)
        return [next(i for i, line in enumerate(lines) if line[:n] == index[:n]) for n in lengths]

    rows = [[*line, *map(lines[line].get, columns)] for line in sorted(lines, key=order)]
    return [*(spec.index.get(key, key) for key in keys), *columns], rows


def _cells(
    spec: TableSpec, frame: pd.DataFrame, record: Mapping[Any, Any]
) -> Iterator[tuple[str, Cell]]:
    """The cells of a record, each with its heading."""
    for key, name in spec.values.items():
        if key not in frame:
            continue
        if f"{key}_low" in frame and not spec.bare:
            bounds = record[f"{key}_low"], record[f"{key}_high"]
            yield name, record[key]
            yield f"{name} 95 % CI".strip(), interval(*bounds, spec.form)
        elif f"{key}_error" in frame and not spec.bare:
            yield name, with_error(record[key], record[f"{key}_error"], spec.form)
        else:
            yield name, record[key]


def principal_map(x_ND: Tensor, n_directions: int = 2) -> tuple[Tensor, Tensor]:
    """Embeddings `[N, R]` along the leading principal directions, and the variance share of each.

    The largest entry of a direction is positive, since its sign is the solver's choice.

    >>> principal_map(torch.tensor([[2.0, 0.0], [-2.0, 0.0]]), 1)[0].tolist()
    [[2.0], [-2.0]]
    """
    centred_ND = centre_rows(x_ND.double())
    basis_DR = leading_directions(centred_ND, n_directions)
    largest_1R = basis_DR.gather(0, basis_DR.abs().argmax(dim=0, keepdim=True))
    basis_DR = basis_DR * torch.where(largest_1R < 0, -1.0, 1.0)
    map_NR = centred_ND @ basis_DR
    total = centred_ND.square().sum().clamp_min(torch.finfo(torch.float64).tiny)
    return map_NR, map_NR.square().sum(dim=0) / total
