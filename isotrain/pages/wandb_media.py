"""W&B media of a finished run, in addition to its scalars, read from the run folder.

M points of a map, S eigenvalues.
"""

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import wandb
from PIL import Image

from isotrain.pages.charts import Spec, picture
from isotrain.pages.maps import map_steps
from isotrain.pages.run_charts import heat_map, isotropy_of
from isotrain.results.series import Rows, end_of, isotropy_series, layers_of, series
from isotrain.runs.files import as_json, read_records, read_result
from isotrain.runs.keys import DEV, SIDES, VIEWS, CurveKey, Measured, few, table
from isotrain.runs.snapshots import Arrays, read_snapshots

DECADES, N_BINS = 8, 64  # of the histograms of log10 shares: from 10⁻⁸ to 1
MOST_SNAPSHOTS = 12  # of a run
MOST_LINES = wandb.Table.MAX_ARTIFACT_ROWS  # service limit per table


def media(folder: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Records (step, {key: object}) to log once, after all scalars; tables come last.

    | key | object |
    | --- | --- |
    | `spectra/<cloud>` | at each snapshot, a histogram of log10(λ_i/Σλ) |
    | `maps/<cloud>` | its map at the first, a middle and the last snapshot, turned to match |
    | `heatmaps/<metric>/<view>` | a headline metric, layer × step |
    | `report/page` | `report.html`, where it is |
    | `layers/<metric>/<view>` | the same as lines, one for each layer |
    | `tables/isotropy` | everything that was measured; `…_2`, … where one table is too small |

    Spectra are of the clouds whose scalars are sent (`isotrain.runs.keys.few`), maps of the last
    layer and of the sites. Tables come last because they query the service: if it does not
    respond, everything before them is already on disk.
    """
    rows, snapshots = read_records(folder / "metrics.jsonl"), read_snapshots(folder, MOST_SNAPSHOTS)
    result = read_result(folder)
    headline = result["headline"]
    step = max((int(row["step"]) for row in rows), default=0)
    for snapshot_step, arrays in snapshots.items():
        yield snapshot_step, _spectra(arrays)
    charts = [(metric, view) for metric in headline for view in _views(rows, metric)]
    yield step, _maps(result, rows, snapshots) | _heat_maps(result, rows, charts) | _files(folder)
    yield step, {f"layers/{m}/{view}": _lines(rows, m, view) for m, view in charts}
    yield step, dict(_tables(table(rows)))


def summary(folder: Path) -> dict[str, float]:
    """`final/<key>` of the score and of the charted headline isotropy, of the selected weights."""
    rows, result = read_records(folder / "metrics.jsonl"), read_result(folder)
    keys = {key: math.nan for row in rows for key in row}
    isotropy_keys = [key for key in few(keys, result["headline"]) if key.startswith(f"{DEV}/")]
    end = end_of(result, rows).step
    values = {key: dict(series(rows, key)) for key in (result["monitor"], *isotropy_keys)}
    return {f"final/{key}": by_step[end] for key, by_step in values.items() if end in by_step}


def _views(rows: Rows, metric: str) -> list[str]:
    by_key = isotropy_series(rows, metric)
    return [view for view in VIEWS if layers_of(by_key, view)]


def _spectra(arrays: Arrays) -> dict[str, Any]:
    edges = np.linspace(-DECADES, 0, N_BINS + 1)
    histograms: dict[str, Any] = {}
    for cloud in _charted(arrays, "spectrum"):
        eigenvalue_S = arrays[f"spectrum/{cloud}"].astype(np.float64)
        total = eigenvalue_S.sum()
        if np.isfinite(total) and total > 0:
            share_S = np.clip(eigenvalue_S / total, 10.0**-DECADES, 1)
            histogram = np.histogram(np.log10(share_S), edges)
            histograms[f"spectra/{cloud}"] = wandb.Histogram(np_histogram=histogram)
    return histograms


def _heat_maps(
    result: Mapping[str, Any], rows: Rows, charted: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    isotropy = isotropy_of(result, rows, isotropy_series(rows), [])
    return {f"heatmaps/{m}/{view}": _image(heat_map(isotropy, m, view)) for m, view in charted}


def _maps(result: Mapping[str, Any], rows: Rows, snapshots: dict[int, Arrays]) -> dict[str, Any]:
    """The maps of the last layer and of the sites."""
    last = snapshots[max(snapshots)] if snapshots else {}
    clouds = _charted(last, "map")
    top = max((cloud for cloud in clouds if cloud.startswith("layer_")), default="").split("/")[0]
    end, classes = end_of(result, rows), result.get("classes") or ()
    return {
        f"maps/{cloud}": _image(map_steps(snapshots, [cloud], end, classes))
        for cloud in clouds
        if cloud.split("/")[0] == top or cloud.split("/")[1] in SIDES
    }


def _charted(arrays: Arrays, kind: str) -> list[str]:
    """The clouds of a snapshot whose scalars are also sent."""
    clouds = [name.removeprefix(f"{kind}/") for name in arrays if name.startswith(f"{kind}/")]
    keys = {CurveKey(kind, *cloud.split("/")).text: math.nan for cloud in clouds}
    return [key.removeprefix(f"{DEV}/{kind}/") for key in few(keys, [kind])]


def _files(folder: Path) -> dict[str, Any]:
    page = folder / "report.html"
    return {"report/page": wandb.Html(str(page), inject=False)} if page.is_file() else {}


def _lines(rows: Rows, metric: str, view: str) -> Any:
    by_key = isotropy_series(rows, metric)
    names = layers_of(by_key, view)
    lines = [by_key[CurveKey(metric, name, view)] for name in names]
    return wandb.plot.line_series(
        [[step for step, _ in line] for line in lines],
        [as_json([value for _, value in line]) for line in lines],
        keys=names,
        title=f"{metric}, {view}",
        xname="trainer/global_step",
    )


def _tables(lines: Sequence[Measured]) -> Iterator[tuple[str, Any]]:
    for start in range(0, len(lines), MOST_LINES):
        rows = as_json(lines[start : start + MOST_LINES])
        name = "tables/isotropy" + (f"_{start // MOST_LINES + 1}" if start else "")
        yield name, wandb.Table(columns=list(Measured._fields), data=rows)


def _image(spec: Spec) -> Any:
    return wandb.Image(Image.open(io.BytesIO(picture(spec))))
