"""The arrays of a snapshot of an evaluation (see `isotrain.runs.snapshots`).

N embeddings, D width, M embeddings on the map, S eigenvalues, V token ids.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.kmeans import kmeans
from isotrain.geometry.rows import index_of
from isotrain.runs.keys import SIDES
from isotrain.runs.snapshots import group_of
from isotrain.training.monitor.sampling import SampledCloud

N_CLUSTERS = 8  # as in isotropy=cluster_pca


def snapshot_of(
    cloud: SampledCloud, n_map: int, frequency_V: Tensor, tokenizer: Any
) -> dict[str, np.ndarray]:
    """The arrays of one cloud, and of its group, by name.

    A cloud with a non-finite embedding, or without scatter, has no spectrum and no map.

    Args:
        cloud: the embeddings.
        n_map: maximum number of embeddings on the map.
        frequency_V: count of each token id.
        tokenizer: gives the text of a token id; None for an encoder without one.
    """
    group, arrays = group_of(cloud.where, cloud.view), {}
    if len(cloud.x_ND) > 1 and cloud.finite_N.all():
        is_clustered = cloud.token_N is not None or cloud.view in SIDES
        tensors = cloud_arrays(cloud.finite, n_map, is_clustered)
        arrays = {f"{name}/{cloud.name}": x.numpy() for name, x in tensors.items()}
    arrays[f"n_rows/{cloud.name}"] = np.array(len(cloud.x_ND))
    arrays[f"label/{group}"] = cloud.label_N[:n_map].float().numpy()
    arrays[f"index/{group}"] = index_of(cloud.id_N[:n_map]).numpy()
    if cloud.token_N is not None:
        token_M = cloud.token_N[:n_map]
        arrays[f"frequency/{group}"] = frequency_V[token_M].numpy()
        if tokenizer is not None:
            texts = tokenizer.convert_ids_to_tokens(token_M.tolist())
            arrays[f"token/{group}"] = np.array([str(text) for text in texts])
    return arrays


def cloud_arrays(x: Tensor | Cloud, n_map: int, clusters: bool) -> dict[str, Tensor]:
    """Spectrum `[S]`, map `[M, 2]` and clusters `[M]` of a cloud `[N, D]`.

    The spectrum is that of the covariance: S = min(N − 1, D) eigenvalues in descending order. The
    map has the first M = min(N, n_map) embeddings minus the global mean, along the two leading
    global principal directions. The clusters are those of k-means with K = 8 on these M. Empty
    for a cloud without scatter.

    >>> x = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> found = cloud_arrays(x, 2, clusters=False)
    >>> found["spectrum"].tolist(), found["map"][:, 0].abs().tolist()
    ([6.0, 0.6666666865348816], [3.0, 3.0])
    """
    cloud = Cloud.of(x)
    if not cloud.has_scatter:
        return {}
    rank = min(cloud.n - 1, cloud.d)
    total = cloud.gram_SS.trace()
    value_S, vector_SS = torch.linalg.eigh((cloud.gram_SS / total).float())  # a third faster
    value_S, vector_SS = value_S.double() * total, vector_SS.double()
    top_S2 = vector_SS[:, -2:].flip(1)
    if cloud.n < cloud.d:  # the Gram matrix is [N, N]
        map_M2 = top_S2[:n_map] * value_S[-2:].flip(0).clamp_min(0.0).sqrt()
    else:
        map_M2 = (cloud.rows[:n_map] * cloud.unit - cloud.mean_D) @ top_S2
    tensors = {
        "spectrum": (value_S.flip(0)[:rank].clamp_min(0.0) / (cloud.n - 1) / cloud.unit**2).float(),
        "map": (map_M2 / cloud.unit).float(),
    }
    if clusters:
        x_MD = cloud.rows[:n_map].float()
        generator = torch.Generator().manual_seed(0)
        tensors["cluster"] = kmeans(
            x_MD - x_MD.mean(dim=0), N_CLUSTERS, generator=generator, n_iterations=100
        ).assignment_N.short()
    return tensors
