"""Maximum explainable variance of words by one vector. G groups, S sets of n each."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from isotrain.arguments import checked
from isotrain.geometry.cloud import Cloud
from isotrain.geometry.groups import (
    check_groups,
    first_direction_share,
    hashed_order,
    large_groups,
    sample_groups,
    summary,
)


@checked
def max_explainable_variance(
    x: Tensor | Cloud,
    groups: Tensor,
    center: bool = False,
    n_per_group: int | None = 5,
    n_baseline: Annotated[int, Field(ge=1)] = 1000,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Mean share of a word's variance along one direction; in [1/min(n, D), 1], adjusted 0 = none.

    `x [N, D]` are occurrences, `groups [N]` integers that name their words. σ are the singular
    values of n occurrences of a word, with `center` less their mean (the floor is then 1/(n−1)).
    Every word is measured on `n_per_group` occurrences and rarer words are left out; `None` takes
    all occurrences and mixes values of different n.

    - `value`: mean over words of σ₁²/Σσ².
    - `baseline`: the same of at most `n_baseline` disjoint random sets of n, drawn from all; with
      `None`, averaged as the words are.
    - `adjusted`: `value` − `baseline`; what a static vector explains beyond the mean cone.
    - `n_groups`: words measured; `standard_error`: of `value` over words, absent for one word.

    Long vectors weigh more. Samples are drawn by hashing positions with `seed`. Equal occurrences
    give 1, also centred.

    Raises:
        ValueError: `n_per_group` < 2 (3 if centred); no word with so many occurrences.

    Ethayarajh 2019, definition 3 (uncentred); the released code centres the words alone and takes
    its baseline from another statistic. Here both sides are treated alike.

    >>> import torch
    >>> x = torch.eye(4)
    >>> max_explainable_variance(x, torch.tensor([0, 0, 1, 1]), n_per_group=2)["value"].item()
    0.5
    """
    min_size = 3 if center else 2
    if n_per_group is not None and n_per_group < min_size:
        raise ValueError(
            f"n_per_group must be at least {min_size} for center={center}, got {n_per_group}; "
            "fewer rows give 1 always"
        )
    x = Cloud.of(x).rows
    words = check_groups(x, groups)
    large_G = large_groups(words, n_per_group or min_size, "give more rows or lower n_per_group")
    random_N = hashed_order(len(x), ~seed, x.device)  # another stream than the words' samples
    values, baselines = [], []
    sizes = [n_per_group] if n_per_group else sorted(set(words.count_G[large_G].tolist()))
    for n in sizes:
        mask_G = large_G if n_per_group else words.count_G == n
        values.append(first_direction_share(x[sample_groups(words, mask_G, n, seed)], center))
        n_sets = min(n_baseline, len(x) // n)
        random_Sn = random_N[: n_sets * n].reshape(n_sets, n)
        baseline = first_direction_share(x[random_Sn], center).mean()
        baselines.append(baseline.expand_as(values[-1]))
    return summary(torch.cat(values), torch.cat(baselines).mean())
