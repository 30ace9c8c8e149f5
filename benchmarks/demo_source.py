"""How hard the demo source is: majority, bag of words, and a trained MiniLM, over seeds.

The seed sets both the data and the training. The bag of words is the better of two: counts of
the pair, and counts of each sentence with their difference and product; scikit-learn chooses the
regularisation by cross-validation on train. Scores on dev (N = 500), times 100.

    .venv/bin/python benchmarks/demo_source.py [--seeds 0 1 2] [--output_dir runs]
"""

from __future__ import annotations

import argparse
from collections import Counter
from statistics import mean

import numpy as np
from scipy.sparse import csr_matrix, hstack
from scipy.stats import spearmanr
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegressionCV, RidgeCV

from isotrain.config.compose import compose_run
from isotrain.run import run
from isotrain.tasks.data.demo_generator import DemoSource

EPOCHS = {"rte": 2, "wic": 1, "stsb": 1}


def labels(rows: list[dict]) -> np.ndarray:
    return np.array([float(row["score"] if "score" in row else row["label"]) for row in rows])


def features(train: list[dict], dev: list[dict], rich: bool) -> tuple[csr_matrix, csr_matrix]:
    count = CountVectorizer().fit(row[s] for row in train for s in ("sentence1", "sentence2"))
    found = []
    for rows in (train, dev):
        a, b = (count.transform(row[s] for row in rows) for s in ("sentence1", "sentence2"))
        found.append(hstack([a, b, abs(a - b), a.multiply(b)]).tocsr() if rich else (a + b).tocsr())
    return found[0], found[1]


def bag_of_words(name: str, seed: int) -> float:
    train, dev = (DemoSource(seed).rows(name, split) for split in ("train", "dev"))
    scores = []
    for rich in (False, True):
        x, x_dev = features(train, dev, rich)
        if name == "stsb":
            model = RidgeCV(alphas=np.logspace(-1, 4, 11)).fit(x.toarray(), labels(train))
            scores.append(spearmanr(model.predict(x_dev.toarray()), labels(dev))[0])
        else:
            model = LogisticRegressionCV(
                Cs=np.logspace(-4, 1, 6),
                cv=3,
                max_iter=2000,
                l1_ratios=(0,),
                scoring="accuracy",
                use_legacy_attributes=False,
            ).fit(x, labels(train))
            scores.append(model.score(x_dev, labels(dev)))
    return 100 * float(max(scores))


def majority(name: str, seed: int) -> float:
    if name == "stsb":
        return 0.0  # a constant has no rank correlation
    counts = Counter(labels(DemoSource(seed).rows(name, "dev")))
    return 100 * max(counts.values()) / sum(counts.values())


def trained(name: str, seed: int, output_dir: str) -> float:
    overrides = [f"task={name}", "encoder=minilm", "source=demo", f"source.seed={seed}"]
    overrides += [f"seed={seed}", "optimizer.lr=1e-4", f"trainer.max_epochs={EPOCHS[name]}"]
    cfg = compose_run([*overrides, "metric=[]", f"output_dir={output_dir}"])
    scores = run(cfg, "none")
    return 100 * scores["val/spearman" if name == "stsb" else "val/accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--output_dir", default="runs")
    arguments = parser.parse_args()
    lines = []
    for name, epochs in EPOCHS.items():
        columns = [
            [majority(name, s) for s in arguments.seeds],
            [bag_of_words(name, s) for s in arguments.seeds],
            [trained(name, s, arguments.output_dir) for s in arguments.seeds],
        ]
        cells = [f"{mean(c):.1f} ({', '.join(f'{v:.1f}' for v in c)})" for c in columns]
        lines.append(f"| {name}, {epochs} epochs | " + " | ".join(cells) + " |")
    print(f"demo source, dev N = 500, seeds {arguments.seeds}: mean (each seed)")
    print("| task | majority | bag of words | MiniLM, trained |\n| --- | --- | --- | --- |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
