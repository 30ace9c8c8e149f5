"""A study, and what a run of it leaves that was not trained."""

import json
from pathlib import Path

import numpy as np

from isotrain.config.compose import method_of, recorded, run_folder
from isotrain.runs.files import write_result
from isotrain.runs.predictions import Predictions, write_predictions
from isotrain.training.revision import revision

STUDY = """
overrides: [encoder=tiny, source=demo]
tasks: {rte: [task=rte]}
methods: {none: [isotropy=none], mean: [isotropy=mean]}
baseline: none
seeds: [0, 1]
"""
N_ROWS = {"dev": 1000, "test": 500}
PLACES = ("layer_01/tokens", "layer_02/tokens", "layer_02/cls", "pooled/before", "pooled/after")


def play(cfg, **changed) -> float:
    """Leave a finished run of a configuration; its accuracy. Parts of the record may be replaced.

    Accuracy rises with the seed, and by 10 points with `mean`, a little more at higher seeds.
    """
    folder, seed, method = run_folder(cfg, revision(cfg)), int(cfg.seed), method_of(cfg)
    accuracy = 0.5 + 0.01 * seed**2 + (method == "mean") * (0.1 + 0.002 * seed)
    isotropy = {
        f"isotropy/{metric}/{place}": value * (1 + seed / 10)
        for place in PLACES
        for metric, value in (("isoscore", 0.2), ("partition", -3.0))
    }
    counts = {f"isotropy/n_rows/{place}": 128.0 for place in PLACES}
    (folder / "predictions").mkdir(parents=True, exist_ok=True)
    for split, n in N_ROWS.items():  # the first ones are right, the others wrong
        index, n_right = np.arange(n), round(n * (accuracy - 0.1 * (split == "test")))
        wrong = Predictions(index, index % 2.0, (index + (index >= n_right)) % 2.0)
        write_predictions(folder, split, wrong)
    with (folder / "metrics.jsonl").open("w") as lines:
        for step in range(3):
            value = 0.5 + (accuracy - 0.5) * step / 2
            lines.write(json.dumps({"step": 10 * step, "val/accuracy": value, **isotropy}) + "\n")
    scores = {"val/accuracy": accuracy, "val/loss": 0.7, "test/accuracy": accuracy - 0.1}
    record = {
        **{"status": "finished", "monitor": "val/accuracy", "n_rows": N_ROWS},
        **{"method": method, "seed": seed, "config": recorded(cfg), "data": revision(cfg)},
        **{"environment": {"git": "0a1b2c3d4e5f", "isotrain": "0.1.0"}, "headline": ["isoscore"]},
        **{"finished_at": "2031-02-03T04:05:06+00:00", "scores": {**scores, **isotropy, **counts}},
    }
    leave(folder, **{**record, **changed})
    return accuracy


def leave(folder: Path, **record) -> None:
    """A run's folder with this record."""
    folder.mkdir(parents=True, exist_ok=True)
    write_result(folder, record)
