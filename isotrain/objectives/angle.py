"""AnglE: ranks pairs by label with an angle in complex space. B pairs, D dimensions."""

from torch import Tensor

from isotrain.geometry.cosine import ranking, unit_rows
from isotrain.objectives.base import check_pairs
from isotrain.objectives.cosent import CoSENT


def angle_similarity(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    """|Σ_k Re w_k + Im w_k| of each pair of `first` and `second [B, D]`, in [0, √2]: `[B]`.

    A vector is D/2 complex numbers, its first half the real parts and its second half the imaginary
    ones. With z = a + bi of the first and c + di of the second, w_k = z_k·(c_k − d_k·i) over the
    lengths of both: their quotient with the moduli divided out. So the value is |cos + sin| with
    cos = Σ (ac + bd) and sin = Σ (bc − ad) of the unit vectors. Invariant to lengths, but not to
    the order of the two; 0 for a zero vector.

    Li and Li 2024 (AoE), as in the authors' code.

    >>> import torch
    >>> x, y = torch.tensor([[3.0, 4.0]]), torch.tensor([[1.0, 0.0]])
    >>> round(angle_similarity(x, y).item(), 4), round(angle_similarity(y, x).item(), 4)
    (1.4, 0.2)
    """
    check_pairs(first_BD, second_BD)
    if first_BD.shape[1] % 2:
        raise ValueError(f"the width must be even, as of complex numbers, got {first_BD.shape[1]}")
    first_BD, second_BD = unit_rows(first_BD), unit_rows(second_BD)
    (a, b), (c, d) = first_BD.chunk(2, dim=1), second_BD.chunk(2, dim=1)
    return (a * c + b * d + b * c - a * d).sum(dim=1).abs()


def angle(first_BD: Tensor, second_BD: Tensor, labels_B: Tensor, scale: float = 20.0) -> Tensor:
    """ln(1 + Σ exp(scale·(s_i − s_j))) over pairs with y_i < y_j, in [0, ∞) nats.

    s_i is the `angle_similarity` of pair i of `first` and `second [B, D]`, and y_i in `labels [B]`
    its label, graded or a class: higher = more similar. 0, with zero gradient, where all labels are
    equal.

    Li and Li 2024 (AoE).

    >>> import torch
    >>> x, y = torch.tensor([[3.0, 4.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0], [3.0, 4.0]])
    >>> round(angle(x, y, torch.tensor([0, 1]), scale=1.0).item(), 4)  # ln(1 + e^{1.4 − 0.2})
    1.4633
    """
    similarity_B = angle_similarity(first_BD, second_BD)
    return ranking(similarity_B, labels_B, scale)


class AnglE(CoSENT):
    """`angle` of the two vectors `[B, 2, D]` of each example at one read point.

    Arguments and counter as `CoSENT`; D must be even. Li and Li 2024 (AoE) add
    a CoSENT and an InfoNCE term: `objective=[angle,cosent,simcse]`.
    """

    def loss(self, first_BD: Tensor, second_BD: Tensor, labels_B: Tensor) -> Tensor:
        """The loss of pairs whose higher label is more similar."""
        return angle(first_BD, second_BD, labels_B, self.scale)
