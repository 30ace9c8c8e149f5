"""scikit-learn probes on frozen features, selected on held-out examples; rank correlation.

N examples, F features, C classes.
"""

import math
from collections.abc import Sequence
from copy import deepcopy
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from isotrain.analysis.show import Z
from isotrain.console import install
from isotrain.geometry.groups import hashed_order
from isotrain.model.heads import pair_features
from isotrain.results.row_bootstrap import spearman as spearman_of

Floats = NDArray[np.floating[Any]]
MOST_STEPS = 1000  # of L-BFGS
SETTLED = 1e-5  # largest entry of the gradient
ROUNDING = 1e-12  # a correlation nearer to ±1 is ±1
RISES = 3  # consecutive increases of held-out loss, after which no smaller penalty is tried


class FittedProbe(NamedTuple):
    """A fitted scikit-learn estimator, and its selection."""

    probe: Any
    penalty: float
    held_out_loss: float
    n_held_out: int


def not_installed() -> list[str]:
    """Why no probe can be fitted, and the fix; empty if scikit-learn is installed."""
    message = "this analysis fits its heads by scikit-learn, which is not installed: "
    return [] if find_spec("sklearn") else [message + install("analysis")]


def features(x_ND: Tensor, index_NP: Tensor) -> Tensor:
    """Probe features of each example: its embeddings, or (u, v, |u − v|, u·v) of two.

    >>> import torch
    >>> features(torch.tensor([[1.0], [3.0]]), torch.tensor([[0, 1]])).tolist()
    [[1.0, 3.0, 2.0, 3.0]]
    """
    x_NPD = x_ND[index_NP]
    return pair_features(*x_NPD.unbind(1)) if x_NPD.shape[1] == 2 else x_NPD.flatten(1)


def linear_probe(n_classes: int, penalty: float, n: int) -> Any:
    """Standardised features and a linear map, unfitted; λ = `penalty`, for n examples.

    Multinomial logistic regression, which minimises mean log loss + λ/2·‖W‖² (a column per class),
    or, without classes, ridge regression: mean squared error/2 + λ/2·‖w‖².
    """
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if not n_classes:
        return make_pipeline(StandardScaler(), Ridge(alpha=penalty * n))
    # Of two classes scikit-learn has one column w = w₁ − w₀, and ‖W‖² is ‖w‖²/2.
    inverse_strength = (2 if n_classes == 2 else 1) / (penalty * n)
    options = {"max_iter": MOST_STEPS, "tol": SETTLED, "warm_start": True}
    return make_pipeline(StandardScaler(), LogisticRegression(C=inverse_strength, **options))


def choose_penalty(
    x_NF: Floats,
    label_N: np.ndarray,
    penalties: Sequence[float],
    held_out: float,
    seed: int,
    n_classes: int = 0,
) -> FittedProbe:
    """Select the penalty by held-out loss, and fit the probe with it on all examples.

    The share `held_out` of the examples, drawn by a hash of position and seed, is left out of the
    selection fits. Features are standardised on the rest.

    >>> x = np.arange(20.0)[:, None]
    >>> found = choose_penalty(x, x[:, 0] > 9, [1.0, 0.01], held_out=0.2, seed=0, n_classes=2)
    >>> found.penalty, found.probe.predict([[3.0], [15.0]]).tolist()
    (0.01, [False, True])
    """
    n_out = round(held_out * len(x_NF))
    if min(n_out, len(x_NF) - n_out) < 2:
        raise ValueError(
            f"a penalty is chosen on rows held out of {len(x_NF)}; give more training rows"
        )
    out_N, in_N = np.split(hashed_order(len(x_NF), seed).numpy(), [n_out])
    parts = x_NF[in_N], label_N[in_N], x_NF[out_N], label_N[out_N]
    best = best_penalty(*parts, penalties, n_classes)
    probe = linear_probe(n_classes, best.penalty, len(x_NF))
    return best._replace(probe=_fitted(probe, x_NF, label_N, n_classes))


def best_penalty(
    x_nF: Floats,
    label_n: np.ndarray,
    held_out_mF: Floats,
    held_out_label_m: np.ndarray,
    penalties: Sequence[float],
    n_classes: int = 0,
) -> FittedProbe:
    """The probe of n examples at the penalty with the least loss on m others.

    Penalties are tried in descending order, each fit warm-started at the last. The search stops
    only after three consecutive increases of the loss, because the path may have bumps.
    """
    probe = linear_probe(n_classes, max(penalties), len(x_nF))
    candidates: list[FittedProbe] = []
    for penalty in sorted(penalties, reverse=True):
        params = linear_probe(n_classes, penalty, len(x_nF)).steps[-1][1].get_params()
        probe.steps[-1][1].set_params(**params)
        model = _fitted(probe, x_nF, label_n, n_classes)
        loss = mean_loss(model, held_out_mF, held_out_label_m, n_classes)
        candidates.append(FittedProbe(deepcopy(model), penalty, loss, len(held_out_mF)))
        losses = [candidate.held_out_loss for candidate in candidates[-RISES - 1 :]]
        if len(losses) > RISES and all(a < b for a, b in pairwise(losses)):
            break
    return min(candidates, key=lambda candidate: candidate.held_out_loss)


def _fitted(probe: Any, x_NF: Floats, label_N: np.ndarray, n_classes: int) -> Any:
    """The fitted probe; a constant predictor if there is only one class."""
    from sklearn.dummy import DummyClassifier
    from threadpoolctl import threadpool_limits

    if n_classes and len(np.unique(label_N)) == 1:
        return DummyClassifier().fit(x_NF, label_N)
    with threadpool_limits(torch.get_num_threads()):  # else BLAS takes every core
        return probe.fit(x_NF, label_N)


def mean_loss(probe: Any, x_NF: Floats, label_N: np.ndarray, n_classes: int) -> float:
    """Mean negative log likelihood in nats; for scores, the mean squared error."""
    if not n_classes:
        return float(np.square(probe.predict(x_NF) - label_N).mean())
    p_NC = np.full((len(label_N), n_classes), np.finfo(np.float32).tiny)  # of unseen classes
    p_NC[:, probe.classes_.astype(int)] = probe.predict_proba(x_NF).clip(p_NC[0, 0])
    return float(-np.log(p_NC[np.arange(len(label_N)), label_N.astype(int)]).mean())


class Correlation(NamedTuple):
    """A correlation and its 95 % CI; None if undefined."""

    value: float | None
    low: float | None
    high: float | None


def spearman(predicted_N: ArrayLike, label_N: ArrayLike) -> Correlation:
    """Spearman's ρ of predictions and labels, in [−1, 1], with a 95 % CI.

    Pearson's correlation of the ranks, ties at their mean rank. The CI is
    tanh(artanh ρ ± 1.96·√((1 + ρ²/2)/(N − 3))). If one side is constant, there is no value; with
    N < 4, there is no CI. Bonett and Wright 2000 (CI).

    >>> found = spearman([1.0, 2.0, 3.0, 5.0, 4.0, 6.0], [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    >>> [round(v, 2) for v in found]
    [0.94, 0.38, 1.0]
    """
    label, predicted = (np.asarray(x_N, np.float64) for x_N in (label_N, predicted_N))
    n = len(label)
    value = float(spearman_of(label, predicted[None], np.ones((1, n)))[0, 0]) if n > 1 else math.nan
    if not math.isfinite(value):
        return Correlation(None, None, None)
    if n < 4 or abs(value) > 1.0 - ROUNDING:
        return Correlation(value, None, None)
    half = Z * math.sqrt((1 + value**2 / 2) / (n - 3))
    interval = (math.tanh(math.atanh(value) + side * half) for side in (-1, 1))
    return Correlation(value, *interval)
