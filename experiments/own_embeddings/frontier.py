"""Draws frontier.png: isotropy of the encoder's own pooled embeddings against score; prints it too.

`python docs/where_isotropy_pays/frontier.py` in a clone; reads the tables of STUDIES, and those
of CONFIRMED for the star.

Isotropy: IsoScore and 1 - mean cosine on dev over those of none, of the encoder's output. Methods
that subtract the mean have a hollow mark before and a filled one after the subtraction; a line
joins them. Score: the difference to none in percent of what fine-tuning gains, on test in the
picture. The bar of the study is at 10 and -20 %. A cross: at least one of the runs has collapsed.
Power: of the one-sided paired t test that a method loses less than a fifth of the gain on dev, with
ten seeds, if mean and SD of the difference are those seen.
"""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pandas as pd

mpl.use("Agg")
import matplotlib.pyplot as plt
from scipy.stats import nct, t

N_SEEDS = 10  # of a confirmation
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
LOSSES = ("gor", "istar", "uniformity", "visreg", "iso_grad", "zca_dense_gor")  # how names begin
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


def points(table: pd.DataFrame, task: str) -> pd.DataFrame:
    """A row for each method: value, low and high of each measure and split; power."""
    score, view, _ = TASKS[task]
    found = {}
    for measure, name in MEASURES.items():
        own = table.loc[f"isotropy/{measure}/layer_04/{view}"][["mean", "low", "high"]]
        output = table.loc[f"isotropy/{measure}/pooled/after"][["mean", "low", "high"]]
        before = own["mean"].copy()
        own.update(output[output.index.str.startswith("mean")])
        if measure == "mean_cosine":
            own, before = 1 - own[["mean", "high", "low"]], 1 - before
        found[f"{name} before"] = before / own["mean"]["none"]
        for end, values in zip(("", " low", " high"), own.to_numpy().T, strict=True):
            found[name + end] = pd.Series(values, own.index) / own["mean"]["none"]
    for split in ("test", "val"):
        scores = table.loc[f"{split}/{score}"]
        gained = scores["mean"]["none"] - scores["mean"]["untrained"]
        for end in ("", "_low", "_high"):
            found[split + end.replace("_", " ")] = 100 * scores[f"difference{end}"] / gained
    sd = 100 * scores["difference_sd"] / gained
    noncentral = (found["val"] + 20) / (sd / N_SEEDS**0.5)
    power = nct.sf(t.ppf(0.95, N_SEEDS - 1), N_SEEDS - 1, noncentral)
    found["power"] = pd.Series(power, scores.index)
    found["collapsed"] = table.loc[f"test/{score}"]["collapsed"].notna()
    methods = scores.index[scores["difference"].notna() | (scores.index == "none")]
    return pd.DataFrame(found).loc[methods]


def group(method: str) -> str:
    """The key of GROUPS that a method is drawn with."""
    if method.startswith("mean"):
        return {"mean": "mean subtracted", STAR: STAR}.get(method, "mean subtracted, isotropy loss")
    if method in LAYERS:
        return "layer, fixed or trained"
    if method.startswith(LOSSES):
        return "isotropy loss, weight < 0" if "_minus_" in method else "isotropy loss"
    return {"none": "none", "muon": "Muon"}[method]


def read(studies: Sequence[str]) -> pd.DataFrame:
    """The rows of all runs in the tables of some studies."""
    table = pd.concat(pd.read_csv(FOLDER / f"table_{name}.csv") for name in studies)
    return table.query("runs == 'all'").drop_duplicates(["task", "score", "method"])


def main() -> None:
    """A column for each task, a row for each measure, a point for each method."""
    table, confirmed = read(STUDIES), read(CONFIRMED)
    figure, grid = plt.subplots(
        2, 3, sharey="col", sharex="row", figsize=(11, 8), layout="constrained"
    )
    for column, (task, (_, _, title)) in enumerate(TASKS.items()):
        of_task, fresh = (
            points(one[one["task"] == task].set_index(["score", "method"]), task)
            for one in (table, confirmed)
        )
        of_task.loc[STAR] = fresh.loc["mean_gor_0.3"]
        shown = [*MEASURES.values(), "test", "val", "val low", "val high", "power"]
        print(title, of_task[shown].round(2).to_string(), sep="\n", end="\n\n")
        of_task = of_task.fillna(0)
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
