"""Draw frontier.png: isotropy of the encoder's own embeddings against score; print the points.

    python experiments/own_embeddings/frontier.py

Isotropy: IsoScore and 1 - mean cosine on dev over those of none. Methods that subtract the mean
have a hollow mark before the subtraction and a filled one after it. Score: the difference to none
in percent of what fine-tuning gains, on test in the picture. Dashed: the criterion, 10 and -20 %.
Bars: 95 % CI over seeds. Cross: at least one run collapsed.
"""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt

from isotrain.results.statistics import summarize

FOLDER = Path(__file__).parent
STUDIES = ("own_embeddings", "dose_response")  # with the same none
CONFIRMED = ("own_embeddings_confirmed", "own_embeddings_confirmed_wic")
TASKS = {  # score, pooled view, title
    "stsb_bi": ("spearman", "mean", "STS-B by cosine"),
    "wic": ("accuracy", "cls", "WiC"),
    "snli": ("accuracy", "cls", "SNLI"),
}
MEASURES = {"isoscore_corrected": "IsoScore", "mean_cosine": "1 - mean cosine"}
STAR = "mean_gor_0.3, fresh seeds"  # of CONFIRMED
LAYERS = ("frozen_zca", "clip", "anti_clip", "spectral_temper", "zca_dense")
GROUPS = {  # color and mark
    "none": ("black", "o"),
    "layer, fixed or trained": ("C2", "s"),
    "isotropy loss": ("C0", "o"),
    "isotropy loss, weight < 0": ("C5", "v"),
    "Muon": ("C4", "P"),
    "mean subtracted": ("C3", "^"),
    "mean subtracted, isotropy loss": ("C1", "D"),
    STAR: ("gold", "*"),
}


def read(studies: Sequence[str]) -> pd.DataFrame:
    """The runs of some studies; shared ones once."""
    files = [FOLDER.parent / name / "results.csv" for name in studies]
    runs = pd.concat(pd.read_csv(file, keep_default_na=False, na_values=[""]) for file in files)
    return runs.drop_duplicates(["task", "method", "seed"])


def points(runs: pd.DataFrame, task: str) -> pd.DataFrame:
    """A row for each method: value, low and high of each measure and split."""
    score, view, _ = TASKS[task]
    own = runs[runs["task"] == task].set_index(["method", "seed"])
    none, shown = own.loc["none"], {}
    found: dict[str, pd.Series] = {}
    is_centred = own.index.get_level_values("method").str.startswith("mean")
    for measure, name in MEASURES.items():
        before, after = (
            1 - own[key] if measure == "mean_cosine" else own[key]
            for key in (f"isotropy/{measure}/layer_04/{view}", f"isotropy/{measure}/pooled/after")
        )
        shown[f"{name} before"] = before / before["none"].mean()
        shown[name] = after.where(is_centred, before) / before["none"].mean()
    for split in ("test", "val"):
        key = f"{split}/{score}"
        gained = (none[key] - none[f"before/{key}"]).mean()
        shown[split] = 100 * own[key].sub(none[key], level="seed") / gained
    by_method = pd.DataFrame(shown).groupby("method", sort=False)
    for name in shown:
        of = by_method[name].apply(lambda x: pd.Series(summarize(list(x))._asdict())).unstack()
        found |= {name: of["mean"], f"{name} low": of["low"], f"{name} high": of["high"]}
    found["collapsed"] = own.groupby("method")["collapsed"].max()
    return pd.DataFrame(found).astype(float).loc[own.index.unique("method")]


def group(method: str) -> str:
    """The key of GROUPS that a method is drawn with."""
    if method.startswith("mean"):
        return {"mean": "mean subtracted", STAR: STAR}.get(method, "mean subtracted, isotropy loss")
    if method in LAYERS:
        return "layer, fixed or trained"
    if "_minus_" in method:
        return "isotropy loss, weight < 0"
    return {"none": "none", "muon": "Muon"}.get(method, "isotropy loss")


def main() -> None:
    """A column for each task, a row for each measure, a point for each method."""
    runs, confirmed = read(STUDIES), read(CONFIRMED)
    figure, grid = plt.subplots(
        2, 3, sharey="col", sharex="row", figsize=(11, 8), layout="constrained"
    )
    for column, (task, (_, _, title)) in enumerate(TASKS.items()):
        of_task = points(runs, task)
        of_task.loc[STAR] = points(confirmed, task).loc["mean_gor_0.3"]
        shown = [*MEASURES.values(), "test", "val", "val low", "val high"]
        print(title, of_task[shown].round(2).to_string(), sep="\n", end="\n\n")
        for axes, name in zip(grid[:, column], MEASURES.values(), strict=True):
            axes.axhline(-20, color="gray", lw=0.8, ls="--")
            axes.axvline(10, color="gray", lw=0.8, ls="--")
            for kind, rows in of_task.groupby(group):
                color, mark = GROUPS[kind]
                x, y = (rows[[of, f"{of} low", f"{of} high"]].to_numpy().T for of in (name, "test"))
                ends = [np.abs(of[1:] - of[0]) for of in (x, y)]
                axes.errorbar(x[0], y[0], ends[1], ends[0], "none", ecolor=color, lw=0.5, alpha=0.4)
                size = {"ms": 14, "zorder": 9} if kind == STAR else {"ms": 5, "zorder": 5}
                look = {"color": color, **size, "mec": "black" if kind == STAR else color, "ls": ""}
                fine = ~rows["collapsed"].astype(bool)
                axes.plot(x[0][fine], y[0][fine], mark, label=kind, **look)
                axes.plot(x[0][~fine], y[0][~fine], "x", **look)
                if kind.startswith("mean"):
                    before = rows[f"{name} before"]
                    axes.hlines(y[0], before, x[0], color=color, lw=0.8)
                    axes.plot(before, y[0], mark, **look | {"mfc": "white", "zorder": 4})
            axes.set_ylim(-140, 60)
            axes.set_xscale("log")
            axes.set_xlabel(f"{name}, times that of none")
        grid[0, column].set_title(title)
    for axes in grid[:, 0]:
        axes.set_ylabel("difference to none on test,\n% of what fine-tuning gains")
    marks = dict(zip(*grid[0, 0].get_legend_handles_labels()[::-1], strict=True))
    figure.legend([marks[kind] for kind in GROUPS], GROUPS, loc="outside lower center", ncols=4)
    figure.savefig(FOLDER / "frontier.png", dpi=100)


if __name__ == "__main__":
    main()
