"""Declarative line plots with one renderer for records, and maps of embeddings.

Bands are 95 % CIs of what the line shows. N embeddings, D dimensions, R directions, M points.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from isotrain.analysis.tables import Frames, Rows, Z, groups_of
from isotrain.geometry.clusters import centre_rows
from isotrain.geometry.spectra import leading_directions
from isotrain.pages.panels import COLOURS

MARKERS = ("o", "s", "^")  # one for each round through the colours
MOST = 12  # lines of a panel that a reader can tell apart
PANELS = 3  # side by side
LAYERS = "layer (0 = embedding output)"
POINT = {"s": 4.0, "linewidths": 0, "rasterized": True}  # size in square points


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
        mark: a column that names each point.
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
    mark: str | None = None


@dataclass
class _Line:
    """What is drawn, and how."""

    name: str
    points: pd.DataFrame
    column: str
    look: dict[str, Any] = field(default_factory=dict)


def draw(spec: LinePlot, frames: Frames, analysis: object) -> Iterator[Picture]:
    """The picture of a specification, or one for each value of `each`; none without a value."""
    for fields, own in groups_of(spec.of, spec.each, frames, analysis):
        if own.empty or not any(y in own and own[y].notna().any() for y in spec.y):
            continue
        if "weights" not in own:
            own = own.assign(weights="as given")
        texts = (spec.name, spec.title, spec.description)
        name, title, description = (text.format_map(fields) for text in texts)
        figure = _figure(spec, own, title, fields)
        yield Picture(name.replace(" ", "_"), title[0].upper() + title[1:], figure, description)


def _figure(spec: LinePlot, own: pd.DataFrame, title: str, fields: Mapping[str, Any]) -> Figure:
    panels = [None] if spec.panel is None else list(dict.fromkeys(own[spec.panel]))
    wide, high = min(PANELS, len(panels)), -(-len(panels) // PANELS)
    size = (6.4, 3.6) if len(panels) == 1 else (1.0 + 3.0 * wide, 1.2 + 2.4 * high)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(high, wide, sharey=spec.x == "layer", squeeze=False).ravel()
    looks: dict[tuple[Any, str], int] = {}
    shown: dict[str, Any] = {}
    few = ""
    for axis, panel in zip(axes, panels, strict=False):
        lines = _lines(spec, own if panel is None else own[own[spec.panel] == panel], looks)
        n_weights = len(dict.fromkeys(own["weights"]))
        if len(lines) > MOST * n_weights:
            few = f" (the first {MOST} of {len(lines) // n_weights})"
        for line in lines[: MOST * n_weights]:
            shown.setdefault(line.name, _draw(axis, line, spec))
        _dress(axis, spec, {**fields, str(spec.panel): panel})
        axis.set_title("" if panel is None else str(panel), fontsize=9, parse_math=False)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    figure.suptitle(title + few, fontsize=9, parse_math=False)
    if len(shown) > 1:
        legend = figure.legend(
            shown.values(),
            shown,
            loc="outside lower center",
            ncols=min(4, 1 + wide),
            fontsize=7,
            frameon=False,
            handlelength=3,
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    return figure


def _lines(spec: LinePlot, own: pd.DataFrame, looks: dict[tuple[Any, str], int]) -> list[_Line]:
    """The lines of a panel; those of one hue and column have one colour in all panels."""
    lines = []
    hues = [None] if spec.hue is None else list(dict.fromkeys(own[spec.hue]))
    weights = list(dict.fromkeys(own["weights"]))
    for hue in hues:
        for y, name in spec.y.items():
            for one in weights:
                at = (own["weights"] == one) & (True if hue is None else own[spec.hue] == hue)
                if y not in own or not own[at][y].notna().any():
                    continue
                called = [str(one)] * (len(weights) > 1) + [str(hue or ""), name]
                line = _Line(" ".join(filter(None, called)), own[at], y)
                if y in spec.reference or hue in spec.reference:
                    line.look = {"color": "black", "marker": "", "linestyle": ":", "linewidth": 1.5}
                else:
                    number = looks.setdefault((hue, y), len(looks))
                    line.look = {
                        "color": COLOURS[number % len(COLOURS)],
                        "marker": MARKERS[number // len(COLOURS) % len(MARKERS)],
                        "linestyle": "--" if one == "before" else "-",
                    }
                lines.append(line)
    return lines


def _draw(axis: Axes, line: _Line, spec: LinePlot) -> Any:
    points = line.points if spec.mark else line.points.sort_values(spec.x, key=_numbers)
    x, y = _numbers(points[spec.x]), _numbers(points[line.column])
    (drawn,) = axis.plot(x, y, markersize=3.5, label=line.name, **line.look)
    low, high = _ends(points, line.column, y)
    band = {"color": line.look["color"], "linewidth": 0}
    if spec.mark:
        axis.errorbar(x, y, [y - low, high - y], fmt="none", elinewidth=0.6, color=band["color"])
        for name, *at in zip(points[spec.mark], x, y, strict=True):
            axis.annotate(f" {name}", (at[0], at[1]), va="bottom", fontsize=7)
    elif (high > low).any():
        axis.fill_between(x, low, high, alpha=0.2, **band)
    if spec.null in points:
        null = _numbers(points[spec.null])
        axis.plot(x, null, color=band["color"], linestyle=":", linewidth=0.8)
    return drawn


def _ends(points: pd.DataFrame, column: str, y: pd.Series) -> tuple[pd.Series, pd.Series]:
    """The ends of the 95 % CIs; without one, the values themselves."""
    if f"{column}_low" in points:
        low, high = (_numbers(points[f"{column}_{end}"]).fillna(y) for end in ("low", "high"))
        return low, high
    if f"{column}_error" in points:
        half = Z * _numbers(points[f"{column}_error"]).fillna(0.0)
        return y - half, y + half
    return y, y


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


def principal_map(x_ND: Tensor, n_directions: int = 3) -> tuple[Tensor, Tensor]:
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
