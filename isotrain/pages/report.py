"""HTML report of one run, from its folder only."""

import time
from collections.abc import Mapping
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from isotrain.config.compose import task_name
from isotrain.config.names import sources
from isotrain.pages.charts import Spec
from isotrain.pages.maps import map_chart, mapped
from isotrain.pages.page import Charts, render, write_figures
from isotrain.pages.repeat import repeat
from isotrain.pages.run_answers import Curves, Levels, answers, next_steps
from isotrain.pages.run_charts import (
    NUMBERED,
    clouds_of,
    heat_map,
    isotropy_of,
    layer_number,
    loss_chart,
    score_chart,
    site_chart,
    spectra_chart,
)
from isotrain.pages.run_tables import (
    config_table,
    counter_table,
    layer_tables,
    outlier_tables,
)
from isotrain.results.findings import faults, sentences, warnings
from isotrain.results.levels import reference
from isotrain.results.readings import (
    SIDE_TITLES,
    base_of,
    label,
    part_reading,
    readings,
    view_titles,
)
from isotrain.results.series import (
    End,
    Rows,
    by_n,
    end_of,
    headline,
    isotropy_series,
    measured,
    sites_of,
)
from isotrain.runs.files import read_records, read_result, replace_text
from isotrain.runs.folder import may_resume
from isotrain.runs.keys import VIEWS, on_test
from isotrain.runs.numbers import size_range
from isotrain.runs.record import check_writable
from isotrain.runs.snapshots import Arrays, read_snapshots, snapshot_steps, thin_steps

MOST_SNAPSHOTS = 12  # on a page, to limit its size


def write_report(folder: Path, figures: bool = False) -> Path:
    """Write `report.html` into a run folder, with `figures/` on request; its path.

    Unfinished and failed runs are shown too, as far as they were logged.

    Raises:
        FileNotFoundError: the folder is not a run's.
    """
    folder = Path(folder)
    result = read_result(folder)
    if "config" not in result:
        raise FileNotFoundError(
            f"{folder} is no run folder: result.json with the configuration of a run is not in it; "
            "give a folder such as runs/wic/none-0123456789"
        )
    check_writable(folder)
    rows, charts = read_records(folder / "metrics.jsonl"), Charts()
    curves, end, titles = isotropy_series(rows), end_of(result, rows), view_titles(result)
    dev = str(result.get("monitor", ""))
    references = {key: reference(folder, key) for key in (dev, on_test(dev))}
    levels = {key: level for key, level in references.items() if level}
    isotropy = isotropy_of(result, rows, curves, headline(result, measured(curves)))
    isotropy_charts = [charts.add("heatmap", heat_map(isotropy))] if isotropy.layers else []
    isotropy_charts += [charts.add("sites", site_chart(isotropy))] if isotropy.sites else []
    text = render(
        "run.html",
        charts,
        title=f"{_task(result)} · {result.get('method', folder.name)} · seed {result.get('seed')}",
        facts=_facts(folder, result),
        views=titles,
        faults=sentences(
            faults(result, rows, may_resume(folder, bool(result["config"].get("rerun"))))
        ),
        answers=answers(result, rows, levels),
        steps=next_steps(result, rows, levels),
        task_charts=[
            charts.add("score", _score_chart(result, rows, dev, levels)),
            charts.add("loss", loss_chart(rows)),
        ],
        isotropy_charts=isotropy_charts,
        metrics=isotropy.metrics,
        isotropy_views=list(isotropy.views.values()),
        values=_values(curves, end, titles),
        **_of_snapshots(charts, folder, result, curves, end),
        counters=counter_table(rows, end.step),
        limits=sentences(warnings(result, rows)),
        **_setting(result, curves),
        repeat=repeat(folder, result),
    )
    replace_text(folder / "report.html", text)
    if figures:
        write_figures(folder / "figures", charts.specs)
    return folder / "report.html"


def _score_chart(result: Mapping[str, Any], rows: Rows, dev: str, levels: Levels) -> Spec:
    step = result.get("selected_step") if result.get("select") in ("best", "holdout") else None
    name, level = levels.get(dev, ("", None))
    dev_level = None if level is None else (f"{name} on dev", level)  # it may differ on test
    return score_chart(rows, dev or "val/score", step, dev_level)


def _of_snapshots(
    charts: Charts, folder: Path, result: Mapping[str, Any], curves: Curves, end: End
) -> dict[str, Any]:
    """Spectra and maps of some of the snapshots, the one of the end among them."""
    steps, titles = snapshot_steps(folder), view_titles(result)
    snapshots: dict[int, Arrays] = read_snapshots(folder, MOST_SNAPSHOTS, also=[end.step])
    page_steps = {*thin_steps(steps, MOST_SNAPSHOTS), *({end.step} & set(steps))}
    # without a snapshot of it, the last one is used
    shown_end = end if end.step in snapshots else End(max(snapshots, default=0), False)
    patterns = [*(f"*/{view}" for view in VIEWS), *(f"{site}/*" for site in sites_of(curves))]
    cloud_sets = {p: {c for a in snapshots.values() for c in clouds_of(a, p)} for p in patterns}
    spectra = [
        charts.add(
            f"spectra_{p.replace('*/', '').replace('/*', '_site')}",
            spectra_chart(snapshots, p, shown_end, titles),
        )
        for p in patterns
        if cloud_sets[p]
    ]
    layers = {layer_number(c.split("/")[0]) for p in patterns if p[0] == "*" for c in cloud_sets[p]}
    clouds, classes = mapped(snapshots), result.get("classes") or ()
    maps = charts.add("maps", map_chart(snapshots, clouds, shown_end, classes)) if clouds else None
    return {
        "spectra": spectra,
        "layers": [str(layer) for layer in sorted(layers)],
        "maps": maps,
        "clouds": {cloud: _cloud_name(cloud, titles) for cloud in clouds},
        "n_steps": len(snapshots),
        "shown_step": sorted(snapshots).index(shown_end.step) if snapshots else 0,
        "n_snapshots": len(steps),
        "unread": [f"step_{step:08d}.npz" for step in sorted(page_steps - set(snapshots))],
    }


def _cloud_name(cloud: str, titles: Mapping[str, str]) -> str:
    where, view = cloud.split("/")
    return f"{where}, {({**titles, **SIDE_TITLES})[view]}"


def _task(result: Mapping[str, Any]) -> str:
    return task_name(result["config"]) if result["config"].get("task") else "run"


def _facts(folder: Path, result: Mapping[str, Any]) -> list[str]:
    """Short facts below the title; the date is of the run's end, or of its record."""
    if finished_at := result.get("finished_at"):
        date = datetime.fromisoformat(finished_at).strftime("%Y-%m-%d %H:%M %Z").strip()
    else:
        mtime = time.localtime((folder / "result.json").stat().st_mtime)
        date = time.strftime("%Y-%m-%d %H:%M", mtime)
    sizes = ", ".join(f"{n:,} {split}" for split, n in (result.get("n_rows") or {}).items() if n)
    seconds = (result.get("timings_s") or {}).get("total")
    facts = [
        str(result.get("status", "")),
        date,
        str(result.get("encoder", "")),
        f"examples: {sizes}" if sizes else "",
        f"{seconds:,.0f} s" if seconds else "",
        folder.name,
    ]
    return [fact for fact in facts if fact]


def _values(curves: Curves, end: End, titles: dict[str, str]) -> list[dict[str, Any]]:
    """First and last value of every metric at every layer and site, with how to read it."""
    names = [metric for metric in measured(curves) if not metric.endswith(NUMBERED)]
    sections = []
    for base, metrics in groupby(names, key=base_of):
        group = list(metrics)
        tables = layer_tables(curves, group, end.step, titles)
        tables += outlier_tables(curves, end.step, titles) if base == "outlier_dims" else []
        parts = [f"{label(metric)}: {note}." for metric in group if (note := part_reading(metric))]
        reading = readings().get(base)
        text = reading.text if reading else ""
        sections.append({"name": base, "tables": tables, "parts": parts, "reading": text})
    return sections


def _setting(result: Mapping[str, Any], curves: Curves) -> dict[str, Any]:
    """Configuration, environment and sources of the run."""
    extras = {name: result.get(name) for name in ("phases", "data", "speed")}
    environment = {**(result.get("environment") or {}), **{k: v for k, v in extras.items() if v}}
    return {
        "parameters": {"total": 0, **(result.get("n_parameters") or {})},
        "sizes": size_range(set(by_n(curves))),
        "width": result.get("width"),
        "works": sources(result["config"]),
        "settings": [
            config_table(result["config"], "Configuration"),
            config_table(environment, "Environment"),
        ],
    }
