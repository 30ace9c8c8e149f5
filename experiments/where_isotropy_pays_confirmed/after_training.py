"""Scores the encoders that `none` has trained behind a layer that is fitted after training.

`python after_training.py RUNS OUT`: RUNS is the output_dir of the finished study, started with
checkpoint.final=true. Each run is evaluated with each layer, fitted on the pairs that it was
trained on; OUT gets after_training.csv, which has the scores of the runs themselves as `none`.

Expected, written down before the first run: no layer changes the mean on test by more than 1 point
at any size, and none has half of what the same layer gains in place while training.
"""

import argparse
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd

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
    more = ["trainer.max_epochs=0", f"init_from={folder}", f"output_dir={out}"]
    return ["isotrain", "train", *kept, *keys, *more]


def scores(folder: Path, trained: Path) -> dict[str, object]:
    """The scores of an evaluation, with the task of the run that trained its encoder."""
    found, config = read_result(folder), read_result(trained)["config"]
    is_short = config["trainer"]["max_steps"] == 60
    return {
        "task": f"pairs_{config['data']['n_train'] or 'all'}{'_60_steps' if is_short else ''}",
        "method": found["method"],
        "seed": found["seed"],
        **{name: found["scores"][name] for name in ("val/spearman", "test/spearman")},
    }


def main(runs: Path, out: Path) -> None:
    """Two evaluations at a time."""
    folders = sorted(file.parent for file in runs.glob("stsb/none-*/result.json"))
    commands = [evaluation(folder, keys, out) for folder in folders for keys in LAYERS.values()]
    with ThreadPoolExecutor(2) as pool:
        for done in pool.map(subprocess.run, commands):
            done.check_returncode()
    evaluated = [file.parent for file in out.glob("stsb/*/result.json")]
    rows = [scores(folder, folder) for folder in folders]
    rows += [scores(f, Path(read_result(f)["init_from"]["path"])) for f in evaluated]
    table = pd.DataFrame(rows).sort_values(["task", "method", "seed"])
    table.to_csv(out / "after_training.csv", index=False, float_format="%.6g", lineterminator="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path)
    parser.add_argument("out", type=Path)
    main(**vars(parser.parse_args()))
