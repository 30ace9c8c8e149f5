"""What is done to rows after the fact: nothing, tails cut, whitened. N rows, D dimensions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from isotrain.geometry.cosine import unit_rows
from isotrain.geometry.whitening import apply_whitening
from isotrain.transforms.cut_tails import CutTails
from isotrain.transforms.whitening import Whitening

NONE, CUT, WHITENED = "none", "cut", "whitened"
TREATMENTS = (NONE, CUT, WHITENED)

Treatment = Callable[[Tensor], Tensor]


def treatments(fit_ND: Tensor, dims: Sequence[int], epsilon: float) -> Mapping[str, Treatment]:
    """Maps `[N, D] -> [N, D]` by name, float64: `none`, `cut` and `whitened`.

    `cut` sets `dims` to zero (with no `dims` it changes nothing). `whitened` is
    (x − μ)·U diag((λ + ε·λ̄)^−1/2), its mean and directions those of the rows `fit` alone: whoever
    measures gives rows of train here and others to the maps. Float32 rows that a norm made have a
    direction whose variance is rounding: ε = 1e-6 keeps it small and leaves all others as they
    are. Cosines do not see the arbitrary signs of the directions.

    Luo 2020 (both); Su 2021 (whitening, ε = 0).

    >>> import torch
    >>> x = torch.tensor([[3.0, 50.0], [1.0, 50.0], [-4.0, 51.0]])
    >>> treatments(x, [1], 0.0)["cut"](x[:1]).tolist()
    [[3.0, 0.0]]
    """
    fit_ND = fit_ND.double()
    width = fit_ND.shape[1]
    tails = CutTails(width, dims=list(dims), mode="zero")
    cut = tails.estimate(fit_ND)
    whitening = Whitening(width, epsilon, keep_scale=False).estimate(fit_ND)
    return {
        NONE: lambda x_ND: x_ND.double(),
        CUT: lambda x_ND: tails.transform(x_ND.double(), cut, are_last=False),
        WHITENED: lambda x_ND: apply_whitening(x_ND.double(), whitening),
    }


def pair_cosines(u_ND: Tensor, v_ND: Tensor) -> Tensor:
    """Cosine of each row of `u` with that of `v` `[N]`, in [−1, 1]; 0 where one is zero.

    >>> import torch
    >>> pair_cosines(torch.tensor([[1.0, 0.0]]), torch.tensor([[3.0, 0.0]])).tolist()
    [1.0]
    """
    return (unit_rows(u_ND) * unit_rows(v_ND)).sum(dim=1).clamp(-1.0, 1.0)
