"""Writes clouds.json: a stored cloud and its three metrics, by NumPy and SciPy alone.

Run from the repository root: python tests/golden/clouds_regenerate.py
"""

import json
from pathlib import Path

import numpy as np
from scipy.special import logsumexp


def main() -> None:
    generator = np.random.default_rng(20_240_601)
    scale = np.array([3.0, 2.0, 1.5, 1.0, 1.0, 0.7, 0.4, 0.2])
    mix = np.linalg.qr(generator.normal(size=(8, 8)))[0]
    x = np.round((generator.normal(size=(64, 8)) * scale) @ mix + 0.8, 6)

    value = np.linalg.eigvalsh(np.cov(x, rowvar=False))
    isoscore = (value.sum() ** 2 / (value**2).sum() - 1.0) / 7.0

    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosine = unit @ unit.T
    mean_cosine = cosine[~np.eye(64, dtype=bool)].mean()

    projection = x @ np.linalg.svd(x)[2].T
    log_f = np.concatenate([logsumexp(projection, axis=0), logsumexp(-projection, axis=0)])
    record = {
        "script": "tests/golden/clouds_regenerate.py",
        "metrics": {
            "isoscore": float(isoscore),
            "mean_cosine": float(mean_cosine),
            "partition": float(log_f.min() - log_f.max()),
        },
        "cloud": x.tolist(),
    }
    Path(__file__).with_name("clouds.json").write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
