"""The tables of a run: values by layer, counters of isotropy layers, configuration."""

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from isotrain.config.compose import dotted
from isotrain.results.readings import SIDE_TITLES, TITLES, label
from isotrain.results.series import Rows, Series, at, by_n, layers_of, series, sites_of
from isotrain.runs.keys import SIDES, VIEWS, CurveKey
from isotrain.runs.numbers import number, size_range

COUNTERS = {  # meaning of each counter of an isotropy layer or objective
    "energy_kept": "scatter of the layer output about its mean over that of the input; 1 = all",
    "label_scatter_removed": (
        "share of the between-class scatter that the layer takes, against that of all embeddings; "
        "1 = class means are equal, 0 = as far apart as before, below 0 = farther"
    ),
    "queue_gap": "distance of the queue's mean from that of dev, in rms distances; 0 = alike",
    "queue_spread": "rms distance of the queue from its mean over that of dev; 1 = alike",
    "rows_passed_through": "embeddings left as they are, without scatter to measure",
    "rows_borrowed": "embeddings of clusters too small for directions of their own",
    "clusters_empty": "clusters without an embedding",
    "directions_removed": "directions removed, shrunk or amplified, of all clusters together",
    "dims_cut": "dimensions whose tails were cut",
    "alpha": "exponent of the whitening, from 0 (the mean alone) to 1 (whitened)",
    "gradient_cosine": (
        "cosine of the gradients of isotropy and of the losses; below 0 they conflict"
    ),
    "gradient_added": "norm of the isotropy gradient over that of the losses; 0 = not defined here",
    "isotropy_loss": "1 − IsoScore + mean cosine² of batch and queue; 0 = isotropic",
    "rows_read": "embeddings of batch and queue that isotropy was measured on",
    "anchors_skipped": "examples of a batch that had nothing to be compared with",
    "undefined": "read points of a batch, or whole batches, where the objective counts as 0",
}
INDEX = re.compile(r"outlier_dims_(.*)index_(\d+)")


class Table(NamedTuple):
    """A table of texts; the first cell of each row is its name."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    key: str = ""  # of the configuration or the log, next to the caption


def layer_tables(
    curves: Mapping[CurveKey, Series],
    metrics: Iterable[str],
    end: float,
    titles: dict[str, str] = TITLES,
) -> list[Table]:
    """For each metric, its values at every layer and site, first evaluation → step `end`.

    N is in the header of each column.
    """
    sizes: dict[str, set[int]] = {}
    for n, clouds in by_n(curves).items():
        for curve in clouds:
            sizes.setdefault(curve.view, set()).add(n)
    heads = {view: f"\n{size_range(counts)}" for view, counts in sizes.items()}
    tables = []
    for metric in metrics:
        texts = {c: _ends(v, end) for c, v in curves.items() if c.metric == metric}
        tables += _two(label(metric), texts, titles, metric, heads)
    return tables


def outlier_tables(
    curves: Mapping[CurveKey, Series], end: float, titles: dict[str, str] = TITLES
) -> list[Table]:
    """Dominant dimensions, largest first, with their shares, as in `layer_tables`."""
    kinds = sorted({m[1] for c in curves if (m := INDEX.fullmatch(c.metric))})
    tables = []
    for kind in kinds:
        texts: dict[CurveKey, str] = {}
        for curve, values in curves.items():
            if curve.metric == f"outlier_dims_{kind}index_1":
                steps = (values[0][0], end)
                end_texts = dict.fromkeys(_dimensions(curves, curve, kind, step) for step in steps)
                texts[curve] = "\n→ ".join(end_texts)
        kind_text = f", by {kind.strip('_')}" if kind else ""
        caption = (
            f"Outlier dimensions{kind_text}: number (from 0) and share of the mean cosine, "
            "largest first"
        )
        tables += _two(caption, texts, titles, f"outlier_dims_{kind}index_k, …share_k")
    return tables


def counter_table(rows: Rows, end: float) -> Table:
    """Counters of isotropy layers and objectives, in training and at evaluations up to `end`."""
    lines = []
    for key in sorted({key for row in rows for key in row if key.count("/") == 2}):
        stage, part, name = key.split("/")
        if stage not in ("val", "train"):
            continue
        values = series(rows, key)
        last = at(values, end) if stage == "val" else values[-1][1]
        when = "evaluations" if stage == "val" else "training"
        cells = (number(values[0][1]), number(last))
        lines.append((f"{part}: {name}", when, *cells, COUNTERS.get(name, "")))
    return Table("Counters", ("", "logged in", "first", "last", "what it says"), lines)


def config_table(content: Mapping[str, Any], caption: str) -> Table:
    """Nested keys and their values, one per line."""
    return Table(
        caption, ("key", "value"), [(key, _text(value)) for key, value in dotted(content).items()]
    )


def _two(
    caption: str,
    texts: Mapping[CurveKey, str],
    titles: dict[str, str],
    key: str,
    more: Mapping[str, str] = MappingProxyType({}),
) -> list[Table]:
    """A table of layers × views, and one of sites × before, after; empty ones are omitted."""
    by_cloud = {(curve.where, curve.view): text for curve, text in texts.items()}
    views = [view for view in VIEWS if layers_of(texts, view)]
    layers = sorted({name for view in views for name in layers_of(texts, view)})
    sides = [side for side in SIDES if any(curve.view == side for curve in texts)]
    tables = []
    for rows, columns in ((layers, views), (sites_of(texts), sides)):
        if rows and columns:
            lines = [(r, *(by_cloud.get((r, c), "–") for c in columns)) for r in rows]
            heads = ((titles | SIDE_TITLES)[c] + more.get(c, "") for c in columns)
            tables.append(Table(caption, ("", *heads), lines, key))
    return tables


def _ends(values: Series, end: float) -> str:
    (start, first), last = values[0], at(values, end)
    return number(first) + (f" → {number(last)}" if start != end else "")


def _dimensions(curves: Mapping[CurveKey, Series], curve: CurveKey, kind: str, step: float) -> str:
    texts = []
    for k in range(1, 10):
        index = curves.get(curve._replace(metric=f"outlier_dims_{kind}index_{k}"))
        share = curves.get(curve._replace(metric=f"outlier_dims_{kind}share_{k}"))
        if index:
            text = number(at(index, step))
            texts.append(text + (f"\u00a0({at(share, step):.2f})" if share else ""))
    return ", ".join(texts)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )
