"""Print the figures that stand beside the sources' claims, from the records of analyses.

    python experiments/sources/table.py runs/analysis

A row is a claim of `claims.yaml`, a column an encoder. A cell has the figures of the first, the
middle and the last layer (or other key, `over`), or one figure where the records have none; a dash
is an analysis that was not run.
"""

import sys
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

CLAIMS = Path(__file__).with_name("claims.yaml")


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


def main() -> None:
    """Print a table for each source."""
    tables = found(Path(sys.argv[1]))
    encoders = sorted({name for own in tables.values() for name in own})
    source = None
    for claim in yaml.safe_load(CLAIMS.read_text(encoding="utf-8")):
        if claim["source"] != source:
            source = claim["source"]
            print(f"\n## {source}\n\n| claim | published | {' | '.join(encoders)} | analysis |")
            print("| --- " * (len(encoders) + 3) + "|")
        own = tables.get(claim["analysis"], {})
        cells = [cell(claim, own.get(name)) for name in encoders]
        published = claim.get("published", "no figure could be read")
        print(f"| {claim['claim']} | {published} | {' | '.join(cells)} | `{claim['analysis']}` |")


if __name__ == "__main__":
    main()
