"""What removing directions takes from classes. N embeddings, D dimensions, J directions."""

import torch
from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.groups import class_ids, class_scatter
from isotrain.geometry.spectra import leading_directions


def removed_label_scatter(
    x: Tensor | Cloud, labels: Tensor, n_directions: int = 3
) -> dict[str, Tensor]:
    """Share of between-class scatter of `x [N, D]` in removed directions; [0, 1], 1 = all of it.

    - `value` = tr(VᵀS_B·V)/tr S_B, with S_B the between-class scatter and V the leading
      `n_directions` principal directions; 0 for equal class means.
    - `explained` = tr(VᵀS_T·V)/tr S_T, the same of the total scatter: about what unrelated labels
      give. k random directions give k/D.

    `labels [N]` are class numbers. No gradient. For one mean and one set of directions: a layer
    with several clusters removes each cluster's mean too; compare `scatter_ratio` before and after
    such a layer.

    Ours; S_B and S_T are those of `scatter_ratio`.

    >>> x = torch.tensor([[5.0, 0.1], [5.0, -0.1], [-5.0, 0.1], [-5.0, -0.1]])
    >>> removed_label_scatter(x, torch.tensor([0, 0, 1, 1]), n_directions=1)["value"].item()
    1.0
    """
    x = Cloud.of(x).rows.detach()
    class_N = class_ids(labels.to(x.device), len(x))
    largest = x.abs().amax()
    scatter = class_scatter(x / torch.where(largest > 0, largest, 1.0), class_N)  # squares in range
    direction_DJ = leading_directions(scatter.centred_ND, n_directions)
    total, between = scatter.between + scatter.within, scatter.between
    removed = (scatter.between_CD @ direction_DJ).square().sum()
    explained = (scatter.centred_ND @ direction_DJ).square().sum()
    return {
        "value": (removed / torch.where(between > 0, between, 1.0)).clamp(0.0, 1.0),
        "explained": (explained / torch.where(total > 0, total, 1.0)).clamp(0.0, 1.0),
    }
