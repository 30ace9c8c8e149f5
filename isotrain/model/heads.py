"""Task heads on pooled embeddings: `[B, P, D] -> [B, C]`."""

import torch
from torch import Tensor, nn


def pair_features(u_BD: Tensor, v_BD: Tensor) -> Tensor:
    """(u, v, |u − v|, u·v) of two vectors, `[B, 4D]` (Conneau et al. 2017).

    >>> pair_features(torch.tensor([[1.0]]), torch.tensor([[3.0]])).tolist()
    [[1.0, 3.0, 2.0, 3.0]]
    """
    return torch.cat([u_BD, v_BD, (u_BD - v_BD).abs(), u_BD * v_BD], dim=1)


class LinearHead(nn.Module):
    """Logits from one vector (P = 1), or from a pair as (u, v, |u − v|, u·v) (P = 2).

    Weights start normal with standard deviation 0.02, as in BERT's head, and biases at `bias`: if
    outputs lie around a known value, the encoder need not learn an offset that a centring layer
    would remove.

    >>> LinearHead(4, n_vectors=2, n_outputs=3)(torch.zeros(5, 2, 4)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self, width: int, n_vectors: int, n_outputs: int, dropout: float = 0.1, bias: float = 0.0
    ) -> None:
        super().__init__()
        self.n_vectors = n_vectors
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(width * (1 if n_vectors == 1 else 4), n_outputs)
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.constant_(self.linear.bias, bias)

    def features(self, pooled_BPD: Tensor) -> Tensor:
        """Input of the linear map: `[B, D]`, or `[B, 4D]` for a pair."""
        if self.n_vectors == 1:
            return pooled_BPD[:, 0]
        return pair_features(*pooled_BPD.unbind(dim=1))

    def forward(self, pooled_BPD: Tensor) -> Tensor:
        """`[B, C]`."""
        logits_BC: Tensor = self.linear(self.dropout(self.features(pooled_BPD)))
        return logits_BC


class CosineHead(nn.Module):
    """The cosine of a pair of vectors, `[B, 1]`; no parameters."""

    def forward(self, pooled_BPD: Tensor) -> Tensor:
        """`[B, 1]` in [−1, 1]."""
        u, v = pooled_BPD.unbind(dim=1)
        return torch.nn.functional.cosine_similarity(u, v, dim=1)[:, None]


class ScaledCosineHead(CosineHead):
    """An increasing affine function of the cosine of a pair, s = eᵃ·cos + b, `[B, 1]`; a, b train.

    Both start at 0, so that s is the cosine. The factor eᵃ is positive, so ranks and Spearman's and
    Pearson's correlation equal those of the cosine. Both train as part of the head, without weight
    decay.

    >>> ScaledCosineHead()(torch.ones(2, 2, 4)).tolist()
    [[1.0], [1.0]]
    """

    def __init__(self) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(1))
        self.bias = nn.Parameter(torch.zeros(1))

    def features(self, pooled_BPD: Tensor) -> Tensor:
        """The cosine, `[B, 1]`."""
        return super().forward(pooled_BPD)

    def forward(self, pooled_BPD: Tensor) -> Tensor:
        """`[B, 1]`."""
        return self.log_scale.exp() * self.features(pooled_BPD) + self.bias
