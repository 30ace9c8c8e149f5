"""Linear separability of classes. N embeddings, D dimensions, C classes, M training."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cloud import Cloud
from isotrain.geometry.groups import class_ids, stratified_folds
from isotrain.geometry.rows import has_scatter


@checked
def linear_probe_accuracy(
    x: Tensor | Cloud,
    labels: Tensor,
    n_folds: int = 5,
    l2: Annotated[float, Field(gt=0)] = 0.1,
    seed: int = 0,
    examples: Tensor | None = None,
) -> dict[str, Tensor]:
    """Held-out accuracy of a linear probe on `x [N, D]`; in [0, 1], 1 = separable.

    - `accuracy`: of ridge regression with intercept on one-hot classes, by argmax: W = (S
      + λI)⁻¹·XcᵀY on the training folds, S = XcᵀXc, λ = `l2` · tr S/D. Its standard error is about
      √(p(1 − p)/N), and more between folds.
    - `majority`: share of the largest class, the chance level and the score without scatter.

    A few directions with most of the scatter raise λ for all others. `labels [N]` are class
    numbers. Folds are stratified and follow a hash of (seed, position) and the order of the
    classes. Embeddings of one example, such as its tokens (equal numbers in `examples [N]`), lie in
    one fold. O(n_folds·N·D·min(N, D)), exact.

    Raises:
        ValueError: a class smaller than `n_folds`.

    Linear probes: Alain and Bengio 2016. The ridge probe is ours and agrees with
    sklearn.linear_model.RidgeClassifier(alpha=λ) fold by fold.

    >>> x = torch.tensor([[0.0, 3.0], [1.0, 1.0], [0.0, 2.0], [9.0, 1.0], [8.0, 3.0], [9.0, 2.0]])
    >>> values = linear_probe_accuracy(x, torch.tensor([0, 0, 0, 1, 1, 1]), n_folds=3)
    >>> values["accuracy"].item(), values["majority"].item()
    (1.0, 0.5)
    """
    x = Cloud.of(x).rows.detach()
    n = len(x)
    class_N = class_ids(labels.to(x.device), n)
    fold_N = stratified_folds(class_N, n_folds, seed, examples)
    onehot_NC = torch.nn.functional.one_hot(class_N).to(x)
    x = x - x.mean(dim=0)
    x = x / x.abs().amax().clamp_min(torch.finfo(x.dtype).tiny)  # avoid overflow of squares
    n_right = x.new_zeros(())
    for fold in range(n_folds):
        test_N = fold_N == fold
        score_TC = _scores(x[~test_N], onehot_NC[~test_N], x[test_N], l2)
        n_right += (score_TC.argmax(dim=1) == class_N[test_N]).sum()
    return {"accuracy": n_right / n, "majority": onehot_NC.sum(dim=0).amax() / n}


def _scores(x_MD: Tensor, target_MC: Tensor, test_TD: Tensor, l2: float) -> Tensor:
    """Outputs of the ridge regression for the test fold."""
    m, d = x_MD.shape
    mean_D, share_C = x_MD.mean(dim=0), target_MC.mean(dim=0)
    if not has_scatter(x_MD):
        return share_C.expand(len(test_TD), -1)
    centred_MD = x_MD - mean_D
    system = centred_MD.T @ centred_MD if d <= m else centred_MD @ centred_MD.T
    system.diagonal().add_(l2 * centred_MD.square().sum() / d)
    if d <= m:
        weight_DC = torch.linalg.solve(system, centred_MD.T @ (target_MC - share_C))
    else:
        weight_DC = centred_MD.T @ torch.linalg.solve(system, target_MC - share_C)
    return (test_TD - mean_D) @ weight_DC + share_C
