"""Scores the confirmed runs on STS12 to STS16 and SICK-R, less the sentences of STS-B.

`python docs/where_isotropy_pays/transfer.py RUNS DATA OUT`: RUNS is the output_dir of a finished
where_isotropy_pays_confirmed, started with checkpoint.final=true; DATA has stsb/, sts12/ ... and
sickr/; OUT gets transfer.csv. STS-B was drawn from STS12 to STS17, so that half of STS12 to STS16
was trained on: pairs with a sentence of its train or dev are left out.

Expected, written down before the first run: over the six sets clip is 1 to 3 points above none with
300 pairs and 0.5 to 2 with all, and above it on at least five of the six; mean lies between.
"""

import csv
import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

from isotrain.runs.files import read_result

SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "sickr")
SIZES = (300, None)  # training pairs; None = all
N_DEV = 50  # dev is scored too, and not used


def sentences(line: str) -> set[str]:
    """Both of a pair."""
    pair = json.loads(line)
    return {pair["sentence1"].strip(), pair["sentence2"].strip()}


def lines(file: Path) -> list[str]:
    """Of a .jsonl file."""
    return file.read_text("utf-8").splitlines(keepends=True)


def prepare(data: Path, out: Path) -> None:
    """A copy of STS-B for each set, whose test split are the pairs of the set that STS-B lacks."""
    known = [x for name in ("train", "dev") for x in lines(data / f"stsb/{name}.jsonl")]
    seen = set().union(*map(sentences, known))
    for name in SETS:
        folder = out / name / "stsb"
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(data / "stsb/train.jsonl", folder)
        (folder / "dev.jsonl").write_text("".join(lines(data / "stsb/dev.jsonl")[:N_DEV]), "utf-8")
        unseen = [x for x in lines(data / f"{name}/test.jsonl") if not sentences(x) & seen]
        (folder / "test.jsonl").write_text("".join(unseen), "utf-8")


def score(folder: Path, name: str, out: Path) -> dict[str, object]:
    """Of one run on one set."""
    command = ["isotrain", "evaluate", str(folder), "--json", f"source.root={out / name}"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found, config = json.loads(told), read_result(folder)["config"]
    return {
        "method": folder.name.rpartition("-")[0],
        "n_train": config["data"]["n_train"] or "all",
        "steps": config["trainer"]["max_steps"],
        "seed": config["seed"],
        "set": name,
        "n": found["n_rows"]["test"],
        "spearman": found["scores"]["test/spearman"],
    }


def main(runs: Path, data: Path, out: Path) -> None:
    """Two evaluations at a time."""
    prepare(data, out)
    folders = []
    for file in sorted(runs.glob("stsb/*/result.json")):
        config = read_result(file.parent)["config"]
        if config["data"]["n_train"] in SIZES and config["trainer"]["max_steps"] == 200:
            folders.append(file.parent)
    with ThreadPoolExecutor(2) as pool:
        rows = list(pool.map(lambda each: score(*each, out), product(folders, SETS)))
    with (out / "transfer.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        table.writerows(rows)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
