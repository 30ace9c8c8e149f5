"""The keys of isotropy values in a logged record: written and parsed here alone.

`isotropy/<metric>/<where>/<view>` is a value on dev, `train_isotropy/…` one on the rows of a
training step. Imports nothing: pages and studies read keys too.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

DEV, TRAINING = "isotropy", "train_isotropy"  # which rows were measured
VIEWS = ("cls", "tokens", "mean")  # of a layer: first token, every non-pad token, their mean
SIDES = ("before", "after")  # of a site: in front of its isotropy layer and behind it
COUNTS = ("n_rows", "n_rows_not_finite")  # logged like metrics
EXTRAS = ("labels", "groups", "reference", "positives")  # what a metric may take beside its rows


def grouped_by(annotation: ast.expr | None) -> str:
    """What the groups of a metric are, by the annotation of its argument: words or sentences.

    >>> grouped_by(ast.parse("Annotated[Tensor, 'sentences']", mode="eval").body)
    'sentences'
    """
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return grouped_by(ast.parse(annotation.value, mode="eval").body)  # it stands in quotes
    parts = ast.walk(annotation) if annotation is not None else ()
    said = [part.value for part in parts if isinstance(part, ast.Constant)]
    return "sentences" if "sentences" in said else "words"


class CurveKey(NamedTuple):
    """The parts of a key: which metric of which cloud."""

    metric: str
    where: str  # layer_03, or a site
    view: str  # of a layer: cls, tokens, mean; of a site: before, after
    rows: str = DEV

    @property
    def text(self) -> str:
        """The key in a record.

        >>> CurveKey("isoscore", "layer_03", "cls").text
        'isotropy/isoscore/layer_03/cls'
        """
        return f"{self.rows}/{self.metric}/{self.where}/{self.view}"


class Measured(NamedTuple):
    """One line of the table of everything that was measured."""

    step: int
    rows: str  # dev | train
    layer: str  # layer_03, or a site
    view: str
    metric: str
    value: float
    n_rows: int
    null_low: float  # what chance gives, where that is known; else NaN
    null_high: float


def layer_name(number: int) -> str:
    """The name of a layer in a key; 0 is the embedding output.

    >>> layer_name(3)
    'layer_03'
    """
    return f"layer_{number:02d}"


def parse_key(key: str) -> CurveKey | None:
    """The parts of an isotropy key; None for any other key.

    >>> parse_key("isotropy/isoscore/pooled/after")
    CurveKey(metric='isoscore', where='pooled', view='after', rows='isotropy')
    >>> parse_key("val/accuracy")
    """
    rows, _, rest = key.partition("/")
    parts = rest.split("/")
    if rows not in (DEV, TRAINING) or len(parts) != 3:
        return None
    return CurveKey(parts[0], parts[1], parts[2], rows)


def metric_of(value: str, metrics: Iterable[str]) -> str | None:
    """Which of some metrics gives a value, `<metric>` or `<metric>_<part>`; None where none does.

    Of several whose names fit it is the longest.

    >>> metric_of("lid_value", ["lid"]), metric_of("partition_null_low", ["partition"])
    ('lid', 'partition')
    >>> metric_of("partition_null_low", ["partition", "partition_null"])
    'partition_null'
    """
    fitting = [name for name in metrics if value == name or value.startswith(f"{name}_")]
    return max(fitting, key=len, default=None)


def headline_of(names: Mapping[str, Sequence[str]], asked: Sequence[str] | None) -> list[str]:
    """The values that bars, tables and loggers show: those asked for, or the first two metrics.

    A metric of several values stands for its first one.

    Raises:
        ValueError: one that no metric gives.

    >>> names = {"isoscore": ["isoscore"], "lid": ["lid_value", "lid_standard_error"]}
    >>> headline_of(names, None), headline_of(names, ["lid_standard_error"])
    (['isoscore', 'lid_value'], ['lid_standard_error'])
    """
    given = {value for values in names.values() for value in values}
    found = []
    for name in list(names)[:2] if asked is None else asked:
        if name not in given and name not in names:
            raise ValueError(f"monitor.headline={name} is none of {', '.join(sorted(given))}")
        found.append(name if name in given else names[name][0])
    return found


def few(row: Mapping[str, float], headline: Collection[str]) -> dict[str, float]:
    """The scalars of a row for loggers that draw a chart for each.

    Of isotropy values those of the headline metrics: at the tokens of every layer (without them, in
    the first view that there is), in every view of the last layer, and around each site.

    >>> row = {"val/loss": 1.0, "isotropy/lid/layer_00/cls": 2.0, "isotropy/lid/layer_01/cls": 3.0}
    >>> few(row | {"isotropy/lid/layer_00/tokens": 4.0, "isotropy/rank/layer_01/cls": 5.0}, ["lid"])
    {'val/loss': 1.0, 'isotropy/lid/layer_01/cls': 3.0, 'isotropy/lid/layer_00/tokens': 4.0}
    """
    curves = {key: parse_key(key) for key in row}
    of_layers = [p for p in curves.values() if p and p.view in VIEWS]
    last = max((p.where for p in of_layers), default="")
    views = [view for view in ("tokens", *VIEWS) if any(p.view == view for p in of_layers)]

    def is_shown(curve: CurveKey) -> bool:
        at = curve.view in SIDES or curve.view in views[:1] or curve.where == last
        return at and curve.metric in headline

    return {key: value for key, value in row.items() if not (p := curves[key]) or is_shown(p)}


def table(rows: Iterable[Mapping[str, float]]) -> list[Measured]:
    """Everything that was measured, a line for each value, in the order of steps.

    Where a step was measured twice (after a resume) the last value counts. Counts of rows and
    nulls are columns, no lines of their own.

    >>> row = {"step": 5, "isotropy/lid/pooled/after": 2.0, "isotropy/n_rows/pooled/after": 9}
    >>> table([row])[0][:7]
    (5, 'dev', 'pooled', 'after', 'lid', 2.0, 9)
    """
    merged: dict[tuple[int, CurveKey], float] = {}
    for row in rows:
        for key, value in row.items():
            if curve := parse_key(key):
                merged[int(row["step"]), curve] = value
    lines = []
    for (step, curve), value in merged.items():
        if is_aside(curve.metric):
            continue

        def beside(metric: str, step: int = step, curve: CurveKey = curve) -> float:
            return merged.get((step, curve._replace(metric=metric)), math.nan)

        n_rows = beside("n_rows")
        lines.append(
            Measured(
                step,
                "dev" if curve.rows == DEV else "train",
                curve.where,
                curve.view,
                curve.metric,
                value,
                0 if math.isnan(n_rows) else int(n_rows),
                beside(f"{curve.metric}_null_low"),
                beside(f"{curve.metric}_null_high"),
            )
        )
    return sorted(lines, key=lambda line: line[:5])


def is_aside(metric: str) -> bool:
    """Whether a value belongs to others: a count of rows, or what chance gives.

    >>> is_aside("n_rows"), is_aside("partition_null_low"), is_aside("partition")
    (True, True, False)
    """
    return metric in COUNTS or "_null_" in metric
