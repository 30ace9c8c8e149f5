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
from itertools import product
from pathlib import Path
from runpy import run_path

import pandas as pd

from isotrain.pages.charts import COLOURS, GREY, chart, mark, picture, quantity, scale
from isotrain.runs.files import replace_bytes

PAGE = Path(__file__).with_name("sts_by_layer.md")
TABLE, PICTURE = PAGE.with_suffix(".csv"), PAGE.with_suffix(".svg")
START, END = "<!-- by_layer.py -->\n\n", "\n\n<!-- / -->"
CLAIMS = run_path(str(PAGE.with_name("table.py")))
ENCODERS, NOT_AFTER = CLAIMS["ENCODERS"], CLAIMS["NOT_AFTER"]
STEPS = {"SmolLM2": 3}  # of many layers the page has every third
BY_HAND = "MiniLM"
TRANSFORMS = ("none", "mean", "mean_pca", "kmeans_mean", "kmeans_mean_pca", "gmm_mean_pca")
GAIN = "kmeans_mean_pca"
RUN = ["encoder", "fitted_on"]
KEYS = [*RUN, "layer", "setting"]
FIGURES = ["spearman", "gain", "ci", "mean_cosine", "ln_partition"]


def read(folder: Path) -> pd.DataFrame:
    """The rows of STS-B, from each run of the analysis.

    Raises:
        ValueError: no run has STS-B, or two have the same encoder and split.
    """
    found: dict[tuple[str, str], pd.DataFrame] = {}
    for file in sorted(folder.glob("offline_isotropy/*/records.csv")):
        records = pd.read_csv(file, low_memory=False)
        is_test = (records["set"] == "stsb") & (records["split"] != "train")
        records = records[is_test & records["weights"].isin(NOT_AFTER)]
        if not (records["kind"] == "similarity").any():
            continue
        name = file.parent.name.rpartition("-")[0]
        splits = {str(text).removeprefix("stsb ") for text in records["fitted_on"].dropna()}
        run = (ENCODERS.get(name, name), *(splits or {"test"}))
        if run in found:
            raise ValueError(f"two runs of {run[0]} are fitted on {run[1]}; move one elsewhere")
        keyed = records.assign(**dict(zip(RUN, run, strict=True))).set_index(KEYS)
        own = keyed.loc[keyed["kind"] == "similarity"]
        own = own[["spearman", "spearman_gain"]].assign(ci=1.96 * own["spearman_gain_error"])
        clouds = keyed.loc[keyed["kind"] == "cloud", ["mean_cosine", "ln_partition"]]
        found[run] = own.join(clouds).rename(columns={"spearman_gain": "gain"})
    if not found:
        raise ValueError(f"no offline_isotropy/*/records.csv with STS-B in {folder}")
    return ordered(pd.concat(found.values())[FIGURES].round(5).reset_index())


def ordered(table: pd.DataFrame) -> pd.DataFrame:
    """The rows by encoder, split and layer."""
    names = [*dict.fromkeys([*ENCODERS.values(), *table["encoder"]])]
    place = {"encoder": lambda column: column.map(names.index)}
    by = [*RUN, "layer"]
    return table.sort_values(by, key=lambda x: place.get(x.name, lambda y: y)(x), kind="stable")


def merged(table: pd.DataFrame, saved: pd.DataFrame) -> pd.DataFrame:
    """The rows, with the saved ones of other encoders and splits."""
    is_new = pd.MultiIndex.from_frame(saved[RUN]).isin(pd.MultiIndex.from_frame(table[RUN]))
    return ordered(pd.concat([saved[~is_new], table], ignore_index=True))


def number(value: float, sign: str = "") -> str:
    """One decimal, with the field's minus."""
    return f"{value:{sign}.1f}".replace("-", "−")


def rendered(table: pd.DataFrame) -> str:
    """A table for each encoder; a dash is what was not measured."""
    lines = []
    for encoder, rows in table.groupby("encoder", sort=False):
        splits = rows["fitted_on"].unique()
        keyed = rows.set_index(["fitted_on", "setting", "layer"])
        names = [name for name in TRANSFORMS if (rows["setting"] == name).any()]
        gains = [f"gain of `{GAIN}`, fitted on {split}" for split in splits]
        heads = ["layer", "mean cosine", *(f"`{name}`" for name in names), *gains]
        lines += [f"**{encoder}**", "", f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
        for layer in sorted(rows["layer"].unique())[:: STEPS.get(encoder, 1)]:
            of = keyed.xs(layer, level="layer").reindex(list(product(splits, TRANSFORMS)))
            first = of.loc[splits[0]]
            texts = [f"{first.loc['none', 'mean_cosine']:.2f}"]
            texts += [number(first.loc[name, "spearman"]) for name in names]
            for split in splits:
                one = of.loc[(split, GAIN)]
                texts.append(f"{number(one['gain'], '+')} ± {number(one['ci'])}")
            cells = ("–" if "nan" in text else text for text in texts)
            lines.append(f"| {layer} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines[:-1])


def on_page(table: pd.DataFrame) -> str:
    """The tables of the page, which has one of an encoder by hand."""
    return rendered(table[table["encoder"] != BY_HAND])


def draw(table: pd.DataFrame, file: Path) -> None:
    """A panel for each encoder: Spearman over layers, without and with transforms."""
    looks = {"none": GREY, "mean": COLOURS[2], "mean_pca": COLOURS[0], GAIN: COLOURS[1]}
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
    saved = pd.read_csv(TABLE)
    table = read(Path(*folders)) if folders else saved
    if "--save" not in sys.argv:
        print(rendered(table))
        return
    table = merged(table, saved)
    table.to_csv(TABLE, index=False)
    page = PAGE.read_text("utf-8")
    start = page.index(START) + len(START)
    end = page.index(END, start)
    PAGE.write_text(page[:start] + on_page(table) + page[end:], "utf-8")
    draw(table, PICTURE)


if __name__ == "__main__":
    main()
