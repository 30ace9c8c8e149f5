"""Self-similarity: how alike the occurrences of a word are. N rows, D dimensions, G groups."""

from __future__ import annotations

from torch import Tensor

from isotrain.geometry.cloud import Cloud
from isotrain.geometry.cosine import mean_pairwise_cosine
from isotrain.geometry.groups import group_mean_cosine, summary


def self_similarity(x: Tensor | Cloud, groups: Tensor, min_count: int = 5) -> dict[str, Tensor]:
    """Mean cosine of two occurrences of a word; in [−1/(n−1), 1], adjusted 0 = no word shows.

    `x [N, D]` are occurrences and `groups [N]` integers that name their words. Words with fewer
    than `min_count` rows are left out; the others, n rows each, weigh equally. Without units:

    - `value`: mean over words of (‖Σ u_i‖² − n)/(n(n−1)), u_i = x_i/‖x_i‖: exact over all pairs.
    - `baseline`: anisotropy, the mean cosine of any two rows (`mean_cosine` of the cloud). Like
      the published one it takes occurrences at random, so pairs of one word are among them: with
      few words in the cloud it is high. A single word gives `adjusted` 0.
    - `adjusted`: `value` − `baseline`; 1 would be a static vector in an isotropic space.
    - `n_groups`: words measured; `standard_error`: of `value` over words, left out for one word.
      Words that share sentences are not independent, which it does not see.

    Unchanged by rotation, row length, order of rows and names of groups; moved by translation.
    Without bias at any n. Ignores which sentence a row is from: remove repeated sentences first,
    whose equal rows raise `value`. A zero row has cosine 0. `group_mean_cosine` in
    `isotrain.geometry.groups` gives the value of each word.

    Raises:
        ValueError: not `[N, D]`, N < 2, a NaN or infinity, groups that are not one integer per
            row, `min_count` below 2, or no word with `min_count` rows.

    Ethayarajh 2019, definition 1 and section 3.4 (there over sampled pairs).

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    >>> self_similarity(x, torch.tensor([0, 0, 1, 1]), min_count=2)["value"].item()
    1.0
    """
    x = Cloud.of(x).rows
    return summary(group_mean_cosine(x, groups, min_count).value_G, mean_pairwise_cosine(x))
