"""The tables of a run: values by layer, counters of isotropy layers, configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from markupsafe import Markup

from isotrain.pages.parts import counter_readings, is_counter, part_readings
from isotrain.pages.readings import READINGS, SOURCES, TITLES, base_of, label
from isotrain.pages.rows import (
    Rows,
    Series,
    at,
    by_n,
    layers_of,
    measured,
    number,
    ranked,
    series,
    sites_of,
)
from isotrain.runs.keys import COUNTS, SIDES, VIEWS, CurveKey

SCATTER_SHARE = "scatter_ratio_share"
INDEX = re.compile(r"outlier_dims_(.*)index_(\d+)")


class Table(NamedTuple):
    """A table of texts; the first cell of a row names it."""

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    key: str = ""  # of the configuration or the log, beside the caption


def layer_tables(
    curves: Mapping[CurveKey, Series],
    metrics: Iterable[str],
    end: float,
    titles: Mapping[str, str] = TITLES,
    n_classes: int = 0,
) -> list[Table]:
    """For each metric, its values at every layer and site, first evaluation → step `end`.

    N stands in the head of each column, and for the share of scatter between `n_classes` classes
    what random labels give, (C − 1)/(N − 1).
    """
    found = []
    for metric in ranked(metrics):
        of_metric = {p: v for p, v in curves.items() if p.metric == metric}
        texts = {p: _ends(v, end) for p, v in of_metric.items()}
        more = {}
        for view in {p.view for p in texts}:
            sizes = _sizes(curves, [p for p in texts if p.view == view])
            more[view] = f"\nN = {' to '.join(f'{n:,}' for n in sizes)}" if sizes else ""
            if metric == SCATTER_SHARE and n_classes and sizes and sizes[0] > 1:
                by_chance = (number((n_classes - 1) / (n - 1)) for n in sizes[::-1])
                more[view] += f"\nrandom labels: {' to '.join(by_chance)}"
        found += _two(label(metric), texts, titles, metric, more)
    return found


def _sizes(curves: Mapping[CurveKey, Series], shown: Iterable[CurveKey]) -> list[int]:
    """The smallest and the largest N of some curves."""
    counts = by_n({p: v for q in shown if (v := curves.get(p := q._replace(metric=COUNTS[0])))})
    return sorted({min(counts), max(counts)}) if counts else []


def outlier_tables(
    curves: Mapping[CurveKey, Series], end: float, titles: Mapping[str, str] = TITLES
) -> list[Table]:
    """The dimensions that dominate, largest first, with their shares, as in `layer_tables`."""
    kinds = sorted({m[1] for p in curves if (m := INDEX.fullmatch(p.metric))})
    found = []
    for kind in kinds:
        texts: dict[CurveKey, str] = {}
        for curve, values in curves.items():
            if curve.metric == f"outlier_dims_{kind}index_1":
                steps = (values[0][0], end)
                ends = dict.fromkeys(_dimensions(curves, curve, kind, step) for step in steps)
                texts[curve] = "\n→ ".join(ends)
        of_kind = f", by {kind.strip('_')}" if kind else ""
        caption = (
            f"Outlier dimensions{of_kind}: number (from 0) and share of the mean cosine, "
            "largest first"
        )
        found += _two(caption, texts, titles, f"outlier_dims_{kind}index_k, …share_k")
    return found


def counter_table(rows: Rows, end: float) -> Table:
    """What isotropy layers and objectives counted, in training and at evaluations up to `end`."""
    keys = {key for row in rows for key in row if is_counter(key)}
    lines = []
    for key in sorted(keys):
        stage, part, name = key.split("/")
        values = series(rows, key)
        when = "evaluations" if stage == "val" else "training"
        last = at(values, end) if stage == "val" else values[-1][1]
        ends = (number(values[0][1]), number(last))
        lines.append((f"{part}: {name.replace('_', ' ')}", when, str(len(values)), *ends))
    return Table("Counters", ("", "logged in", "times", "first", "last"), lines)


def config_table(content: Mapping[str, Any], caption: str) -> Table:
    """Nested keys and their values, a line each.

    >>> config_table({"data": {"batch_size": 32}, "site": ["pooled"]}, "").rows
    [('data.batch_size', '32'), ('site', '[pooled]')]
    """
    return Table(caption, ("key", "value"), [(key, _text(value)) for key, value in flat(content)])


def flat(content: Mapping[str, Any], start: str = "") -> list[tuple[str, Any]]:
    """Nested keys joined by dots, with their values.

    >>> flat({"a": {"b": 1}, "c": {}})
    [('a.b', 1), ('c', {})]
    """
    found = []
    for key, value in content.items():
        if isinstance(value, Mapping) and value:
            found += flat(value, f"{start}{key}.")
        else:
            found.append((f"{start}{key}", value))
    return found


def reading_table(curves: Iterable[CurveKey]) -> Table:
    """How each metric that was measured is read, and below it what its parts say."""
    metrics = measured(curves)
    lines = []
    for name in ranked({base_of(metric) for metric in metrics} & set(READINGS)):
        reading = READINGS[name]
        lines.append((_keyed(reading.label, name), reading.span, reading.says, reading.source))
        own = [metric for metric in metrics if base_of(metric) == name]
        lines += [(_keyed("", part), "", says, "") for part, says in part_readings(own)]
    return Table("How to read the metrics", ("metric", "range", "what it says", "after"), lines)


def counter_readings_table(rows: Rows) -> Table:
    """What each counter that was logged says."""
    found = counter_readings({key for row in rows for key in row})
    lines = [(_keyed(name.replace("_", " "), name), says) for name, says in found]
    return Table("How to read the counters", ("counter", "what it says"), lines)


def sources(config: Mapping[str, Any]) -> list[str]:
    """The works that the isotropy layer and the objectives of a run follow.

    >>> sources({"isotropy": {"_target_": "isotrain.transforms.cluster_pca.ClusterPCA"}})
    ['cluster PCA: Rajaee & Pilehvar 2021']
    """
    modules = [
        str(value).split(".")[-2]
        for key, value in flat(config)
        if key.endswith("_target_")
        and key.startswith(("isotropy.", "objective."))
        and "." in str(value)
    ]
    return [SOURCES[module] for module in dict.fromkeys(modules) if module in SOURCES]


def _keyed(text: str, key: str) -> Markup:
    return Markup("{} <code>{}</code>").format(text, key)


def _two(
    caption: str,
    texts: Mapping[CurveKey, str],
    titles: Mapping[str, str],
    key: str,
    more: Mapping[str, str] = MappingProxyType({}),
) -> list[Table]:
    """A table of layers × views, and one of sites × before, after; without what is empty.

    `more`: below the heading of a view.
    """
    by_place = {(p.where, p.view): text for p, text in texts.items()}
    views = [view for view in VIEWS if layers_of(texts, view)]
    names = sorted({name for view in views for name in layers_of(texts, view)})
    sides = [side for side in SIDES if any(p.view == side for p in texts)]
    found = []
    for rows, columns in ((names, views), (sites_of(texts), sides)):
        if rows and columns:
            lines = [(r, *(by_place.get((r, c), "–") for c in columns)) for r in rows]
            heads = (titles.get(c, c) + more.get(c, "") for c in columns)
            found.append(Table(caption, ("", *heads), lines, key))
    return found


def _ends(values: Series, end: float) -> str:
    (start, first), last = values[0], at(values, end)
    return number(first) + (f" → {number(last)}" if start != end else "")


def _dimensions(curves: Mapping[CurveKey, Series], curve: CurveKey, kind: str, step: float) -> str:
    found = []
    for k in range(1, 10):
        index = curves.get(curve._replace(metric=f"outlier_dims_{kind}index_{k}"))
        share = curves.get(curve._replace(metric=f"outlier_dims_{kind}share_{k}"))
        if index:
            text = number(at(index, step))
            found.append(text + (f"\u00a0({at(share, step):.2f})" if share else ""))
    return ", ".join(found)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return (
        "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    )
