"""The page of one run, from its folder alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from markupsafe import Markup

from isotrain.pages.cloud_figures import Snapshots, class_names
from isotrain.pages.cloud_sections import cloud_sections
from isotrain.pages.figures import loss_curve, score_curve
from isotrain.pages.isotropy_sections import isotropy_sections
from isotrain.pages.maps import map_data
from isotrain.pages.page import Figures, Section, page, piece, write_page
from isotrain.pages.readings import base_of, view_titles
from isotrain.pages.repeat import repeat
from isotrain.pages.rows import (
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
from isotrain.pages.run_tables import (
    SCATTER_SHARE,
    config_table,
    counter_readings_table,
    counter_table,
    layer_tables,
    outlier_tables,
    reading_table,
    sources,
)
from isotrain.pages.verdict import CAUTION, faults, sentences, warnings
from isotrain.runs.files import read_records, read_result
from isotrain.runs.keys import CurveKey
from isotrain.runs.snapshots import read_snapshots, snapshot_steps, spread

GEOMETRY = (
    *("scatter_ratio", "label_silhouette", "cluster_label_nmi", "removed_label_scatter"),
    *("best_dimension_accuracy", "linear_probe_accuracy"),
)
DRIFT = ("cosine_drift", "linear_cka")
NOT_IN_TABLES = ("scatter_ratio_value",)  # says what its share says
N_SLICES = 5  # classes that the metrics cut scores into
RANDOM_LABELS = (
    " Random labels: the share (C − 1)/(N − 1) that C classes have by chance where each row has a "
    "label of its own; tokens of one example share theirs, and chance gives them more."
)
MOST_SNAPSHOTS = 12  # on a page, so that it stays small


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
    rows = read_records(folder / "metrics.jsonl")
    drawn, curves = Figures(folder / "figures"), isotropy_series(rows)
    end, titles = end_of(result, rows), view_titles(result)
    snapshots, n_snapshots, unread = _snapshots(folder, end.step)
    # where it has no snapshot, the last one stands in
    pictured = end if end.step in snapshots else End(max(snapshots, default=0), False)
    data = map_data(snapshots, pictured)
    sections = [
        Section("Score and loss", _score(drawn, result, rows)),
        *isotropy_sections(drawn, result, rows, curves, headline(result, measured(curves))),
        *cloud_sections(drawn, snapshots, n_snapshots, pictured, data, sites_of(curves), titles),
        *_tables(curves, end, titles, _n_classes(snapshots)),
    ]
    counters = counter_table(rows, end.step)
    if counters.rows:
        note = f"The last evaluation here: {end.name}."
        body = piece("tables", found=[counters], note=note)
        sections.append(Section("Counters of layers and objectives", body))
    if care := [*warnings(result, rows), *unread]:
        sections.append(Section("Read with care", piece("items", texts=care)))
    sections += [
        Section("Configuration and environment", _setting(result)),
        Section("Repeat this run", repeat(folder, result)),
        Section("How to read it", _readings(result, rows, curves)),
    ]
    grave = faults(result, rows, (folder / "resume.ckpt").is_file())
    found = {"sentences": sentences(result, rows), "grave": grave, "caution": CAUTION}
    text = page(
        f"{_task(result)} · {result.get('arm', folder.name)} · seed {result.get('seed')}",
        _facts(folder, result, curves),
        piece("verdict", **found),
        sections,
        {"maps": data} if data else None,
    )
    return write_page(folder / "report.html", text)


def _snapshots(folder: Path, step: int) -> tuple[Snapshots, int, list[str]]:
    """Some of the snapshots, that of a step among them; how many there are; what is unreadable."""
    steps = snapshot_steps(folder)
    found = read_snapshots(folder, MOST_SNAPSHOTS, also=[step])
    wanted = {*spread(steps, MOST_SNAPSHOTS), *({step} & set(steps))}
    lost = ", ".join(f"step_{s:08d}.npz" for s in sorted(wanted - set(found)))
    return found, len(steps), [f"Of snapshots/ could not be read: {lost}."] if lost else []


def _task(result: Mapping[str, Any]) -> str:
    target = str((result["config"].get("task") or {}).get("_target_", "run"))
    return target.rpartition(".")[2]


def _facts(folder: Path, result: Mapping[str, Any], curves: Mapping[CurveKey, Series]) -> list[str]:
    """Short facts below the title; the date is that of the end, or of the record."""
    known, n_rows = result.get("environment") or {}, result.get("n_rows") or {}
    if ended := result.get("finished_at"):
        date = datetime.fromisoformat(ended).strftime("%Y-%m-%d %H:%M %Z").strip()
    else:
        written = time.localtime((folder / "result.json").stat().st_mtime)
        date = time.strftime("%Y-%m-%d %H:%M", written)
    sizes = ", ".join(f"{n:,} {split}" for split, n in n_rows.items() if n)
    parameters = result.get("n_parameters") or {}
    trained = ""
    if parameters.get("total"):
        share = parameters["trainable"] / parameters["total"]
        trained = f"{share:.0%} of {parameters['total']:,} parameters trained"
    seconds = (result.get("timings_s") or {}).get("total")
    facts = [
        str(result.get("status", "")),
        date,
        f"isotrain {known.get('isotrain', '?')}" + (f" ({known['git']})" * bool(known.get("git"))),
        str(result.get("encoder", "")),
        f"rows: {sizes}" if sizes else "",
        _measured_on(result, curves),
        trained,
        f"{seconds:,.0f} s" if seconds else "",
        folder.name,
    ]
    return [fact for fact in facts if fact]


def _measured_on(result: Mapping[str, Any], curves: Mapping[CurveKey, Series]) -> str:
    """Rows and hidden size of the clouds of which isotropy was measured."""
    sizes, width = list(by_n(curves)), result.get("width")
    ends = " to ".join(f"{n:,}" for n in dict.fromkeys([sizes[0], sizes[-1]])) if sizes else ""
    known = [f"N = {ends} rows" * bool(ends), f"D = {width:,} (hidden size)" if width else ""]
    return f"isotropy of {', '.join(filter(None, known))}" if ends else ""


def _n_classes(snapshots: Snapshots) -> int:
    """Classes of the labels, as metrics see them; 0 where that is not known."""
    labels = [a for arrays in snapshots.values() for k, a in arrays.items() if k[:6] == "label/"]
    return max((len(class_names(a)) or N_SLICES for a in labels), default=0)


def _score(drawn: Figures, result: Mapping[str, Any], rows: Rows) -> Markup:
    monitor = result.get("monitor", "val/score")
    chosen = result.get("selected_step") if result.get("select") in ("best", "holdout") else None
    score = score_curve(rows, monitor, chosen)
    curve, loss = "over the optimizer steps", loss_curve(rows)
    parts = [
        drawn.add(score, "score", f"{monitor} {curve}"),
        drawn.add(loss, "loss", f"training loss {curve}"),
    ]
    return piece("grid", parts=parts)


def _tables(
    curves: Mapping[CurveKey, Series], end: End, titles: Mapping[str, str], n_classes: int
) -> list[Section]:
    metrics, note = measured(curves), f"First evaluation → {end.name}."
    metrics = [metric for metric in metrics if metric not in NOT_IN_TABLES]
    found = []
    for title, bases in (("Label geometry", GEOMETRY), ("Drift from step 0", DRIFT)):
        chosen = [metric for metric in metrics if base_of(metric) in bases]
        if made := layer_tables(curves, chosen, end.step, titles, n_classes):
            more = RANDOM_LABELS if n_classes and SCATTER_SHARE in chosen else ""
            found.append(Section(title, piece("tables", found=made, note=note + more)))
    if made := outlier_tables(curves, end.step, titles):
        found.append(Section("Outlier dimensions", piece("tables", found=made, note=note)))
    return found


def _setting(result: Mapping[str, Any]) -> Markup:
    known = {"phases": result.get("phases"), "data": result.get("data")}
    about = {**(result.get("environment") or {}), **{k: v for k, v in known.items() if v}}
    body = Markup()
    for title, content in (
        ("Resolved configuration", result["config"]),
        ("Environment", about),
    ):
        table = piece("tables", found=[config_table(content, title)])
        body += piece("folded", title=title, body=table)
    return body


def _readings(result: Mapping[str, Any], rows: Rows, curves: Mapping[CurveKey, Series]) -> Markup:
    tables = [reading_table(curves), counter_readings_table(rows)]
    body = piece("tables", found=[table for table in tables if table.rows])
    texts = (
        [f"Methods of this run: {'; '.join(found)}."]
        if (found := sources(result["config"]))
        else []
    )
    return body + piece(
        "items",
        texts=[
            *texts,
            Markup(
                "Layer 0 is the embedding output, <code>layer_00</code>. Its views, as those of "
                "every layer: the first token of each sequence (<code>cls</code>), all tokens that "
                "are no padding (<code>tokens</code>), and their mean in each sequence "
                "(<code>mean</code>). A site is where an isotropy layer acts: <code>before</code> "
                "are its rows, <code>after</code> what it gives."
            ),
            Markup(
                "A value stands in metrics.jsonl as <code>isotropy/&lt;metric&gt;/&lt;layer or "
                "site&gt;/&lt;view&gt;</code>; metrics are chosen on the command line by the same "
                "names, as in <code>metric=[isoscore,partition]</code>."
            ),
            "Values are those of dev rows, the same ones at every evaluation.",
        ],
    )
