"""The page of one run, from its folder alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from markupsafe import Markup

from isotrain.keys import Place
from isotrain.pages.cloud_sections import cloud_sections
from isotrain.pages.figures import loss_curve, score_curve
from isotrain.pages.isotropy_sections import isotropy_sections
from isotrain.pages.maps import map_data
from isotrain.pages.page import (
    Figures,
    Section,
    code,
    folded,
    grid,
    items,
    page,
    tables,
    verdict,
    write_page,
)
from isotrain.pages.readings import base_of
from isotrain.pages.rows import Rows, Series, headline, isotropy_places, measured, sites_of
from isotrain.pages.run_tables import (
    config_table,
    counter_table,
    layer_tables,
    outlier_tables,
    reading_table,
    sources,
)
from isotrain.pages.verdict import CAUTION, faults, sentences, warnings
from isotrain.results import read_result
from isotrain.row_file import read_rows
from isotrain.snapshots import read_snapshots

GEOMETRY = (
    *("scatter_ratio", "label_silhouette", "cluster_label_nmi", "removed_label_scatter"),
    *("best_dimension_accuracy", "linear_probe_accuracy"),
)
DRIFT = ("cosine_drift", "linear_cka")


def write_report(folder: Path) -> Path:
    """`report.html` of a run folder, written with `figures/*.svg` and `*.png`; its path.

    Of a run that is unfinished or failed too: what was logged is shown.

    Raises:
        FileNotFoundError: a folder that is no run's.
    """
    folder = Path(folder)
    result = read_result(folder)
    if "config" not in result:
        raise FileNotFoundError(
            f"{folder} is no run folder: result.json with the configuration of a run is not in it; "
            "give a folder such as runs/wic/none-0123456789"
        )
    rows, snapshots = read_rows(folder / "metrics.jsonl"), read_snapshots(folder)
    drawn, places = Figures(folder / "figures"), isotropy_places(rows)
    shown = headline(result, measured(places))
    data = map_data(snapshots)
    sections = [
        Section("Score and loss", _score(drawn, result, rows)),
        *isotropy_sections(drawn, rows, places, shown),
        *cloud_sections(drawn, snapshots, data, sites_of(places)),
        *_tables(places),
    ]
    counters = counter_table(rows)
    if counters.rows:
        sections.append(Section("Counters of layers and objectives", tables([counters])))
    sections += [
        Section("Read with care", items(warnings(result, rows))),
        Section("Configuration and environment", _setting(result)),
        Section("Repeat this run", _repeat()),
    ]
    sections.append(Section("How to read it", _readings(result, places)))
    text = page(
        f"{_task(result)} · {result.get('arm', folder.name)} · seed {result.get('seed')}",
        _facts(folder, result),
        verdict(sentences(result, rows), faults(result), CAUTION),
        sections,
        {"maps": data} if data else None,
    )
    return write_page(folder / "report.html", text)


def _task(result: Mapping[str, Any]) -> str:
    target = str((result["config"].get("task") or {}).get("_target_", "run"))
    return target.rpartition(".")[2]


def _facts(folder: Path, result: Mapping[str, Any]) -> list[str]:
    """Short facts below the title; the date is that of the record."""
    known, n_rows = result.get("environment") or {}, result.get("n_rows") or {}
    written = time.localtime((folder / "result.json").stat().st_mtime)
    sizes = ", ".join(f"{n:,} {split}" for split, n in n_rows.items() if n)
    parameters = result.get("n_parameters") or {}
    trained = ""
    if parameters.get("total"):
        share = parameters["trainable"] / parameters["total"]
        trained = f"{share:.0%} of {parameters['total']:,} parameters trained"
    seconds = (result.get("timings_s") or {}).get("total")
    facts = [
        str(result.get("status", "")),
        time.strftime("%Y-%m-%d %H:%M", written),
        f"isotrain {known.get('isotrain', '?')}" + (f" ({known['git']})" * bool(known.get("git"))),
        str(result.get("encoder", "")),
        f"rows: {sizes}" if sizes else "",
        trained,
        f"{seconds:,.0f} s" if seconds else "",
        folder.name,
    ]
    return [fact for fact in facts if fact]


def _score(drawn: Figures, result: Mapping[str, Any], rows: Rows) -> Markup:
    monitor = result.get("monitor", "val/score")
    chosen = result.get("selected_step") if result.get("select") in ("best", "holdout") else None
    score = score_curve(rows, monitor, chosen)
    return grid(
        [
            drawn.add(score, "score", f"{monitor} over the optimizer steps"),
            drawn.add(loss_curve(rows), "loss", "training loss over the optimizer steps"),
        ]
    )


def _tables(places: Mapping[Place, Series]) -> list[Section]:
    metrics = measured(places)
    found = []
    for title, bases in (("Label geometry", GEOMETRY), ("Drift from step 0", DRIFT)):
        chosen = layer_tables(places, [m for m in metrics if base_of(m) in bases])
        if chosen:
            found.append(Section(title, tables(chosen, "First → last evaluation.")))
    if chosen := outlier_tables(places):
        found.append(Section("Outlier dimensions", tables(chosen, "First → last evaluation.")))
    return found


def _setting(result: Mapping[str, Any]) -> Markup:
    known = {"phases": result.get("phases"), "data": result.get("data")}
    about = {**(result.get("environment") or {}), **{k: v for k, v in known.items() if v}}
    return folded(
        "Resolved configuration", tables([config_table(result["config"], "Configuration")])
    ) + folded("Environment", tables([config_table(about, "Environment")]))


def _repeat() -> Markup:
    return code(
        "isotrain job result.json",
        "In a copy of this folder: result.json holds the resolved configuration. A run that is "
        "finished where its output_dir says is not trained again; its scores are printed.",
    )


def _readings(result: Mapping[str, Any], places: Mapping[Place, Series]) -> Markup:
    body = tables([reading_table(places)]) if measured(places) else Markup()
    if found := sources(result["config"]):
        body += items([f"Methods of this run: {'; '.join(found)}."])
    return body + items(
        [
            "Layer 0 is the embedding output. CLS is the first token of every sequence; tokens are "
            "all that are no padding; the mean is that of the tokens of a sequence.",
            "Values are those of dev rows, the same ones at every evaluation.",
        ]
    )
