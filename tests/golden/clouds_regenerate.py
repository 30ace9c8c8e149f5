"""Writes clouds.json: a stored cloud and its metrics, by NumPy and SciPy alone.

Run from the repository root: python tests/golden/clouds_regenerate.py
"""

import json
import math
from pathlib import Path

import numpy as np
from scipy.special import logsumexp
from scipy.stats import entropy, kurtosis

SHRINKAGE = 0.3  # of isoscore_star, towards the covariance diag(1 … 8)


def stored_cloud() -> np.ndarray:
    generator = np.random.default_rng(20_240_601)
    scale = np.array([3.0, 2.0, 1.5, 1.0, 1.0, 0.7, 0.4, 0.2])
    mix = np.linalg.qr(generator.normal(size=(8, 8)))[0]
    return np.round((generator.normal(size=(64, 8)) * scale) @ mix + 0.8, 6)


def score(value: np.ndarray) -> float:
    return (value.sum() ** 2 / (value**2).sum() - 1.0) / 7.0


def over_four_distinct_rows(x: np.ndarray) -> float:
    """The U-statistics of tr(Σ²) and (tr Σ)², every 4-tuple of distinct rows."""
    n = len(x)
    product = x @ x.T
    length = ((x[:, None] - x[None]) ** 2).sum(axis=2)
    distinct = ~np.eye(n, dtype=bool)
    above = below = 0.0
    for i in range(n):
        # axes j, k, l
        inner = (product[i][None, :, None] - product[i][None, None, :]) - (
            product[:, :, None] - product[:, None, :]
        )
        valid = distinct[:, :, None] & distinct[:, None, :] & distinct[None]
        valid[i] = valid[:, i] = valid[:, :, i] = False
        below += (inner[valid] ** 2).sum() / 4
        above += (
            np.broadcast_to(length[i][:, None, None] * length[None], valid.shape)[valid].sum() / 4
        )
    return (above / below - 1.0) / 7.0


def outliers(x: np.ndarray, unit: np.ndarray) -> dict[str, float]:
    n = len(x)
    contribution = np.zeros(8)
    for a in range(n):
        for b in range(n):
            if a != b:
                contribution += unit[a] * unit[b] / (n * (n - 1))
    order = np.argsort(-contribution)[:3]
    square = (x**2).mean(axis=0)
    variance = x.var(axis=0)
    found = {
        "largest_mean": np.abs(x.mean(axis=0)).max() / math.sqrt((x**2).mean()),
        "kurtosis": (square**2).mean() / square.mean() ** 2,
        "largest_kurtosis": kurtosis(x, axis=0, fisher=False, bias=True).max(),
        "n_high_variance": (variance > 5.0 * variance.mean()).sum(),
    }
    for k, index in enumerate(order, start=1):
        found[f"contribution_{k}"] = contribution[index]
        found[f"share_{k}"] = contribution[index] / contribution.sum()
        found[f"index_{k}"] = index
    return {name: float(value) for name, value in found.items()}


def main() -> None:
    x = stored_cloud()
    covariance = np.cov(x, rowvar=False)
    value = np.sort(np.linalg.eigvalsh(covariance))[::-1]
    centred = np.linalg.svd(x - x.mean(axis=0), compute_uv=False)
    as_given = np.linalg.svd(x, compute_uv=False)
    shrunk = (1 - SHRINKAGE) * covariance + SHRINKAGE * np.diag(np.arange(1.0, 9.0))

    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosine = unit @ unit.T

    p = as_given / as_given.sum() + 1e-7
    number = np.arange(4, 9)  # of 8 eigenvalues the window is 4 to 8
    projection = x @ np.linalg.svd(x)[2].T
    log_f = np.concatenate([logsumexp(projection, axis=0), logsumexp(-projection, axis=0)])

    metrics = {
        "isoscore": score(value),
        "isoscore_corrected": over_four_distinct_rows(x),
        "isoscore_star": score(np.linalg.eigvalsh(shrunk)),
        "mean_cosine": cosine[~np.eye(64, dtype=bool)].mean(),
        "participation_ratio": value.sum() ** 2 / (value**2).sum(),
        "effective_rank": math.exp(entropy(centred)),
        "rankme": math.exp(-(p * np.log(p)).sum()),
        "spectral_entropy": entropy(centred**2) / math.log(8),
        "stable_rank": (centred**2).sum() / centred[0] ** 2,
        "explained_variance": {str(k): (value[:k].sum() / value.sum()) for k in (1, 2, 3)},
        "condition": value[0] / value[7],  # number ⌈0.9·8⌉ = 8
        "alpha_req": -np.polyfit(np.log(number), np.log(value[number - 1]), 1)[0],
        "outlier_dims": outliers(x, unit),
        "partition": log_f.min() - log_f.max(),
    }
    record = {
        "script": "tests/golden/clouds_regenerate.py",
        "shrinkage": SHRINKAGE,
        "metrics": {k: v if isinstance(v, dict) else float(v) for k, v in metrics.items()},
        "cloud": x.tolist(),
    }
    Path(__file__).with_name("clouds.json").write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()
