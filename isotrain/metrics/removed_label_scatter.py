"""What removing directions takes from classes. N embeddings, D dimensions, J directions."""

import torch
from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.groups import class_ids, class_scatter
from isotrain.geometry.spectra import leading_directions


def removed_label_scatter(
    x: Tensor | Cloud, labels: Tensor, n_directions: int = 3, directions: Tensor | None = None
) -> dict[str, Tensor]:
    """Share of between-class scatter of `x [N, D]` in removed directions; [0, 1], 1 = all of it.

    - `value` = tr(VᵀS_B·V)/tr S_B, with S_B the between-class scatter and V the leading
      `n_directions` principal directions, or the given orthonormal `directions [D, J]`; 0 for equal
      class means.
    - `explained` = tr(VᵀS_T·V)/tr S_T, the same of the total scatter: about what unrelated labels
      give. k random directions give k/D.

    `labels [N]` are class numbers. No gradient. For one mean and one set of directions: a layer
    with several clusters removes each cluster's mean too; compare `scatter_ratio` before and after
    such a layer.

    Raises:
        ValueError: directions that are not orthonormal (or zero) columns `[D, J]`.

    Ours; S_B and S_T are those of `scatter_ratio`.

    >>> x = torch.tensor([[5.0, 0.1], [5.0, -0.1], [-5.0, 0.1], [-5.0, -0.1]])
    >>> removed_label_scatter(x, torch.tensor([0, 0, 1, 1]), n_directions=1)["value"].item()
    1.0
    """
    x = Cloud.of(x).rows.detach()
    class_N = class_ids(labels.to(x.device), len(x))
    largest = x.abs().amax()
    found = class_scatter(x / torch.where(largest > 0, largest, 1.0), class_N)  # squares in range
    if directions is not None:
        direction_DJ = _checked(directions.to(x), x.shape[1])
    elif n_directions < 1:
        raise ValueError(f"n_directions must be at least 1, got {n_directions}")
    else:
        direction_DJ = leading_directions(found.centred_ND, n_directions)
    total, between = found.between + found.within, found.between
    removed = (found.between_CD @ direction_DJ).square().sum()
    explained = (found.centred_ND @ direction_DJ).square().sum()
    return {
        "value": (removed / torch.where(between > 0, between, 1.0)).clamp(0.0, 1.0),
        "explained": (explained / torch.where(total > 0, total, 1.0)).clamp(0.0, 1.0),
    }


def _checked(direction_DJ: Tensor, width: int) -> Tensor:
    if direction_DJ.ndim != 2 or direction_DJ.shape[0] != width:
        raise ValueError(
            f"directions must be [D, J] = [{width}, J], got {tuple(direction_DJ.shape)}"
        )
    gram_JJ = direction_DJ.T @ direction_DJ
    unit_JJ = torch.diag((gram_JJ.diagonal() != 0).to(gram_JJ))
    if not bool(((gram_JJ - unit_JJ).abs() <= 1e-3).all()):
        raise ValueError(
            "directions must be orthonormal columns (or zero columns); pass them through "
            "torch.linalg.qr first"
        )
    return direction_DJ
