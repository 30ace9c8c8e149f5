"""Write `context.csv`: the contextuality of each layer before and after each run that was analysed.

    python experiments/snli_follow_ups/context.py RUNS

RUNS is the folder of runs; it has `snli/` and `analysis/contextuality/` below it. Columns are as in
`results.csv`: a value after training, and with `before/` the same of the encoder at step 0.
"""

import json
import sys
from pathlib import Path

import pandas as pd

MEASURES = (
    *("anisotropy", "self_similarity_adjusted", "intra_sentence_similarity_adjusted"),
    "max_explainable_variance_adjusted",
)


def rows(runs: Path) -> list[dict[str, str | int | float]]:
    """A row a run."""
    found = []
    for file in sorted(runs.glob("analysis/contextuality/*/records.csv")):
        given = json.loads((file.parent / "result.json").read_text("utf-8"))["config"]["from_run"]
        if given is None:  # an encoder that was not trained here
            continue
        run = json.loads((runs / "snli" / Path(given).name / "result.json").read_text("utf-8"))
        row = {"task": "snli", "method": run["method"], "seed": run["seed"]}
        records = pd.read_csv(file).query("kind == 'layer'")
        for record in records.sort_values(["weights", "layer"]).to_dict("records"):
            before = "before/" if record["weights"] == "before" else ""
            at = f"layer_{int(record['layer']):02}"
            row |= {f"{before}{name}/{at}": f"{record[name]:.6g}" for name in MEASURES}
            row["n_tokens"] = int(record["n_rows"])
        found.append(row)
    return found


if __name__ == "__main__":
    table = pd.DataFrame(rows(Path(sys.argv[1]))).sort_values(["method", "seed"])
    if twice := table[table.duplicated(["method", "seed"])]["method"].tolist():
        raise SystemExit(
            f"two analyses of one run, or runs of one seed: {', '.join(twice)}; move one"
        )
    table.to_csv(Path(__file__).with_name("context.csv"), index=False)
    print(f"context.csv: {len(table)} runs")
