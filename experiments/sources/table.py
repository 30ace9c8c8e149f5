"""Print the figures that stand beside the sources' claims, from the records of analyses.

    python experiments/sources/table.py runs/analysis   # reads records into figures.csv first
    python experiments/sources/table.py

A row is a claim of `claims.yaml`, a column an encoder. A cell has the figures of the first, the
middle and the last layer (or other key, `over`), or one figure where the records have none; a dash
is an analysis that was not run.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

CLAIMS = Path(__file__).with_name("claims.yaml")
RESULTS = CLAIMS.with_name("figures.csv")
ENCODERS = {  # as folders of analyses name them
    "all_minilm_l6_v2": "MiniLM",
    "all_mpnet_base_v2": "MPNet",
    "multilingual_e5_small_enpt_q4": "E5",
    "smollm2_135m_instruct_q4": "SmolLM2",
}


def found(folder: Path) -> dict[str, dict[str, pd.DataFrame]]:
    """The records by analysis and encoder; of two runs the one with more rows."""
    tables: dict[str, dict[str, pd.DataFrame]] = {}
    for file in sorted(folder.glob("*/*/records.csv")):
        records = pd.read_csv(file, low_memory=False)
        own = tables.setdefault(file.parents[1].name, {})
        encoder = file.parent.name.rpartition("-")[0]
        if len(records) > len(own.get(encoder, ())):
            own[encoder] = records
    return tables


def cell(claim: dict[str, Any], records: pd.DataFrame | None) -> str:
    """The figures of a claim; a dash without the analysis.

    Raises:
        KeyError: the records have no such column.
    """
    if records is None:
        return "–"
    for key, value in claim["where"].items():
        records = records[records[key] == value]
    values = records[records[claim["column"]].notna()]
    if values.empty:
        return "–"
    over = claim.get("over", "layer")
    if over not in values or values[over].isna().all():
        return f"{values[claim['column']].mean():.3g}"
    means = values[values[over] > 0].groupby(over)[claim["column"]].mean()
    places = dict.fromkeys([0, (len(means) - 1) // 2, len(means) - 1])
    return ", ".join(f"{means.iloc[k]:.3g}" for k in places).replace("-", "−")


def figures(claims: Sequence[dict[str, Any]], folder: Path) -> pd.DataFrame:
    """A row a claim, a column an encoder."""
    tables = found(folder)
    encoders = sorted({name for own in tables.values() for name in own})
    own = [[cell(c, tables.get(c["analysis"], {}).get(e)) for e in encoders] for c in claims]
    return pd.DataFrame([{"source": c["source"], "claim": c["claim"]} for c in claims]).join(
        pd.DataFrame(own, columns=encoders)
    )


def rendered(claims: Sequence[dict[str, Any]], figures: pd.DataFrame) -> str:
    """A table for each source."""
    lines: list[str] = []
    encoders = [name for name in figures if name not in ("source", "claim")]
    encoders.sort(key=[*ENCODERS, *encoders].index)
    headings = [ENCODERS.get(name, name) for name in encoders]
    for k, claim in enumerate(claims):
        if k == 0 or claim["source"] != claims[k - 1]["source"]:
            row = ["claim", "published", *headings, "same direction?", "analysis"]
            lines += ["", f"## {claim['source']}", "", f"| {' | '.join(row)} |"]
            lines.append("| --- " * len(row) + "|")
        own = [str(figures[name][k]) for name in encoders]
        published, same = str(claim.get("published", "–")), claim.get("same", "–")
        row = [claim["claim"], published, *own, same, f"`{claim['analysis']}`"]
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines[1:])


def main() -> None:
    """Read records of analyses, if a folder of them is given, and print the tables."""
    claims = yaml.safe_load(CLAIMS.read_text(encoding="utf-8"))
    if sys.argv[1:]:
        figures(claims, Path(sys.argv[1])).to_csv(RESULTS, index=False)
    print(rendered(claims, pd.read_csv(RESULTS, dtype=str)))


if __name__ == "__main__":
    main()
