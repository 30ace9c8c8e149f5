"""Keys of isotropy values in logged records, and these values as a table.

`isotropy/<metric>/<where>/<view>` is a value on dev, `train_isotropy/…` one on the examples of a
training step.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

DEV, TRAINING = "isotropy", "train_isotropy"  # of which examples
VIEWS = ("cls", "tokens", "mean", "last")  # of a layer: see `CloudSampler`
MEASURED = VIEWS[:3]  # unless others are asked for
SIDES = ("before", "after")  # of a site: input and output of its isotropy layer
COUNTS = ("n_rows", "n_rows_not_finite")  # logged like metrics
EXTRAS = ("labels", "groups", "reference", "positives")  # further arguments of a metric


class CurveKey(NamedTuple):
    """The parts of a key: metric and cloud."""

    metric: str
    where: str  # layer_03, or a site
    view: str  # of a layer: one of VIEWS; of a site: before, after
    rows: str = DEV

    @property
    def text(self) -> str:
        """The key in a record."""
        return f"{self.rows}/{self.metric}/{self.where}/{self.view}"


def on_test(key: str) -> str:
    """The key of a dev score on test.

    >>> on_test("val/accuracy")
    'test/accuracy'
    """
    return key.replace("val/", "test/")


def layer_name(number: int) -> str:
    """The name of a layer in a key; 0 is the embedding output."""
    return f"layer_{number:02d}"


def parse_key(key: str) -> CurveKey | None:
    """The parts of an isotropy key; None for any other key."""
    rows, _, rest = key.partition("/")
    parts = rest.split("/")
    if rows not in (DEV, TRAINING) or len(parts) != 3:
        return None
    return CurveKey(parts[0], parts[1], parts[2], rows)


def last_layer(curves: Iterable[CurveKey]) -> str:
    """The highest layer measured; empty if none is."""
    return max((curve.where for curve in curves if curve.view in VIEWS), default="")


def shown_view(views: Collection[str], first: str = "tokens") -> str:
    """The layer view to show: `first` if measured, else the first such of `VIEWS`; or empty."""
    return next((view for view in (first, *VIEWS) if view in views), "")


def metric_of(value: str, metrics: Iterable[str]) -> str | None:
    """The metric that computes a value, `<metric>` or `<metric>_<part>`; None if none does.

    If several names match, the longest one wins.
    """
    matches = [name for name in metrics if value == name or value.startswith(f"{name}_")]
    return max(matches, key=len, default=None)


def headline_of(names: Mapping[str, Sequence[str]], requested: Sequence[str] | None) -> list[str]:
    """The values that bars, tables and loggers show: those asked for, or the first two metrics.

    A metric of several values is shown by its first one.

    Raises:
        ValueError: one that no metric gives.

    >>> names = {"isoscore": ["isoscore"], "lid": ["lid_value", "lid_standard_error"]}
    >>> headline_of(names, None), headline_of(names, ["lid_standard_error"])
    (['isoscore', 'lid_value'], ['lid_standard_error'])
    """
    legal = {value for values in names.values() for value in values}
    headline = []
    for name in list(names)[:2] if requested is None else requested:
        if name not in legal and name not in names:
            raise ValueError(f"monitor.headline={name} is none of {', '.join(sorted(legal))}")
        headline.append(name if name in legal else names[name][0])
    return headline


def few(row: Mapping[str, float], headline: Collection[str]) -> dict[str, float]:
    """The scalars of a record for loggers that draw a chart for each.

    The numbers of evaluated examples would draw flat lines and are left out. Of isotropy values
    those of the headline metrics: at the tokens of every layer (without them, in the first view
    that there is), in every view of the last layer, and around each site.

    >>> row = {"val/loss": 1.0, "isotropy/lid/layer_00/cls": 2.0, "isotropy/lid/layer_01/cls": 3.0}
    >>> few(row | {"isotropy/lid/layer_00/tokens": 4.0, "isotropy/rank/layer_01/cls": 5.0}, ["lid"])
    {'val/loss': 1.0, 'isotropy/lid/layer_01/cls': 3.0, 'isotropy/lid/layer_00/tokens': 4.0}
    """
    curves = {key: parse_key(key) for key in row}
    last = last_layer(filter(None, curves.values()))
    view = shown_view({curve.view for curve in curves.values() if curve})

    def is_shown(key: str, curve: CurveKey | None) -> bool:
        if curve is None:
            return not key.endswith("/n_rows")
        is_selected = curve.view in SIDES or curve.view == view or curve.where == last
        return is_selected and curve.metric in headline

    return {key: value for key, value in row.items() if is_shown(key, curves[key])}


def is_aside(metric: str) -> bool:
    """Whether a value accompanies others: a count of embeddings, or a null value."""
    return metric in COUNTS or "_null_" in metric


class Measured(NamedTuple):
    """One isotropy value, with N and its null range."""

    step: int
    rows: str  # dev | train
    layer: str  # layer_03, or a site
    view: str
    metric: str
    value: float
    n_rows: int
    null_low: float  # what chance gives, where that is known; else NaN
    null_high: float


def table(records: Iterable[Mapping[str, float]]) -> list[Measured]:
    """Every isotropy value of some records, in the order of steps.

    Where a step was measured twice (after a resume) the last value counts. Counts of embeddings and
    null values are columns, not lines.

    >>> row = {"step": 5, "isotropy/lid/pooled/after": 2.0, "isotropy/n_rows/pooled/after": 9}
    >>> table([row])[0][:7]
    (5, 'dev', 'pooled', 'after', 'lid', 2.0, 9)
    """
    values: dict[tuple[int, CurveKey], float] = {}
    for record in records:
        for key, value in record.items():
            if curve := parse_key(key):
                values[int(record["step"]), curve] = value

    def beside(step: int, curve: CurveKey, metric: str, default: float = math.nan) -> float:
        return values.get((step, curve._replace(metric=metric)), default)

    rows = [
        Measured(
            step,
            "dev" if curve.rows == DEV else "train",
            curve.where,
            curve.view,
            curve.metric,
            value,
            int(beside(step, curve, "n_rows", 0)),
            beside(step, curve, f"{curve.metric}_null_low"),
            beside(step, curve, f"{curve.metric}_null_high"),
        )
        for (step, curve), value in values.items()
        if not is_aside(curve.metric)
    ]
    return sorted(rows, key=lambda row: row[:5])
