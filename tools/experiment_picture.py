"""Draw `differences.svg` of an experiment from its `results.csv`.

    python tools/experiment_picture.py experiments/NAME ...

What is drawn stands in the page of the experiment, above the picture; every key may be left out:

    <!-- picture {tasks: {wic: WiC, stsb_bi: STS-B}, methods: [clip, istar], score: test/spearman,
    share_x: true} -->

A panel for each task (with its title), a line for each method: its difference to the baseline of
the study, paired by seed, with 95 % CI over seeds (Student's t) and a small mark for each seed.
Without `score`: Spearman, else accuracy, on test if the study has it, else on dev. A method of
which a run has constant predictions is drawn hollow. `share_x`: one scale for all panels.

With `by_layer: isotropy/mean_cosine/layer_{}/cls` a panel has lines over layers instead: of each
method after training, and of the baseline before it; mean, and with three seeds its 95 % CI. The
columns are those of `results_csv.py --also "isotropy/mean_cosine/layer_../cls"`.
"""

import argparse
import re
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from isotrain.pages.charts import (
    COLOURS,
    GREY,
    LOOK,
    Spec,
    chart,
    mark,
    picture,
    quantity,
    scale,
)
from isotrain.results.readings import label
from isotrain.results.statistics import compare_paired, summarize
from isotrain.runs.files import replace_bytes

SCORES = ("test/spearman", "test/accuracy", "val/spearman", "val/accuracy")
KEYS = ("tasks", "methods", "score", "share_x", "by_layer")
SPLITS = {"val": "dev", "test": "test"}
SPEC = re.compile(r"<!-- picture(.*?)-->", re.DOTALL)


def main() -> None:
    """Draw the pictures."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", type=Path, nargs="+")
    for folder in parser.parse_args().folders:
        spec = SPEC.search((folder / "README.md").read_text(encoding="utf-8"))
        if not spec:
            parser.error(
                f"a page says what its picture shows; {folder}/README.md does not: add "
                "<!-- picture {} --> above the picture"
            )
        content = yaml.safe_load(spec[1]) or {}
        if unknown := content.keys() - KEYS:
            parser.error(
                f"a picture has the keys {', '.join(KEYS)}; {folder}/README.md gives "
                f"{', '.join(sorted(unknown))}: correct or remove it"
            )
        draw(folder, content, folder / "differences.svg")


def draw(folder: Path, spec: dict[str, Any], file: Path) -> None:
    """Draw the picture of an experiment into a file."""
    table = pd.read_csv(folder / "results.csv", keep_default_na=False, na_values=[""])
    base = yaml.safe_load((folder / "study.yaml").read_text(encoding="utf-8"))["baseline"]
    tasks = spec.get("tasks") or {name: name for name in table["task"].unique()}
    methods = spec.get("methods") or [name for name in table["method"].unique() if name != base]
    panels: list[Spec] = []
    for task, title in tasks.items():
        runs = table[table["task"] == task]
        if key := spec.get("by_layer"):
            panels.append(layer_panel(by_layer(runs, key, [base, *methods]), title, key))
            continue
        score = spec.get("score") or next(key for key in SCORES if key in runs and runs[key].any())
        split, name, *genre = score.split("/")
        words = {"spearman": "Spearman", "accuracy": "accuracy"}.get(name, name)
        within = " within genres" if genre == ["within"] else "".join(f", {g}" for g in genre)
        label = f"{words}{within} on {SPLITS[split]} × 100, less {base}"
        has_names = not panels
        panels.append(panel(differences(runs, score, methods, base), title, label, has_names))
    axes = {"y": "shared"} | ({"x": "shared"} if spec.get("share_x") else {})
    whole = {"hconcat": panels, "config": LOOK, "resolve": {"scale": axes}}
    replace_bytes(file, picture({"$schema": panels[0].pop("$schema"), **whole}, "svg"))


def differences(
    runs: pd.DataFrame, score: str, methods: list[str], base: str
) -> list[dict[str, Any]]:
    """Each method less the baseline: mean, CI, single seeds, whether a run has collapsed."""
    wide = runs.pivot_table(score, "seed", "method")
    found: list[dict[str, Any]] = []
    for method in methods:
        if method not in wide:
            found.append({"method": method, "each": []})
            continue
        pairs = wide[[method, base]].dropna()
        about = compare_paired(list(100 * pairs[method]), list(100 * pairs[base])).difference
        found.append(
            {
                "method": method,
                "each": (100 * (pairs[method] - pairs[base])).tolist(),
                "mean": about.mean,
                "low": about.low,
                "high": about.high,
                "collapsed": bool(runs.loc[runs["method"] == method, "collapsed"].any()),
            }
        )
    return found


def panel(values: list[dict[str, Any]], title: str, label: str, has_names: bool) -> Spec:
    """The chart of one task; the first has the names of the methods."""
    names = [row["method"] for row in values]
    axis = {"labels": has_names, "ticks": False, "domain": False, "labelLimit": 220}
    y = {"field": "method", "type": "nominal", "sort": names, "title": None, "axis": axis}
    fill = {"condition": {"test": "datum.collapsed", "value": "white"}, "value": COLOURS[0]}
    mean = {"y": y, "x": quantity("mean", label), "fill": fill}
    ends = {"y": y, "x": quantity("low", label), "x2": {"field": "high"}}
    each = {"y": y, "x": quantity("each", label)}
    layer = [
        mark("rule", {"x": {"datum": 0}}, values=[{}], color=GREY),
        mark("tick", each, {"flatten": ["each"]}, color=COLOURS[0], opacity=0.5, height=8),
        mark("rule", ends, color=COLOURS[0], strokeWidth=1.7),
        mark("point", mean, color=COLOURS[0], size=45, opacity=1),
    ]
    found = chart(values, title, f"{label}, {title}", layer, height={"step": 22})
    del found["config"], found["autosize"]
    return {**found, "width": 215}


def by_layer(runs: pd.DataFrame, key: str, methods: list[str]) -> list[dict[str, Any]]:
    """A value at each layer of each method, and of the first one before training.

    Raises:
        ValueError: no run has such a value.
    """
    found: list[dict[str, Any]] = []
    lines = [("untrained", methods[0], "before/"), *((name, name, "") for name in methods)]
    for name, method, prefix in lines:
        layers = re.compile(re.escape(prefix + key).replace(r"\{\}", r"(\d+)"))
        for column in runs:
            values = runs.loc[runs["method"] == method, column].dropna().tolist()
            if values and (at := layers.fullmatch(column)):
                mean = summarize(values)
                place = {"line": name, "layer": int(at[1])}
                found.append({**place, "mean": mean.mean, "low": mean.low, "high": mean.high})
    if not found:
        raise ValueError(f"no run has {key}; write results.csv with --also")
    return found


def layer_panel(values: list[dict[str, Any]], title: str, key: str) -> Spec:
    """The chart of one task over layers."""
    names = [*dict.fromkeys(row["line"] for row in values)]
    looks = scale(names, [GREY, *COLOURS])
    colour = {"field": "line", "type": "nominal", "title": None, "scale": looks}
    x = quantity("layer", "layer", axis={"tickMinStep": 1})
    metric = label(key.split("/")[1])
    y = {"y": quantity("mean", metric)}
    ends = {"x": x, "y": quantity("low", metric), "y2": {"field": "high"}, "color": colour}
    layer = [
        mark("line", {"x": x, **y, "color": colour}),
        mark("point", {"x": x, **y, "color": colour}, size=25),
        mark("rule", ends),
    ]
    found = chart(values, title, f"{metric} by layer, {title}", layer, height=180)
    del found["config"], found["autosize"]
    return {**found, "width": 240}


if __name__ == "__main__":
    main()
