"""Prints confidence, temperature and log losses of WiC by method.

`python confidence.py RUNS`, with RUNS the `output_dir` of the study, which has no runs of others.
Differences to `none` are paired by seed, with their 95 % CI over seeds (Student's t); of the
temperature-scaled log loss on test also over seeds and examples (`row_interval`).
"""

import sys
from pathlib import Path

import numpy as np
import torch

from isotrain.results.row_bootstrap import row_interval
from isotrain.results.statistics import compare_paired
from isotrain.runs.files import read_result
from isotrain.runs.predictions import Predictions, read_predictions
from isotrain.training.temperature import best_factor

METHODS = ("none", "cluster_pca", "clip", "istar")


def losses(of: Predictions, factor: float = 1.0) -> np.ndarray:
    """Log loss of each example, of logits times a factor."""
    logits, label = torch.tensor(of.logits), torch.tensor(of.label).long()
    return torch.nn.functional.cross_entropy(
        logits.double() * factor, label, reduction="none"
    ).numpy()


def best(of: Predictions) -> float:
    """One over the temperature that is best for these predictions."""
    return best_factor(torch.tensor(of.logits), torch.tensor(of.label).long(), 0.0, 100.0)


def values(folder: Path) -> tuple[dict[str, float], np.ndarray]:
    """The values of a run, and the scaled log loss of each test example."""
    dev, test = read_predictions(folder, "dev"), read_predictions(folder, "test")
    assert dev is not None
    assert test is not None
    scaled = losses(test, best(dev))
    right, share = test.prediction == test.label, np.mean(dev.prediction == dev.label)
    found = {
        "accuracy": right.mean(),
        "confidence": torch.tensor(test.logits).double().softmax(1).amax(1).mean().item(),
        "temperature, fitted on dev": 1 / best(dev),
        "log loss": losses(test).mean(),
        "scaled log loss": scaled.mean(),
        "scaled log loss of dev, temperature of test": losses(dev, best(test)).mean(),
        "log loss, dev accuracy as probability": -np.log(np.where(right, share, 1 - share)).mean(),
    }
    return found, scaled


def find_runs(folder: Path) -> dict[str, dict[int, Path]]:
    """The run of each method and seed; an error if a method has none, or a seed several."""
    runs: dict[str, dict[int, Path]] = {name: {} for name in METHODS}
    for file in sorted(folder.glob("wic/*/result.json")):
        result = read_result(file.parent)
        name, seed = result["method"], result["seed"]
        if seed in runs.get(name, {}):
            both = f"{runs[name][seed].name} and {file.parent.name}"
            sys.exit(
                f"a method has one run of a seed; {folder}/wic has two of {name}, seed {seed}: "
                f"{both}; run the study with an output_dir of its own and give that"
            )
        if name in runs:
            runs[name][seed] = file.parent
    if missing := [name for name in METHODS if not runs[name]]:
        sys.exit(
            f"every method has runs; {folder}/wic has none of {', '.join(missing)}; "
            "give the output_dir of the study, not its folder in studies/"
        )
    return runs


def main(folder: Path) -> None:
    """A block of lines for each method."""
    runs = find_runs(folder)
    seeds = sorted(set.intersection(*map(set, runs.values())))
    found = {name: [values(runs[name][seed]) for seed in seeds] for name in METHODS}
    for name in METHODS:
        print(f"{name}, n = {len(seeds)}")
        for key in found[name][0][0]:
            own, base = ([run[key] for run, _ in found[one]] for one in (name, "none"))
            line = f"  {key}: {np.mean(own):.4f}"
            if name != "none":
                d = compare_paired(own, base).difference
                line += f", less none {d.mean:+.4f} [{d.low:+.4f}, {d.high:+.4f}]"
            print(line)
        if name != "none":
            both = row_interval(
                [scaled for _, scaled in found[name]],
                [scaled for _, scaled in found["none"]],
                np.arange(len(found["none"][0][1])),
                lambda _, losses, counts: counts @ losses.T / counts.sum(1, keepdims=True),
            )
            print(
                f"  scaled log loss, over seeds and examples: [{both.low:+.4f}, {both.high:+.4f}]"
            )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
