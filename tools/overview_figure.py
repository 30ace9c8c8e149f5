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
import math
from collections.abc import Sequence
from pathlib import Path

from isotrain.pages.charts import COLOURS, GREY, LOOK, Spec, chart, mark, picture, quantity
from isotrain.results.series import Rows, isotropy_series, layers_of, series
from isotrain.runs.files import read_records, read_result, replace_bytes
from isotrain.runs.keys import CurveKey

METRIC, VIEW = "mean_cosine", "mean"
NAME = "mean cosine (0 = isotropic)"
OUTPUT = "output"  # of the isotropy layer, a row on top
WIDTH = 240  # pixels of a run


def isotropy(rows: Rows) -> list[dict[str, object]]:
    """The metric of every layer at every step; the layer output is one more."""
    by_key = isotropy_series(rows, METRIC)
    clouds = {str(int(n[6:])): CurveKey(METRIC, n, VIEW) for n in layers_of(by_key, VIEW)}
    if CurveKey(METRIC, "pooled", "before") in by_key:
        clouds[OUTPUT] = CurveKey(METRIC, "pooled", "after")
    return [
        {"layer": layer, "step": int(step), "value": value}
        for layer, key in clouds.items()
        for step, value in by_key[key]
    ]


def column(
    method: str, rows: Rows, score: str, untrained: float, layers: list[str], ends: Sequence[float]
) -> Spec:
    """Heat map and score of a run, one above the other; `ends` of the axis of scores."""
    values = isotropy(rows)
    y = {"field": "layer", "type": "ordinal", "scale": {"domain": layers}}
    x = {"field": "step", "type": "ordinal", "title": None}
    colours = {"scheme": "viridis", "reverse": True, "domainMin": 0}
    legend = {"orient": "right", "title": NAME, "columns": 1}
    cell = {
        "x": {**x, "axis": {"labels": False, "ticks": False}},
        "y": {**y, "title": "layer"},
        "color": quantity("value", scale=colours, legend=legend),
    }
    has_layer = OUTPUT in {row["layer"] for row in values}
    title = f"isotropy={method}{'' if has_layer else ' (no layer)'}"
    above = chart(values, title, f"{NAME} of every layer", [mark("rect", cell)], height=230)
    name = score.partition("/")[2].replace("_", " ").capitalize()
    scores = [{"step": step, "score": 100 * value} for step, value in series(rows, score)]
    line = {
        "x": quantity("step", "step", axis={"tickCount": 4}),
        "y": quantity("score", f"dev {name} × 100", scale={"domain": list(ends), "zero": False}),
    }
    start = {"y": {"datum": 100 * untrained}}
    caption = {**start, "x": {"value": "width"}, "text": {"value": "start, no layer"}}
    layer = [
        mark("rule", start, values=[{}], color=GREY, strokeDash=[2, 2]),
        mark("text", caption, values=[{}], color=GREY, align="right", dy=-6),
        mark("line", line, point=True, color=COLOURS[0]),
    ]
    below = chart(scores, "", f"{score} over steps", layer, height=110)
    for one in (above, below):
        del one["config"], one["$schema"], one["autosize"]
        one["width"] = WIDTH
    return {"vconcat": [above, below]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs=2, type=Path)
    parser.add_argument("picture", type=Path)
    given = parser.parse_args()
    rows = [read_records(folder / "metrics.jsonl") for folder in given.runs]
    results = [read_result(folder) for folder in given.runs]
    score = results[0]["monitor"]
    untrained = series(rows[0], score)[0][1]
    known = dict.fromkeys(str(row["layer"]) for one in rows for row in isotropy(one))
    layers = sorted(known, key=lambda name: -100 if name == OUTPUT else -int(name))
    scores = [100 * value for one in rows for _, value in series(one, score)]
    ends = [math.floor(min(scores)), math.ceil(max(scores))]
    columns = [
        column(result["method"], one, score, untrained, layers, ends)
        for result, one in zip(results, rows, strict=True)
    ]
    shared = {"scale": {"color": "shared"}, "legend": {"color": "shared"}}
    whole = {
        "hconcat": columns,
        "resolve": shared,
        "config": {**LOOK, "axis": {"labelFontSize": 12}},
    }
    replace_bytes(given.picture, picture(whole))


if __name__ == "__main__":
    main()
