"""Linear CKA of two clouds of the same inputs. N embeddings, D and E dimensions."""

from torch import Tensor

from isotrain.geometry.cloud import Cloud


def linear_cka(x: Tensor | Cloud, reference: Tensor, debiased: bool = False) -> Tensor:
    """Similarity of `x [N, D]` to `reference [N, E]` of the same inputs; [0, 1], 1 = same shape.

    ‖XᵀY‖²_F/(‖XᵀX‖_F·‖YᵀY‖_F) of the centred clouds. Leading directions dominate it. Biased up:
    unrelated Gaussian clouds give about √(D·E/((n + D)(n + E))) with n = N − 1. `debiased=True`
    replaces each product by its U-statistic (unbiased HSIC): in [−1, 1] and near 0 for unrelated
    clouds of any N ≥ 4. A cloud without scatter, and if debiased one whose embeddings are all
    equally far apart, gives 0. O(N·D·E), or by Gram matrices [N, N] where that is less.

    Raises:
        ValueError: N < 4 if debiased.

    Kornblith et al. 2019; Song et al. 2012 and Nguyen et al. 2021 for the U-statistic.

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-1.0, -1.0], [3.0, 1.0]])
    >>> round(linear_cka(x, x @ torch.tensor([[0.0, -5.0], [5.0, 0.0]]) + 7.0).item(), 9)
    1.0
    """
    min_rows = 4 if debiased else 2
    cloud = Cloud.of(x, min_rows)
    reference_cloud = Cloud(reference.to(cloud.rows.device), min_rows)
    if not (cloud.has_scatter and reference_cloud.has_scatter):
        return cloud.rows.new_zeros(())
    x, y = _centred(cloud.rows), _centred(reference_cloud.rows)
    product = _debiased_product if debiased else _squared_product
    xx, yy = product(x, x), product(y, y)
    # The U-statistic of vectors that are all equally far apart is rounding.
    if bool(xx <= 1e-12 * _squared_product(x, x)) or bool(yy <= 1e-12 * _squared_product(y, y)):
        return x.new_zeros(())
    lower = -1.0 if debiased else 0.0
    return (product(x, y) / (xx.sqrt() * yy.sqrt())).clamp(lower, 1.0)


def _centred(x_ND: Tensor) -> Tensor:
    """The centred cloud, its largest entry 1, so that fourth powers stay in range."""
    x_ND = x_ND / x_ND.detach().abs().amax()
    x_ND = x_ND - x_ND.mean(dim=0)
    return x_ND / x_ND.detach().abs().amax()


def _squared_product(x_ND: Tensor, y_NE: Tensor) -> Tensor:
    """‖XᵀY‖²_F = Σ_ij (x_i·x_j)(y_i·y_j)."""
    n, d, e = *x_ND.shape, y_NE.shape[1]
    if n * (d + e) < d * e:
        return ((x_ND @ x_ND.T) * (y_NE @ y_NE.T)).sum()
    return (x_ND.T @ y_NE).square().sum()


def _debiased_product(x_ND: Tensor, y_NE: Tensor) -> Tensor:
    """n(n − 3) times the unbiased HSIC of centred clouds."""
    # Rows of a centred Gram matrix K sum to 0, hence without the diagonal to −K_ii.
    n = len(x_ND)
    x_N, y_N = x_ND.square().sum(dim=1), y_NE.square().sum(dim=1)
    off_diagonal = _squared_product(x_ND, y_NE) - x_N @ y_N
    return off_diagonal + x_N.sum() * y_N.sum() / ((n - 1) * (n - 2)) - 2.0 * (x_N @ y_N) / (n - 2)
