"""Uses of the confirmed embeddings: transfer, sign-bit codes, short vectors, nearest neighbours.

`python uses.py RUNS DATA OUT`: RUNS is the output_dir of the finished study, with the weights of
its runs; DATA has stsb/, sts12/ ... and sickr/; OUT gets uses.csv. Embeddings are the layer output,
of which the cosine is taken, from an export to sentence-transformers (extra `export`), in float32.

- Transfer: Spearman on STS12 to STS16 and SICK-R. STS-B was drawn from STS12 to STS17, so pairs
  with a sentence of its train or dev are left out.
- Codes: Spearman on test of STS-B by the share of equal signs, of each embedding as it is and less
  the mean embedding of the dev sentences.
- Short vectors: the same by cosine of the first 32 of 384 coordinates, and of the first 32
  principal components of the dev sentences.
- Hubness: skewness of how often a sentence is among the 10 nearest of another one, by cosine, over
  the sentences of STS-B test (Radovanovic et al. 2010); 0 = none.

Expected, written down before the first run: on transfer clip is 1 to 3 points above none with 300
pairs and 0.5 to 2 with all, and above it on at least five of the six; mean lies between. Codes of
clip score 5 points or more above those of none as they are, and 1 to 3 points above centred ones.
32 components keep as much of the score of none as of clip, within 1 point. Hubness of clip is below
that of none.

The same before training (runs of that study with `trainer.max_steps=0`, seeds 20 to 22; steps 0).
Expected, written down before the first of these: on the mean of the six, clip is 3 to 9 points
above none and mean within 1 of it; training gains 3 to 10 points for none with 300 pairs, and for
clip 1 to 6.
"""

import argparse
import json
import subprocess
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from scipy.stats import skew, spearmanr
from sentence_transformers import SentenceTransformer

from isotrain.runs.files import read_result

SETS = ("sts12", "sts13", "sts14", "sts15", "sts16", "sickr")
SHORT, NEIGHBOURS = 32, 10

Pairs = tuple[list[str], list[str], list[float]]


def read(file: Path) -> Pairs:
    """First and second sentences, and scores."""
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    return (
        [row["sentence1"].strip() for row in rows],
        [row["sentence2"].strip() for row in rows],
        [row["score"] for row in rows],
    )


def pairs(data: Path) -> dict[str, Pairs]:
    """STS-B dev and test, and of each other set the pairs without a sentence of train or dev."""
    known = {name: read(data / "stsb" / f"{name}.jsonl") for name in ("train", "dev", "test")}
    seen = {text for name in ("train", "dev") for texts in known[name][:2] for text in texts}
    found = {"dev": known["dev"], "test": known["test"]}
    for name in SETS:
        rows = zip(*read(data / name / "test.jsonl"), strict=True)
        first, second, gold = zip(*(row for row in rows if not seen & {*row[:2]}), strict=True)
        found[name] = list(first), list(second), list(gold)
    return found


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Of the rows of both."""
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return (first * second).sum(1) / norms


def same_signs(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Share of coordinates of equal sign."""
    return ((first > 0) == (second > 0)).mean(1)


def hubness(points: np.ndarray) -> float:
    """Skewness of the number of others that have a point among their nearest."""
    points = points / np.linalg.norm(points, axis=1, keepdims=True)
    near = points @ points.T
    np.fill_diagonal(near, -np.inf)
    nearest = np.argpartition(-near, NEIGHBOURS, axis=1)[:, :NEIGHBOURS]
    return float(skew(np.bincount(nearest.ravel(), minlength=len(points))))


def uses(model: SentenceTransformer, data: Path) -> dict[str, float]:
    """Each measure by its column."""
    sets = pairs(data)
    texts = sorted({text for first, second, _ in sets.values() for text in first + second})
    rows = model.encode(texts, batch_size=128, show_progress_bar=False).astype(np.float64)
    at = {text: place for place, text in enumerate(texts)}

    def sides(name: str) -> tuple[np.ndarray, np.ndarray]:
        return tuple(rows[[at[text] for text in side]] for side in sets[name][:2])

    def agreement(name: str, likeness: np.ndarray) -> float:
        return float(spearmanr(likeness, sets[name][2]).statistic)

    found = {name: agreement(name, cosines(*sides(name))) for name in ("test", *SETS)}
    fitted = np.unique(np.concatenate(sides("dev")), axis=0)
    mean = fitted.mean(0)
    axes = np.linalg.svd(fitted - mean, full_matrices=False)[2][:SHORT].T
    first, second = sides("test")
    found["codes"] = agreement("test", same_signs(first, second))
    found["codes_centred"] = agreement("test", same_signs(first - mean, second - mean))
    found["coordinates"] = agreement("test", cosines(first[:, :SHORT], second[:, :SHORT]))
    found["centred"] = agreement("test", cosines(first - mean, second - mean))
    found["components"] = agreement("test", cosines((first - mean) @ axes, (second - mean) @ axes))
    own = sorted({at[text] for side in sets["test"][:2] for text in side})
    found["mean_of_six"] = float(np.mean([found[name] for name in SETS]))
    columns = {f"test/spearman/{name}": value for name, value in found.items()}
    return columns | {"hubness": hubness(rows[own])}


def measure(folder: Path, data: Path, out: Path) -> dict[str, object]:
    """The row of a run."""
    torch.set_num_threads(1)
    kept = out / folder.name
    command = ["isotrain", "export", str(folder), "--format", "sentence-transformers"]
    subprocess.run([*command, "--to", str(kept)], check=True, capture_output=True)
    config = read_result(folder)["config"]
    is_trained = config["trainer"]["max_steps"] > 0
    about = {
        "task": f"{'pairs' if is_trained else 'untrained'}_{config['data']['n_train'] or 'all'}",
        "method": folder.name.rpartition("-")[0],
        "seed": config["seed"],
    }
    model = SentenceTransformer(str(kept / "sentence-transformers"), device="cpu")
    return about | uses(model, data)


def main(runs: Path, data: Path, out: Path) -> None:
    """Two runs at a time."""
    out.mkdir(parents=True, exist_ok=True)
    folders = []
    for file in sorted(runs.glob("stsb/*/result.json")):
        config = read_result(file.parent)["config"]
        if not config["task"]["scaled_cosine"]:
            folders.append(file.parent)
    with ProcessPoolExecutor(2) as pool:
        rows = list(pool.map(partial(measure, data=data, out=out), folders))
    table = pd.DataFrame(rows).sort_values(["task", "method", "seed"])
    table.to_csv(out / "uses.csv", index=False, float_format="%.6g", lineterminator="\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    main(**vars(parser.parse_args()))
