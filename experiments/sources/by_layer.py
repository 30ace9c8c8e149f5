"""Print STS-B by layer, from the records of `offline_isotropy`.

    python experiments/sources/by_layer.py                         # of sts_by_layer.csv
    python experiments/sources/by_layer.py runs/analysis           # of records of one's own
    python experiments/sources/by_layer.py runs/analysis --save    # ... into sts_by_layer.*

A row of `sts_by_layer.csv` is an encoder, a layer, a transform and the split that it is fitted on.
`spearman` and `gain` (over `none`) are × 100, `ci` is half of the 95 % CI of the gain over pairs
(1.96 bootstrap errors); `mean_cosine` and `ln_partition` are of the token embeddings after the
transform.
"""

import sys
from pathlib import Path
from runpy import run_path

import pandas as pd

from isotrain.pages.charts import COLOURS, GREY, chart, mark, picture, quantity, scale
from isotrain.runs.files import replace_bytes

PAGE = Path(__file__).with_name("sts_by_layer.md")
TABLE, PICTURE = PAGE.with_suffix(".csv"), PAGE.with_suffix(".svg")
START, END = "<!-- by_layer.py -->\n\n", "\n\n<!-- / -->"
ENCODERS = run_path(str(PAGE.with_name("table.py")))["ENCODERS"]
STEPS = {"SmolLM2": 3}  # of many layers the page has every third
BY_HAND = "MiniLM"
TRANSFORMS = ("none", "mean", "mean_pca", "kmeans_mean", "kmeans_mean_pca")
KEYS = ["encoder", "fitted_on", "layer", "setting"]
FIGURES = ["spearman", "gain", "ci", "mean_cosine", "ln_partition"]


def read(folder: Path) -> pd.DataFrame:
    """The rows of STS-B, from each run of the analysis.

    Raises:
        ValueError: no run has STS-B, or two runs have other figures of a row.
    """
    found = []
    for file in sorted(folder.glob("offline_isotropy/*/records.csv")):
        records = pd.read_csv(file, low_memory=False)
        records = records[(records["set"] == "stsb") & (records["split"] != "train")]
        if not (records["kind"] == "similarity").any():
            continue
        name = file.parent.name.rpartition("-")[0]
        (fitted_on,) = records["fitted_on"].dropna().str.removeprefix("stsb ").unique()
        records = records.assign(encoder=ENCODERS.get(name, name), fitted_on=fitted_on)
        keyed = records.set_index(KEYS)
        own = keyed.loc[keyed["kind"] == "similarity"]
        own = own[["spearman", "spearman_gain"]].assign(ci=1.96 * own["spearman_gain_error"])
        clouds = keyed.loc[keyed["kind"] == "cloud", ["mean_cosine", "ln_partition"]]
        found.append(own.join(clouds).rename(columns={"spearman_gain": "gain"}))
    if not found:
        raise ValueError(f"no offline_isotropy/*/records.csv with STS-B in {folder}")
    table = pd.concat(found)[FIGURES].round(5).reset_index().drop_duplicates()
    if twice := table.loc[table.duplicated(KEYS), "encoder"].tolist():
        raise ValueError(f"two runs have other figures of {twice[0]}; move one elsewhere")
    first = {
        name: k for k, name in enumerate([*ENCODERS.values(), *table["encoder"].unique()][::-1])
    }
    return table.sort_values(
        ["encoder", "fitted_on", "layer"],
        key=lambda x: -x.map(first) if x.name == "encoder" else x,
        kind="stable",
    )


def number(value: float, sign: str = "") -> str:
    """One decimal, with the field's minus."""
    return f"{value:{sign}.1f}".replace("-", "−")


def rendered(table: pd.DataFrame) -> str:
    """A table for each encoder; the gain is of the last transform, by the split it is fitted on."""
    lines = []
    for encoder, rows in table.groupby("encoder", sort=False):
        of = {
            split: own.set_index(["setting", "layer"]) for split, own in rows.groupby("fitted_on")
        }
        scored = of.get("test", rows.set_index(["setting", "layer"]))
        names = [name for name in TRANSFORMS if name in scored.index]
        gains = [f"gain, fitted on {split}" for split in of]
        heads = ["layer", "mean cosine", *(f"`{name}`" for name in names), *gains]
        lines += [f"**{encoder}**", "", f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
        for layer in scored.loc["none"].index[:: STEPS.get(encoder, 1)]:
            cells = [f"{layer}", f"{scored.loc[('none', layer), 'mean_cosine']:.2f}"]
            cells += [number(scored.loc[(name, layer), "spearman"]) for name in names]
            for own in of.values():
                one = own.loc[(names[-1], layer)]
                cells.append(f"{number(one['gain'], '+')} ± {number(one['ci'])}")
            lines.append(f"| {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines[:-1])


def on_page(table: pd.DataFrame) -> str:
    """The tables of the page, which has one of an encoder by hand."""
    return rendered(table[table["encoder"] != BY_HAND])


def draw(table: pd.DataFrame, file: Path) -> None:
    """A panel for each encoder: Spearman over layers, without and with transforms."""
    looks = {"none": GREY, "mean": COLOURS[2], "mean_pca": COLOURS[0], TRANSFORMS[-1]: COLOURS[1]}
    colours = scale([*looks], [*looks.values()])
    colour = {"field": "setting", "type": "nominal", "title": None, "scale": colours}
    panels = []
    own = table[(table["fitted_on"] == "test") & table["setting"].isin([*looks])]
    for encoder, rows in own.groupby("encoder", sort=False):
        y = quantity("spearman", None if panels else "Spearman × 100")
        at = {"x": quantity("layer", "layer", axis={"tickMinStep": 1}), "y": y, "color": colour}
        values = rows[["layer", "setting", "spearman"]].to_dict("records")
        lines = [mark("line", at), mark("point", at, size=14)]
        made = chart(values, encoder, f"Spearman by layer, {encoder}", lines, height=180)
        look, version = made.pop("config"), made.pop("$schema")
        del made["autosize"]
        panels.append({**made, "width": 180})
    whole = {"hconcat": panels, "config": look, "resolve": {"scale": {"y": "shared"}}}
    replace_bytes(file, picture({"$schema": version, **whole}, "svg"))


def main() -> None:
    """Print the tables of a folder of analyses, or of the figures that were saved."""
    folders = [name for name in sys.argv[1:] if name != "--save"]
    table = read(Path(*folders)) if folders else pd.read_csv(TABLE)
    if "--save" not in sys.argv:
        print(rendered(table))
        return
    table.to_csv(TABLE, index=False)
    before, _, rest = PAGE.read_text("utf-8").partition(START)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{START}{on_page(table)}{END}{after}", "utf-8")
    draw(table, PICTURE)


if __name__ == "__main__":
    main()
