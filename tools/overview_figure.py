"""Draw two runs side by side: isotropy of every layer over training, and the score below.

The picture of the README is of STS-B by cosine, MiniLM, seed 0, one epoch: mean cosine of 1,024
mean-pooled sentence embeddings of dev, and Spearman on dev (1,500 pairs):

    isotrain train task=stsb task.form=bi pooling=mean encoder=minilm source=local speed=exact \
        isotropy=none trainer.max_epochs=1 trainer.val_check_interval=15 threads=1
    isotrain train task=stsb task.form=bi pooling=mean encoder=minilm source=local speed=exact \
        isotropy=cluster_pca trainer.max_epochs=1 trainer.val_check_interval=15 threads=1
    python tools/overview_figure.py runs/stsb/none-* runs/stsb/cluster_pca-* docs/overview.png

Reads `metrics.jsonl` and `result.json` of both folders. One colour scale; layer 0 is the embedding
output. A run with an isotropy layer at `pooled` has the layer output as one more row on top.
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from isotrain.results.series import Rows, isotropy_series, layers_of, series
from isotrain.runs.files import read_records, read_result
from isotrain.runs.keys import CurveKey

METRIC, VIEW = "mean_cosine", "mean"
NAME = "mean cosine (0 = isotropic)"
FONT = 12  # readable where the picture is 360 pixels wide


def isotropy(rows: Rows) -> tuple[list[float], list[str], np.ndarray]:
    """Steps, names of layers, and the metric `[layers, steps]`; the layer output comes last."""
    by_key = isotropy_series(rows, METRIC)
    clouds = {name: CurveKey(METRIC, name, VIEW) for name in layers_of(by_key, VIEW)}
    if CurveKey(METRIC, "pooled", "before") in by_key:
        clouds["layer output"] = CurveKey(METRIC, "pooled", "after")
    curves = {name: dict(by_key[curve]) for name, curve in clouds.items()}
    steps = sorted(next(iter(curves.values())))
    return steps, list(curves), np.array([[c[step] for step in steps] for c in curves.values()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs=2, type=Path)
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    rows = [read_records(folder / "metrics.jsonl") for folder in given.runs]
    results = [read_result(folder) for folder in given.runs]
    maps = [isotropy(one) for one in rows]
    bounds = {"vmin": 0.0, "vmax": max(float(values.max()) for _, _, values in maps)}
    figure = Figure(figsize=(6.4, 5.6), layout="constrained")
    axes = figure.subplots(2, 2, sharex="col", sharey="row", height_ratios=[2.4, 1])
    untrained = 100 * series(rows[0], results[0]["monitor"])[0][1]
    for column, ((steps, names, values), result) in enumerate(zip(maps, results, strict=True)):
        axis, below = axes[:, column]
        heights = np.arange(len(names))
        image = axis.pcolormesh(steps, heights, values, cmap="viridis_r", **bounds)
        if names[-1] == "layer output":
            axis.axhline(heights[-1] - 0.5, color="white", linewidth=2)
        else:
            axis.text(np.mean(steps), len(names), "no layer", ha="center", va="center", size=FONT)
        axis.set_title(f"isotropy={result['method']}", size=FONT)
        score = np.array(series(rows[column], result["monitor"]))
        below.plot(score[:, 0], 100 * score[:, 1], "o-", markersize=4)
        below.axhline(untrained, color="0.5", linewidth=1, linestyle=":")
        below.set_xlabel("step", size=FONT)
        below.locator_params(nbins=4)
    longest = max((names for _, names, _ in maps), key=len)
    labels = [name.removeprefix("layer_0").removeprefix("layer ") for name in longest]
    axes[0, 0].set_yticks(np.arange(len(labels)), labels)
    axes[0, 0].set_ylabel("layer", size=FONT)
    name = results[0]["monitor"].partition("/")[2].replace("_", " ")
    axes[1, 0].set_ylabel(f"dev {name.capitalize()}\n× 100", size=FONT)
    at = {"xycoords": ("axes fraction", "data"), "ha": "right", "va": "bottom", "size": FONT - 1}
    axes[1, 1].annotate("start, no layer", (0.99, untrained), color="0.4", **at)
    bar = figure.colorbar(image, ax=axes[0], pad=0.01)
    bar.set_label(NAME, size=FONT)
    for one in (*axes.flat, bar.ax):
        one.tick_params(labelsize=FONT - 1)
    figure.savefig(given.picture, dpi=160)


if __name__ == "__main__":
    main()
