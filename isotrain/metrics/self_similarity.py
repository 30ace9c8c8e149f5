"""Self-similarity: how similar the occurrences of a word are. N occurrences, D dimensions."""

from typing import Annotated

from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cloud import Cloud
from isotrain.geometry.cosine import mean_pairwise_cosine
from isotrain.geometry.groups import group_mean_cosine, summary


@checked
def self_similarity(
    x: Tensor | Cloud, groups: Tensor, min_count: Annotated[int, Field(ge=2)] = 5
) -> dict[str, Tensor]:
    """Mean cosine of two occurrences of a word; in [−1/(n−1), 1], adjusted 0 = no word shows.

    `x [N, D]` are occurrences and `groups [N]` integers that name their words. Words with fewer
    than `min_count` occurrences are left out; the others, n each, weigh equally.

    - `value`: mean over words of (‖Σ u_i‖² − n)/(n(n−1)), u_i = x_i/‖x_i‖: exact over all pairs.
    - `baseline`: anisotropy, the `mean_cosine` of the cloud. As published, pairs of one word are
      among these: it is high for few words, and a single word gives `adjusted` 0.
    - `adjusted`: `value` − `baseline`; 1 would be a static vector in an isotropic space.
    - `n_groups`: words measured; `standard_error`: of `value` over words, absent for one word. It
      treats words as independent, also where they share sentences.

    Unbiased at any n. Remove repeated sentences first: their equal embeddings raise `value`. A zero
    vector has cosine 0.

    Raises:
        ValueError: no word with `min_count` occurrences.

    Ethayarajh 2019, definition 1 and section 3.4 (there over sampled pairs).

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    >>> self_similarity(x, torch.tensor([0, 0, 1, 1]), min_count=2)["value"].item()
    1.0
    """
    x = Cloud.of(x).rows
    return summary(group_mean_cosine(x, groups, min_count), mean_pairwise_cosine(x))
