"""Scores the encoders that `none` has trained behind a layer that is fitted after training.

`python docs/where_isotropy_pays/after_training.py RUNS OUT`: RUNS is the output_dir of a finished
where_isotropy_pays_confirmed, started with checkpoint.final=true. Each run is evaluated with each
layer, fitted on the pairs that it was trained on; OUT gets after_training.csv.

Expected, written down before the first run: no layer changes the mean on test by more than 1 point
at any size, and none has half of what the same layer gains in place while training.
"""

import csv
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from isotrain.runs.files import read_result

ONCE = ["isotropy.stats=start", "isotropy.eval_stats=refit"]  # one map, fitted before evaluating
LAYERS = {
    "mean": ["isotropy=mean", *ONCE],
    "clip": ["isotropy=clip", *ONCE],
    "zca": ["isotropy=frozen_zca"],
}
OF_TRAINING = ("isotropy", "trainer.max_", "output_dir", "checkpoint")


def evaluation(folder: Path, keys: list[str], out: Path) -> list[str]:
    """The command that scores the encoder of a run behind the layer of `keys`."""
    recorded = read_result(folder)["overrides"]
    kept = [text for text in recorded if not text.startswith(OF_TRAINING)]
    return ["isotrain", "evaluate", *kept, *keys, f"init_from={folder}", f"output_dir={out}"]


def scores(folder: Path) -> dict[str, object]:
    """Of an evaluation, beside the data and steps of the run that trained its encoder."""
    found = read_result(folder)
    trained = read_result(Path(found["init_from"]["path"]))["config"]
    return {
        "method": found["arm"],
        "n_train": trained["data"]["n_train"] or "all",
        "steps": trained["trainer"]["max_steps"],
        "seed": found["seed"],
        "dev": found["scores"]["val/spearman"],
        "test": found["scores"]["test/spearman"],
    }


def main(runs: Path, out: Path) -> None:
    """Two evaluations at a time."""
    folders = sorted(file.parent for file in runs.glob("stsb/none-*/result.json"))
    commands = [evaluation(folder, keys, out) for folder in folders for keys in LAYERS.values()]
    with ThreadPoolExecutor(2) as pool:
        for done in pool.map(subprocess.run, commands):
            done.check_returncode()
    rows = [scores(file.parent) for file in sorted(out.glob("stsb/*/result.json"))]
    with (out / "after_training.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
