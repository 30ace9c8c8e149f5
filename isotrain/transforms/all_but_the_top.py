"""All-but-the-top, as an isotropy layer. N embeddings, D width, R directions."""

from typing import Any

from isotrain.transforms.cluster_pca import ClusterPCA
from isotrain.transforms.fitted import NonNegative, Share


class AllButTheTop(ClusterPCA):
    """Isotropy layer `[N, D] -> [N, D]`: subtract the mean, remove R dominant directions.

    `ClusterPCA` with one cluster of all embeddings.

    Mu and Viswanath 2018.

    >>> import torch
    >>> x = torch.tensor([[4.0, 1.0], [-4.0, 1.0], [4.0, -1.0], [-4.0, -1.0]])
    >>> AllButTheTop(width=2, n_components=1, rho=1.0, stats="batch")(x)[0].abs().tolist()
    [0.0, 1.0]
    """

    def __init__(
        self, width: int, n_components: NonNegative = 3, rho: Share = 0.25, **statistics: Any
    ) -> None:
        super().__init__(width, 1, n_components, rho, **statistics)
