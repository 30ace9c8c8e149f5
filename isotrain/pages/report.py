"""HTML report of one run, from its folder only."""

import time
from collections.abc import Mapping
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any

from markupsafe import Markup

from isotrain.config.compose import task_name
from isotrain.config.names import sources
from isotrain.pages.cloud_figures import cloud_sections
from isotrain.pages.figures import curves as overview
from isotrain.pages.figures import heatmap, loss_curve, score_curve
from isotrain.pages.isotropy_data import NUMBERED, isotropy_data
from isotrain.pages.limitations import faults, warnings
from isotrain.pages.maps import Snapshots, map_data
from isotrain.pages.page import Figures, Section, page, piece
from isotrain.pages.repeat import repeat
from isotrain.pages.run_tables import (
    config_table,
    counter_table,
    layer_tables,
    outlier_tables,
)
from isotrain.pages.verdict import Levels, answers, last_layer, next_steps
from isotrain.results.levels import reference
from isotrain.results.numbers import size_range
from isotrain.results.readings import base_of, label, part_reading, readings, view_titles
from isotrain.results.series import (
    End,
    Rows,
    Series,
    by_n,
    end_of,
    headline,
    isotropy_series,
    measured,
    sites_of,
)
from isotrain.runs.files import read_records, read_result, replace_text
from isotrain.runs.folder import may_resume
from isotrain.runs.keys import CurveKey, on_test
from isotrain.runs.record import check_writable
from isotrain.runs.snapshots import read_snapshots, snapshot_steps, spread

MOST_SNAPSHOTS = 12  # on a page, to limit its size


def write_report(folder: Path) -> Path:
    """Write `report.html` of a run folder, with `figures/*.svg` and `*.png`; its path.

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
    rows = read_records(folder / "metrics.jsonl")
    drawn, curves = Figures(folder / "figures"), isotropy_series(rows)
    dev = str(result.get("monitor", ""))
    references = {key: reference(folder, key) for key in (dev, on_test(dev))}
    levels = {key: level for key, level in references.items() if level}
    shown = headline(result, measured(curves))
    end, titles = end_of(result, rows), view_titles(result)
    snapshots, n_snapshots, unread = _snapshots(folder, end.step)
    # without a snapshot of it, the last one is used
    pictured = end if end.step in snapshots else End(max(snapshots, default=0), False)
    classes = result.get("classes") or ()
    points = map_data(snapshots, pictured, classes)
    data = {"maps": points, "isotropy": isotropy_data(result, rows, curves, shown)}
    lead = piece(
        "first_screen",
        answers=answers(result, rows, levels),
        grave=faults(result, rows, may_resume(folder, bool(result["config"].get("rerun")))),
        steps=next_steps(result, rows, levels),
        task=_task_figures(drawn, result, rows, levels),
        has_isotropy=bool(curves),
    )
    if shown:
        name = str(result.get("method", folder.name))
        drawn.save(overview(rows, name, str(result.get("monitor")), shown), "overview")
    if shown and (top := last_layer(curves, shown[0])):
        drawn.save(heatmap(rows, top.metric, top.view), "heatmap")
    sections = [_values(curves, end, titles)] if shown else []
    sections += cloud_sections(
        drawn, snapshots, n_snapshots, pictured, points, sites_of(curves), titles, classes
    )
    counters = counter_table(rows, end.step)
    if counters.rows:
        note = f"The last evaluation here: {end.name}."
        body = piece("tables", found=[counters], note=note)
        sections.append(Section("Counters of layers and objectives", body, "counters"))
    if limits := [*warnings(result, rows), *unread]:
        title = f"Limitations ({len(limits)})"
        sections.append(Section(title, piece("items", texts=limits), "limitations"))
    sections += [
        Section("Configuration and environment", _setting(result, curves), "configuration"),
        Section("Repeat this run", repeat(folder, result), "repeat"),
    ]
    text = page(
        f"{_task(result)} · {result.get('method', folder.name)} · seed {result.get('seed')}",
        _facts(folder, result),
        lead,
        [section._replace(is_folded=True) for section in sections],
        {name: found for name, found in data.items() if found},
    )
    replace_text(folder / "report.html", text)
    return folder / "report.html"


def _snapshots(folder: Path, step: int) -> tuple[Snapshots, int, list[str]]:
    """Some of the snapshots, including that of a step; their total number; unreadable files."""
    steps = snapshot_steps(folder)
    found = read_snapshots(folder, MOST_SNAPSHOTS, also=[step])
    wanted = {*spread(steps, MOST_SNAPSHOTS), *({step} & set(steps))}
    lost = ", ".join(f"step_{s:08d}.npz" for s in sorted(wanted - set(found)))
    return found, len(steps), [f"Of snapshots/ could not be read: {lost}."] if lost else []


def _task(result: Mapping[str, Any]) -> str:
    return task_name(result["config"]) if result["config"].get("task") else "run"


def _facts(folder: Path, result: Mapping[str, Any]) -> list[str]:
    """Short facts below the title; the date is of the run's end, or of its record."""
    if ended := result.get("finished_at"):
        date = datetime.fromisoformat(ended).strftime("%Y-%m-%d %H:%M %Z").strip()
    else:
        written = time.localtime((folder / "result.json").stat().st_mtime)
        date = time.strftime("%Y-%m-%d %H:%M", written)
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


def _task_figures(
    drawn: Figures, result: Mapping[str, Any], rows: Rows, levels: Levels
) -> list[Markup]:
    monitor = result.get("monitor", "val/score")
    chosen = result.get("selected_step") if result.get("select") in ("best", "holdout") else None
    name, level = levels.get(monitor, ("", None))
    of_dev = None if level is None else (f"{name} on dev", level)  # it may differ on test
    score = score_curve(rows, monitor, chosen, of_dev)
    curve = "over the optimizer steps"
    return [
        drawn.add(score, "score", f"{monitor} {curve}"),
        drawn.add(loss_curve(rows), "loss", f"training and dev loss {curve}"),
    ]


def _values(curves: Mapping[CurveKey, Series], end: End, titles: dict[str, str]) -> Section:
    """First and last value of every metric at every layer and site, with how to read it."""
    body = piece("note", text=f"First evaluation → {end.name}. Layer 0 is the embedding output.")
    names = [metric for metric in measured(curves) if not metric.endswith(NUMBERED)]
    for base, metrics in groupby(names, key=base_of):
        own = list(metrics)
        found = layer_tables(curves, own, end.step, titles)
        found += outlier_tables(curves, end.step, titles) if base == "outlier_dims" else []
        reading = readings().get(base)
        tables = piece("tables", found=found, note=reading.text if reading else "")
        parts = [f"{label(metric)}: {says}." for metric in own if (says := part_reading(metric))]
        tables += piece("items", texts=parts) if parts else Markup()
        body += piece("folded", title=label(base), body=tables, key=base)
    return Section("All values, by layer", body, "values")


def _setting(result: Mapping[str, Any], curves: Mapping[CurveKey, Series]) -> Markup:
    texts = []
    parameters, sizes = result.get("n_parameters") or {}, set(by_n(curves))
    if parameters.get("total"):
        share = parameters["trainable"] / parameters["total"]
        texts.append(f"{share:.1%} of {parameters['total']:,} parameters trained.")
    if sizes:
        width = f", D = {result['width']:,} (hidden size)" if result.get("width") else ""
        texts.append(
            f"Isotropy of {size_range(sizes)} embeddings of dev{width}, the same ones each time."
        )
    if works := sources(result["config"]):
        texts.append(f"Methods of this run: {'; '.join(works)}.")
    known = {name: result.get(name) for name in ("phases", "data", "speed")}
    about = {**(result.get("environment") or {}), **{k: v for k, v in known.items() if v}}
    tables = [config_table(result["config"], "Configuration"), config_table(about, "Environment")]
    return (piece("items", texts=texts) if texts else Markup()) + piece("tables", found=tables)
