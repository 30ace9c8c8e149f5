"""Tables and line plots of records, as data with one renderer each; maps of embeddings.

A standard error `<column>_error` is shown as the half width of a 95 % CI, everywhere, as are bands.
N embeddings, D dimensions, R directions, M points.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from isotrain.geometry.clusters import centre_rows
from isotrain.geometry.spectra import leading_directions
from isotrain.pages.panels import COLOURS
from isotrain.results.numbers import number

Cell = str | float | int | None
Record = Mapping[str, Any]
"""One measurement, of cells: flat, so that it is a line of a CSV file and a row of a table."""

DIGITS = 4  # of a number in a table to read; CSV files have them all
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
        own = [record for record in self.records if record["kind"] == kind]
        return without_nan(pd.DataFrame(own, dtype=object))

    @property
    def weights(self) -> list[Cell]:
        """The measured weights: `as given`, or `before` and `after`."""
        return list(dict.fromkeys(record["weights"] for record in self.records))


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
    `<value>_high` has a column `95 % CI` behind it. Of a run, `weights` follows the index. Rows
    are grouped by the index, left to right, each group where it first occurs.

    Args:
        name: of the table's file.
        title: with fields, as notes.
        of: a kind of record, or a function of all of them.
        index: columns that a row is named by.
        values: columns and their headings; those that no record has are left out.
        across: a column whose values stand side by side, each with all of `values`.
        notes: with fields `{n_rows:,}` of the first record, `{analysis.seeds}`; or a function.
        each: a column: one table for each of its values.
        form: of a value with an error or a CI, such as `.3f`.
        bare: values alone, without errors and CIs.
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
    """The table of a specification, or one for each value of `each`; its texts filled."""
    for fields, own in groups_of(spec.of, spec.each, frames, analysis):
        if len(own):
            notes: list[str] = []
            for note in spec.notes:
                notes += [note.format_map(fields)] if isinstance(note, str) else note(frames)
            name, title = (text.format_map(fields) for text in (spec.name, spec.title))
            several = len(frames.weights) > 1 and "weights" in own
            yield Table(name, title, *_columns_and_rows(spec, own, several), notes)


def groups_of(
    of: Rows, each: str | None, frames: Frames, analysis: object
) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The records of a table or plot, in groups, with the fields for its texts."""
    frame = frames.of(of) if isinstance(of, str) else without_nan(of(frames))
    values = [None] if each is None or frame.empty else list(dict.fromkeys(frame[each]))
    for value in values:
        own = frame if value is None else frame[frame[each] == value]
        first = {} if own.empty else own.iloc[0].to_dict()
        yield {"analysis": analysis, **first}, own


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
    known = isinstance(error, int | float) and math.isfinite(error)
    return f"{value:{form}}" + (f" ± {Z * float(error):{form.lstrip('+')}}" if known else "")  # type: ignore[arg-type]


def left_out(kind: str, column: str) -> Callable[[Frames], Iterator[str]]:
    """A note on unmeasured items: the records of a kind, by a column."""

    def note(frames: Frames) -> Iterator[str]:
        absent = frames.of(kind)
        if len(absent):
            yield f"left out: {', '.join(dict.fromkeys(absent[column]))}; records.csv says why"

    return note


def run_saw(frames: Frames) -> Iterator[str]:
    """A note on probes of an encoder after a run."""
    if "after" in frames.weights:
        yield (
            "after: where the run was trained on this very task, its encoder has seen the training "
            "examples, the held-out part among them; dev may have chosen the run's checkpoint."
        )


def _columns_and_rows(
    spec: TableSpec, own: pd.DataFrame, several: bool
) -> tuple[list[str], list[list[Cell]]]:
    keys = [*spec.index, *["weights"] * several]
    lines: dict[tuple[Cell, ...], dict[str, Cell]] = {}
    columns: dict[str, None] = {}
    for record in own.to_dict("records"):
        side = "" if spec.across is None else f"{record[spec.across]} "
        cells = {(side + name).strip(): cell for name, cell in _cells(spec, own, record)}
        lines.setdefault(tuple(record[key] for key in keys), {}).update(cells)
        columns |= dict.fromkeys(cells)

    def order(place: tuple[Cell, ...]) -> list[int]:  # where each beginning first occurs
        ends = range(1, len(spec.index) + 1)
        return [next(i for i, one in enumerate(lines) if one[:n] == place[:n]) for n in ends]

    rows = [[*place, *map(lines[place].get, columns)] for place in sorted(lines, key=order)]
    return [*(spec.index.get(key, key) for key in keys), *columns], rows


def _cells(
    spec: TableSpec, own: pd.DataFrame, record: Mapping[Any, Any]
) -> Iterator[tuple[str, Cell]]:
    """The cells of a record, each with its heading."""
    for key, name in spec.values.items():
        if key not in own:
            continue
        if f"{key}_low" in own and not spec.bare:
            ends = record[f"{key}_low"], record[f"{key}_high"]
            yield name, record[key]
            yield f"{name} 95 % CI".strip(), interval(*ends, spec.form)
        elif f"{key}_error" in own and not spec.bare:
            yield name, with_error(record[key], record[f"{key}_error"], spec.form)
        else:
            yield name, record[key]


MARKERS = ("o", "s", "^")  # one for each round through the colours
PANELS = 3  # side by side
LAYERS = "layer (0 = embedding output)"
POINT = {"s": 4.0, "linewidths": 0, "rasterized": True}  # size in square points
REFERENCE = {"color": "black", "marker": "", "linestyle": ":", "linewidth": 1.5}


class Picture(NamedTuple):
    """A figure with its file name and alternative text."""

    name: str
    title: str
    figure: Figure
    description: str


@dataclass(frozen=True)
class LinePlot:
    """A picture as data: a line for each value of `hue` and each column of `y`.

    A band is the 95 % CI: ± 1.96 · `<y>_error`, or from `<y>_low` to `<y>_high`. Lines of the
    weights before a run are dashed. Texts have fields, as the notes of a table.

    Args:
        name: of the picture's files.
        title: above it.
        description: for readers who do not see it.
        of: a kind of record, or a function of all of them.
        y: columns, with the names of their lines.
        x: a column of numbers.
        hue: a column: a colour for each of its values.
        panel: a column: an axis for each of its values.
        each: a column: one picture for each of its values.
        xlabel: of the axes; a panel's value fills its fields.
        ylabel: of the axes.
        reference: columns of `y`, or values of `hue`, that are drawn dotted in black.
        null: a column that is drawn thin and dotted in the colour of each line.
        log: whether x is drawn on a logarithmic scale.
    """

    name: str
    title: str
    description: str
    of: Rows
    y: Mapping[str, str]
    x: str = "layer"
    hue: str | None = None
    panel: str | None = None
    each: str | None = None
    xlabel: str = LAYERS
    ylabel: str = ""
    reference: tuple[str, ...] = ()
    null: str | None = None
    log: bool = False


def draw(spec: LinePlot, frames: Frames, analysis: object) -> Iterator[Picture]:
    """The picture of a specification, or one for each value of `each`; none without a value."""
    for fields, own in groups_of(spec.of, spec.each, frames, analysis):
        if own.empty or not any(y in own and own[y].notna().any() for y in spec.y):
            continue
        if "weights" not in own:
            own = own.assign(weights="as given")
        texts = (spec.name, spec.title, spec.description)
        name, title, description = (text.format_map(fields) for text in texts)
        with matplotlib.rc_context({"text.parse_math": False}):
            figure = _figure(spec, own, title, fields)
        yield Picture(name.replace(" ", "_"), title[0].upper() + title[1:], figure, description)


def _figure(spec: LinePlot, own: pd.DataFrame, title: str, fields: Mapping[str, Any]) -> Figure:
    panels = [None] if spec.panel is None else list(dict.fromkeys(own[spec.panel]))
    wide, high = min(PANELS, len(panels)), -(-len(panels) // PANELS)
    size = (6.4, 3.6) if len(panels) == 1 else (1.0 + 3.0 * wide, 1.2 + 2.4 * high)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(high, wide, sharey=spec.x == "layer", squeeze=False).ravel()
    number_of: dict[tuple[Any, str], int] = {}  # of the colour of a hue and column, in all panels
    shown: dict[str, Any] = {}
    for axis, panel in zip(axes, panels, strict=False):
        points = own if panel is None else own[own[spec.panel] == panel]
        shown = {**_draw_lines(axis, spec, points, number_of), **shown}
        _dress(axis, spec, {**fields, str(spec.panel): panel})
        axis.set_title("" if panel is None else str(panel), fontsize=9)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    figure.suptitle(title, fontsize=9)
    if len(shown) > 1:
        look: dict[str, Any] = {"fontsize": 7, "frameon": False, "handlelength": 3}
        look["ncols"] = min(4, 1 + wide)
        figure.legend(shown.values(), shown, loc="outside lower center", **look)
    return figure


def _draw_lines(
    axis: Axes, spec: LinePlot, own: pd.DataFrame, number_of: dict[tuple[Any, str], int]
) -> dict[str, Any]:
    """Draw the lines of a panel; what is drawn, by name."""
    drawn: dict[str, Any] = {}
    weights = list(dict.fromkeys(own["weights"]))
    for hue in [None] if spec.hue is None else list(dict.fromkeys(own[spec.hue])):
        for column, name in spec.y.items():
            for one in weights:
                at = (own["weights"] == one) & (True if hue is None else own[spec.hue] == hue)
                points = own[at]
                if column not in own or not points[column].notna().any():
                    continue
                if {column, hue} & {*spec.reference}:
                    look: Mapping[str, Any] = REFERENCE
                else:
                    number = number_of.setdefault((hue, column), len(number_of))
                    look = {
                        "color": COLOURS[number % len(COLOURS)],
                        "marker": MARKERS[number // len(COLOURS) % len(MARKERS)],
                        "linestyle": "--" if one == "before" else "-",
                    }
                called = [str(one)] * (len(weights) > 1) + [str(hue or ""), name]
                label = " ".join(filter(None, called))
                drawn[label] = _draw_line(axis, spec, points, column, {**look, "label": label})
    return drawn


def _draw_line(
    axis: Axes, spec: LinePlot, points: pd.DataFrame, column: str, look: Mapping[str, Any]
) -> Any:
    points = points.sort_values(spec.x, key=_numbers)
    x, y = _numbers(points[spec.x]), _numbers(points[column])
    (line,) = axis.plot(x, y, markersize=3.5, **look)
    low = high = y
    if f"{column}_low" in points:
        low, high = (_numbers(points[f"{column}_{end}"]).fillna(y) for end in ("low", "high"))
    elif f"{column}_error" in points:
        half = Z * _numbers(points[f"{column}_error"]).fillna(0.0)
        low, high = y - half, y + half
    if (high > low).any():
        axis.fill_between(x, low, high, alpha=0.2, color=look["color"], linewidth=0)
    if spec.null in points:
        null = _numbers(points[spec.null])
        axis.plot(x, null, color=look["color"], linestyle=":", linewidth=0.8)
    return line


def _dress(axis: Axes, spec: LinePlot, fields: Mapping[str, Any]) -> None:
    axis.set_xlabel(spec.xlabel.format_map(fields), fontsize=8)
    axis.set_ylabel(spec.ylabel.format_map(fields), fontsize=8)
    axis.tick_params(labelsize=8)
    if spec.log:
        axis.set_xscale("log", base=2)
        at = np.unique(np.concatenate([line.get_xdata() for line in axis.get_lines()]))
        axis.set_xticks(at, [f"{value:,.0f}" for value in at], fontsize=7)
        axis.minorticks_off()
    elif spec.x == "layer":
        axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    clean(axis)


def clean(axis: Axes) -> None:
    """Apply the common axis style of analyses."""
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def _numbers(column: pd.Series) -> pd.Series:
    return pd.to_numeric(column, errors="coerce").astype(float)


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


def draw_by_frequency(axis: Any, point_MR: np.ndarray, frequency_M: np.ndarray) -> Any:
    """Points coloured by how often their token occurs, on a logarithmic scale; rare ones on top."""
    order = np.argsort(-frequency_M, kind="stable")
    colours = {"c": frequency_M[order], "norm": "log", "cmap": "viridis"}
    return axis.scatter(*point_MR[order].T, **colours, **POINT)
