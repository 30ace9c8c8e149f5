"""How well cosines agree with gold similarity, with sampling errors.

P pairs, S settings, R resamples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotrain.geometry.cosine import unit_rows
from isotrain.reporting.row_bootstrap import SCORES

Floats = NDArray[np.float64]
BLOCK = 2**20  # numbers in one array of resamples
FEWEST = 10  # pairs of a subset that has a correlation of its own


class Agreement(NamedTuple):
    """A correlation of each setting, times 100, and what it is above that of the baseline."""

    value_S: Floats
    error_S: Floats  # standard errors over pairs
    gain_S: Floats
    gain_error_S: Floats  # paired: both settings on the same resampled pairs


def cosines(pooled_UD: Tensor, first_P: np.ndarray, second_P: np.ndarray) -> Floats:
    """The cosine of each pair of rows, in float64.

    >>> cosines(torch.tensor([[1.0, 0.0], [3.0, 3.0]]), np.array([0]), np.array([1])).round(3)
    array([0.707])
    """
    unit_UD = unit_rows(pooled_UD.double())
    at = (torch.from_numpy(side) for side in (first_P, second_P))
    first_PD, second_PD = (unit_UD[side_P] for side_P in at)
    found_P: Floats = (first_PD * second_PD).sum(dim=1).numpy()
    return found_P


def agreement(
    score: str,
    gold_P: Floats,
    cosine_SP: Floats,
    groups: Sequence[np.ndarray],
    weights: Sequence[float],
    baseline: int,
    n_resamples: int,
    seed: int,
) -> Agreement:
    """The weighted mean over groups of pairs of the correlation in each; NaN without spread.

    One group of all pairs gives the correlation itself. Errors are standard deviations over
    bootstrap resamples of the pairs of every group, the same for all settings.

    Args:
        score: pearson | spearman.
        gold_P: gold similarity.
        cosine_SP: cosines of each setting.
        groups: places of the pairs of each group.
        weights: of the groups.
        baseline: the setting that gains are over.
        n_resamples: R.
        seed: of the resamples.

    >>> gold = np.array([0.0, 1.0, 2.0, 3.0])
    >>> found = agreement("pearson", gold, gold[None], [np.arange(4)], [1.0], 0, 50, 0)
    >>> found.value_S.round(6).tolist(), found.error_S.round(6).tolist()
    ([100.0], [0.0])
    """
    share_G = np.asarray(weights, float) / sum(weights)

    def over_groups(count_GRP: Sequence[Floats]) -> Floats:
        parts = [
            share * SCORES[score](gold_P[at], cosine_SP[:, at], count_RP)
            for share, at, count_RP in zip(share_G, groups, count_GRP, strict=True)
        ]
        return np.asarray(100.0 * np.sum(parts, axis=0))

    value_S = over_groups([np.ones((1, len(at))) for at in groups])[0]
    blocks = _resamples([len(at) for at in groups], n_resamples, seed)
    resampled_RS = np.concatenate([over_groups(count_GRP) for count_GRP in blocks])
    gain_RS = resampled_RS - resampled_RS[:, [baseline]]
    return Agreement(value_S, _spread(resampled_RS), value_S - value_S[baseline], _spread(gain_RS))


def groups_of(
    subset_P: np.ndarray | None, aggregate: str, n_pairs: int
) -> tuple[list[np.ndarray], list[float]]:
    """Places of the pairs of each group, and its weight; `agreement` has what for.

    `all` is one group; `mean` and `weighted` are over subsets, with equal weights or by pairs.

    Raises:
        ValueError: the pairs name no subsets, or a subset has too few pairs.

    >>> groups_of(None, "all", 3)
    ([array([0, 1, 2])], [1.0])
    """
    if aggregate == "all":
        return [np.arange(n_pairs)], [1.0]
    if subset_P is None:
        raise ValueError("rows of this source name no subset (field file)")
    groups = [np.flatnonzero(subset_P == name) for name in subset_names(subset_P)]
    if len(smallest := min(groups, key=len)) < FEWEST:
        name = subset_P[smallest[0]]
        raise ValueError(f"subset {name} has {len(smallest)} pairs, fewer than {FEWEST}")
    return groups, [1.0 if aggregate == "mean" else float(len(at)) for at in groups]


def subset_names(subset_P: np.ndarray) -> list[str]:
    """The subsets, in the order in which they first stand.

    >>> subset_names(np.array(["images", "belief", "images"]))
    ['images', 'belief']
    """
    return list(dict.fromkeys(subset_P.tolist()))


def _resamples(sizes: Sequence[int], n_resamples: int, seed: int) -> Iterator[list[Floats]]:
    """How often each pair of each group is drawn, `[R, P]` a group, a block of R at a time."""
    generator = np.random.default_rng(seed)
    block = max(1, BLOCK // sum(sizes))
    for start in range(0, n_resamples, block):
        n = min(block, n_resamples - start)
        yield [
            generator.multinomial(size, np.full(size, 1 / size), size=n).astype(float)
            for size in sizes
        ]


def _spread(value_RS: Floats) -> Floats:
    """Standard deviations over resamples; NaN where a setting is not defined in some."""
    found_S: Floats = value_RS.std(axis=0, ddof=1)
    return found_S
