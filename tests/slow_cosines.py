"""Mean cosines one pair at a time, for tests of sums that have them all at once."""

from itertools import combinations

from torch.nn.functional import cosine_similarity


def mean_of_pairs(x_ND, may_pair=lambda i, j: True):
    """Over the pairs i < j that `may_pair` lets through; a zero row has cosine 0."""
    pairs = [(i, j) for i, j in combinations(range(len(x_ND)), 2) if may_pair(i, j)]
    return sum(cosine_similarity(x_ND[i], x_ND[j], dim=0).item() for i, j in pairs) / len(pairs)


def means_within(x_ND, groups_N, min_count=2):
    """Those of the pairs of each group of `min_count` rows or more, by rising number."""
    clouds = (x_ND[groups_N == group] for group in groups_N.unique())
    return [mean_of_pairs(own_nD) for own_nD in clouds if len(own_nD) >= min_count]
