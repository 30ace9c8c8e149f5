"""Line charts of records as data, and scatter charts of embeddings. M points of a map."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from isotrain.analysis.show import Frames, Rows, Z, groups_of
from isotrain.pages.charts import COLOURS, Spec, chart, has_value, mark, quantity, scale, tooltip

LAYERS = "layer (0 = embedding output)"
SHAPES = ("circle", "square", "triangle-up")  # one for each round through the colours
SOLID, DASHED, DOTTED = [1, 0], [5, 3], [2, 2]


class Picture(NamedTuple):
    """A group of charts: their name, a title, a description."""

    name: str
    title: str
    specs: Sequence[Spec]
    description: str


@dataclass(frozen=True)
class LinePlot:
    """A picture as data: a line for each value of `hue` and each column of `y`.

    A band is the 95 % CI: ± 1.96 · `<y>_error`, or from `<y>_low` to `<y>_high`. Lines of the
    weights before a run are dashed. Texts have format fields, as in the notes of a table.

    Args:
        name: of the picture.
        title: above it.
        description: alternative text.
        of: a kind of record, or a function of all of them.
        y: columns, with the names of their lines.
        x: a column of numbers.
        hue: a column: a colour for each of its values.
        panel: a column: a chart for each of its values.
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
    """One picture, or one for each value of `each`; a picture without values is skipped."""
    for fields, frame in groups_of(spec.of, spec.each, frames, analysis):
        if frame.empty or not any(y in frame and frame[y].notna().any() for y in spec.y):
            continue
        if "weights" not in frame:
            frame = frame.assign(weights="as given")
        texts = (spec.name, spec.title, spec.description)
        name, title, description = (text.format_map(fields) for text in texts)
        lines = _lines(spec, frame)
        panels = [None] if spec.panel is None else list(dict.fromkeys(frame[spec.panel]))
        charts = [
            _chart(spec, lines, panel, description, {**fields, str(spec.panel): panel})
            for panel in panels
        ]
        yield Picture(name.replace(" ", "_"), title[0].upper() + title[1:], charts, description)


def _lines(spec: LinePlot, frame: pd.DataFrame) -> pd.DataFrame:
    """One row per point: panel, line, x, y, bounds of its band, null, and style."""
    parts, all_weights = [], list(dict.fromkeys(frame["weights"]))
    hues = [None] if spec.hue is None else list(dict.fromkeys(frame[spec.hue]))
    number_of: dict[tuple[Any, str], int] = {}
    for hue in hues:
        for column, name in spec.y.items():
            of_hue = frame if hue is None else frame[frame[spec.hue] == hue]
            if column not in frame or not of_hue[column].notna().any():
                continue
            is_reference = bool({column, hue} & {*spec.reference})
            number = -1 if is_reference else number_of.setdefault((hue, column), len(number_of))
            for weights in all_weights:
                points = of_hue[of_hue["weights"] == weights]
                label_parts = [str(weights)] * (len(all_weights) > 1) + [str(hue or ""), name]
                y = _numbers(points[column])
                low = high = pd.Series(np.nan, points.index)
                if f"{column}_low" in points:
                    low, high = (_numbers(points[f"{column}_{bound}"]) for bound in ("low", "high"))
                elif f"{column}_error" in points:
                    half = Z * _numbers(points[f"{column}_error"])
                    low, high = y - half, y + half
                null = points[spec.null] if spec.null else np.nan
                columns = {
                    "panel": None if spec.panel is None else points[spec.panel],
                    "line": " ".join(filter(None, label_parts)) or "value",
                    "x": _numbers(points[spec.x]),
                    "y": y,
                    "low": low,
                    "high": high,
                    "null": null,
                    "colour": "black" if is_reference else COLOURS[number % len(COLOURS)],
                    "shape": SHAPES[number // len(COLOURS) % len(SHAPES)],
                    "dash": 2 if is_reference else int(weights == "before"),
                }
                parts.append(pd.DataFrame(columns, index=points.index))
    return pd.concat(parts).sort_values("x", kind="stable")


def _numbers(column: pd.Series) -> pd.Series:
    return pd.to_numeric(column, errors="coerce").astype(float)


def _chart(
    spec: LinePlot, lines: pd.DataFrame, panel: Any, description: str, fields: Mapping[str, Any]
) -> Spec:
    styles = lines.drop_duplicates("line")
    names = [*styles["line"]]
    points = lines if panel is None else lines[lines["panel"] == panel]
    line_field: Spec = {"field": "line", "type": "nominal"}
    legend = {} if len(names) > 1 else {"legend": None}
    colour = {**line_field, "scale": scale(names, [*styles["colour"]]), **legend}
    dashes = [(SOLID, DASHED, DOTTED)[k] for k in styles["dash"]]
    log = {"type": "log", "base": 2} if spec.log else {"zero": False}
    is_integer = spec.log or spec.x == "layer"
    ticks = {"values": sorted({*points["x"]}), "format": ",d"} if is_integer else {}
    x = quantity("x", spec.xlabel.format_map(fields), scale=log, axis=ticks)
    title = spec.ylabel.format_map(fields) or None
    line: Spec = {"x": x, "y": quantity("y", title), "color": colour}
    line["tooltip"] = tooltip("line", "x", "y", "low", "high")
    dash = {**line_field, "scale": scale(names, dashes), **legend}
    shape = {**line_field, "scale": scale(names, [*styles["shape"]]), **legend}
    band = {**line, "y": quantity("low", title), "y2": {"field": "high"}}
    layer = [
        mark("area", band, has_value("low"), opacity=0.18),
        mark("line", {**line, "strokeDash": dash}),
        mark("point", {**line, "shape": shape}, filled=True, size=22),
    ]
    if spec.null:
        null = {"x": x, "y": quantity("null", title), "color": colour}
        layer.append(mark("line", null, strokeWidth=0.8, strokeDash=DOTTED))
    values = points[["line", "x", "y", "low", "high", "null"]].to_dict("records")
    rows = [{str(key): value for key, value in row.items()} for row in values]
    return chart(rows, "" if panel is None else str(panel), description, layer)


def scatter(
    point_MR: np.ndarray, title: str, description: str, field_values: Sequence[Any], colour: Spec
) -> Spec:
    """Points `[M, 2]` without axes, coloured by `field_values`: those of the field of `colour`."""
    field = colour["field"]
    values = [
        {"x": x, "y": y, field: value}
        for (x, y), value in zip(np.asarray(point_MR, float).tolist(), field_values, strict=True)
    ]
    axis = {"labels": False, "ticks": False, "grid": False, "domain": False}
    point: Spec = {"x": quantity("x", axis=axis), "y": quantity("y", axis=axis), "color": colour}
    point["tooltip"] = tooltip(field)
    layer = [mark("point", point, filled=True, size=9, opacity=0.8)]
    canvas = {"embedOptions": {"renderer": "canvas"}}
    return chart(values, title, description, layer, usermeta=canvas)
