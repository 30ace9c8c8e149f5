"""Share of the variance in the leading directions of a cloud. N embeddings, D dimensions."""

from collections.abc import Sequence

from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.spectra import shares


def explained_variance(
    x: Tensor | Cloud, n_directions: Sequence[int] = (1, 2, 3), center: bool = True
) -> dict[str, Tensor]:
    """EV_k = Σ_{i≤k} λ_i/Σλ of `x [N, D]`, by k; in [k/D, 1], k/D = isotropic.

    λ are the eigenvalues of the covariance (`center`) or of the second moments about the origin,
    where the mean cone counts. The keys are the numbers in `n_directions`. Biased high for N ≲
    10·D: at least k/(N − 1). A cloud without scatter gives 0.

    Principal component analysis; LLM-Microscope calls EV_1 anisotropy.

    >>> import torch
    >>> explained_variance(torch.cat([torch.eye(4), -torch.eye(4)]), [1, 2])["2"].item()
    0.5
    """
    if min(n_directions) < 1:
        raise ValueError(f"n_directions must be numbers of at least 1, got {n_directions}")
    share_D = shares(Cloud.of(x).spectrum(center))
    return {str(k): share_D[:k].sum() for k in n_directions}
