"""Between over within class scatter. N embeddings, D dimensions, C classes."""

import torch
from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.groups import class_ids, class_scatter


def scatter_ratio(x: Tensor | Cloud, labels: Tensor) -> dict[str, Tensor]:
    """Between over within class scatter of `x [N, D]`; high = classes far apart.

    - `value`: tr S_B / tr S_W in [0, ∞), S_B = Σ_c n_c·(m_c − m)(m_c − m)ᵀ and S_W the scatter
      about the class means m_c.
    - `share`: tr S_B / tr S_T in [0, 1], the fraction of all scatter that labels explain. Random
      labels give (C − 1)/(N − 1) on average, not 0.

    Equal embeddings give 0 and 0. `labels [N]` are class numbers. Says nothing of isotropy by
    itself.

    Raises:
        ValueError: classes without scatter within that differ.

    Fisher 1936 for the two scatters.

    >>> x = torch.tensor([[0.0], [2.0], [6.0], [8.0]])
    >>> values = scatter_ratio(x, torch.tensor([0, 0, 1, 1]))
    >>> {key: round(value.item(), 9) for key, value in values.items()}
    {'value': 9.0, 'share': 0.9}
    """
    x = Cloud.of(x).rows
    class_N = class_ids(labels.to(x.device), len(x))
    largest = x.detach().abs().amax()
    scatter = class_scatter(x / torch.where(largest > 0, largest, 1.0), class_N)  # squares in range
    between, within = scatter.between, scatter.within
    if bool((within == 0) & (between > 0)):
        raise ValueError(
            "the ratio needs scatter within classes, and the rows of each of "
            f"{len(scatter.between_CD)} classes are equal (N = {len(x)}); "
            "measure more rows of each class"
        )
    safe_within = torch.where(within > 0, within, 1.0)
    return {"value": between / safe_within, "share": between / (between + safe_within)}
