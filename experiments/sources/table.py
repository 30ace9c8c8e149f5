"""Print the figures that stand beside the sources' claims, from the records of analyses.

    python experiments/sources/table.py                        # of figures.csv
    python experiments/sources/table.py runs/analysis          # of records of one's own, compared
    python experiments/sources/table.py runs/analysis --save   # ... into figures.csv and README.md

A row is a claim of `claims.yaml`, a column an encoder; after a run its encoder before it counts. A
dash is an analysis that was not run, or a value that the encoder does not have. Figures of one's
own stand without verdicts, each with the saved one if that differs. `--save` keeps the saved
figures where the folder has a dash.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

CLAIMS = Path(__file__).with_name("claims.yaml")
RESULTS = CLAIMS.with_name("figures.csv")
README = CLAIMS.with_name("README.md")
KEYS = ["source", "claim"]
VERDICT = ["same direction?"]
ENCODERS = {  # as folders of analyses name them
    "all_minilm_l6_v2": "MiniLM",
    "all_mpnet_base_v2": "MPNet",
    "multilingual_e5_small_enpt_q4": "E5",
    "smollm2_135m_instruct_q4": "SmolLM2",
}


NOT_AFTER = ("as given", "before")  # weights of an encoder


def found(folder: Path) -> dict[str, dict[str, list[pd.DataFrame]]]:
    """The records by analysis and encoder, those of each run for themselves."""
    tables: dict[str, dict[str, list[pd.DataFrame]]] = {}
    for file in sorted(folder.glob("*/*/records.csv")):
        records = pd.read_csv(file, low_memory=False)
        own = tables.setdefault(file.parents[1].name, {})
        runs = own.setdefault(file.parent.name.rpartition("-")[0], [])
        runs.append(records[records["weights"].isin(NOT_AFTER)])
    if not tables:
        raise ValueError(f"no */*/records.csv of an analysis in {folder}")
    return tables


def cell(claim: dict[str, Any], runs: Sequence[pd.DataFrame]) -> str:
    """The figures of a claim; a dash if there are none.

    Raises:
        KeyError: the records of the claim have no such column.
        ValueError: two runs have other figures of the claim.
    """
    texts = {own for records in runs if (own := cell_of(claim, records)) != "–"}
    if len(texts) > 1:
        both = " | ".join(sorted(texts))
        raise ValueError(f"{claim['claim']}: runs of one encoder have {both}; move one elsewhere")
    return texts.pop() if texts else "–"


def cell_of(claim: dict[str, Any], records: pd.DataFrame) -> str:
    """The figures in the records of one run."""
    for key, value in claim["where"].items():
        records = records[records[key] == value] if key in records else records.iloc[:0]
    if records.empty:
        return "–"
    records = records[records[claim["column"]].notna()]
    over, take, scale = claim.get("over", "layer"), claim.get("take", "mean"), claim.get("scale", 1)
    if over is None and not records.empty:
        return written(records[claim["column"]].agg(take) * scale)
    place = pd.to_numeric(records.get(over))
    records, place = records[place > 0], place[place > 0]
    if records.empty:
        return "–"
    values = records.groupby(place)[claim["column"]].agg(take) * scale
    places = dict.fromkeys([0, (len(values) - 1) // 2, len(values) - 1])
    return ", ".join(written(values.iloc[k]) for k in ([-1] if "at" in claim else places))


def written(value: float) -> str:
    """A value with three digits, a whole number as it is, and no 0 before a point."""
    text = f"{value:.1f}" if 10 <= abs(value) < 100 and value % 1 else f"{value:.3g}"
    return re.sub(r"^(-?)0\.", r"\1.", text).replace("-", "−")


def figures(claims: Sequence[dict[str, Any]], folder: Path) -> pd.DataFrame:
    """A row a claim, a column an encoder."""
    tables = found(folder)
    encoders = sorted({name for own in tables.values() for name in own})
    own = [[cell(c, tables.get(c["analysis"], {}).get(e, [])) for e in encoders] for c in claims]
    return pd.DataFrame([{"source": c["source"], "claim": c["claim"]} for c in claims]).join(
        pd.DataFrame(own, columns=encoders)
    )


def merged(figures: pd.DataFrame, saved: pd.DataFrame) -> pd.DataFrame:
    """The figures, those that were saved in place of dashes."""
    own = figures.set_index(KEYS).replace("–", pd.NA)
    old = saved.set_index(KEYS)
    both = own.combine_first(old).loc[own.index, [*dict.fromkeys([*old, *own])]]
    return both.fillna("–").reset_index()


def compared(figures: pd.DataFrame, saved: pd.DataFrame) -> pd.DataFrame:
    """The rows with a figure; a cell that differs from the saved one has that in brackets."""
    keys = pd.MultiIndex.from_frame(figures[KEYS])
    old = saved.set_index(KEYS).reindex(keys, fill_value="–")
    for name in old.columns.intersection(figures.columns):
        has_other = (figures[name] != "–") & (old[name].values != figures[name])
        figures.loc[has_other, name] += " (saved: " + old[name].values[has_other] + ")"
    return figures[(figures.drop(columns=KEYS) != "–").any(axis=1)]


def rendered(claims: Sequence[dict[str, Any]], figures: pd.DataFrame, verdicts: bool = True) -> str:
    """A table for each source; verdicts are of the saved figures.

    Raises:
        ValueError: the figures are of other claims.
    """
    if figures[KEYS].to_dict("records") != [{k: c[k] for k in KEYS} for c in claims]:
        raise ValueError(f"{RESULTS} is of other claims; give the folder of the analyses again")
    lines: list[str] = []
    encoders = [name for name in figures if name not in KEYS]
    encoders.sort(key=[*ENCODERS, *encoders].index)
    headings = [ENCODERS.get(name, name) for name in encoders]
    for k, claim in enumerate(claims):
        if k == 0 or claim["source"] != claims[k - 1]["source"]:
            row = ["claim", "published", *headings, *VERDICT[:verdicts], "analysis"]
            lines += ["", f"## {claim['source']}", "", f"| {' | '.join(row)} |"]
            lines.append("| --- " * len(row) + "|")
        own = [str(figures[name][k]) for name in encoders]
        published, same = str(claim.get("published", "–")), [claim.get("same", "–")]
        row = [claim["claim"], published, *own, *same[:verdicts], f"`{claim['analysis']}`"]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines[1:])


def save(claims: Sequence[dict[str, Any]], figures: pd.DataFrame) -> None:
    """Write the figures into `figures.csv`, and their tables into `README.md`."""
    figures.to_csv(RESULTS, index=False)
    page = README.read_text(encoding="utf-8")
    start = page.index(f"\n## {claims[0]['source']}\n") + 1
    end = page.index("\n## What it takes\n")
    README.write_text(page[:start] + rendered(claims, figures) + "\n" + page[end:], "utf-8")


def main() -> None:
    """Print the tables of a folder of analyses, or of the figures that were saved."""
    claims = yaml.safe_load(CLAIMS.read_text(encoding="utf-8"))
    folders = [name for name in sys.argv[1:] if name != "--save"]
    saved = pd.read_csv(RESULTS, dtype=str)
    if not folders:
        print(rendered(claims, saved))
    elif "--save" in sys.argv:
        save(claims, merged(figures(claims, Path(*folders)), saved))
    else:
        own = compared(figures(claims, Path(*folders)), saved)
        print(rendered([claims[k] for k in own.index], own.reset_index(drop=True), verdicts=False))


if __name__ == "__main__":
    main()
