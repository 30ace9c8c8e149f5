"""Token embeddings of sentences on disk, and the transforms of Rajaei and Sheikhi, frozen.

N tokens (including special ones), M of a sample, D dimensions, U sentences, K clusters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from isotrain.analysis.encode import Spans, encode_rows, tokenise
from isotrain.analysis.types import Cell, Subject
from isotrain.geometry.assignment import Assign, fit_anchors
from isotrain.geometry.cloud import Cloud
from isotrain.geometry.cluster_pca import (
    ClusterPCAStats,
    apply_cluster_pca,
    center_clusters,
    fit_cluster_pca,
)
from isotrain.geometry.groups import hashed_order
from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.partition import partition
from isotrain.metrics.partition_null import gaussian_null

if TYPE_CHECKING:
    from isotrain.analysis.offline_isotropy.analysis import OfflineIsotropy

BLOCK = 8192  # tokens that are transformed at a time

Transform = Callable[[Tensor], Tensor]
"""Rows `[M, D]` to rows `[M, D]`, each by itself."""


class TokenCloud(NamedTuple):
    """Embeddings of every token of some sentences, at one layer."""

    rows_ND: np.ndarray  # of a file on disk
    sentence_N: np.ndarray
    token_N: np.ndarray  # ids
    special_N: np.ndarray  # whether a row is CLS, SEP or the like
    n_sentences: int
    n_cut: int  # sentences that were longer than `max_length`


Clouds = Callable[[], Mapping[int, TokenCloud]]
"""The cloud of each layer; the sentences are encoded at the first call."""


class Sample(NamedTuple):
    """Rows of ordinary tokens, those of whole sentences."""

    x_MD: Tensor
    token_M: np.ndarray  # ids
    n_sentences: int


def token_clouds(
    subject: Subject,
    name: str,
    sentences: Sequence[str],
    layers: Sequence[int],
    most: int | None = None,
) -> dict[int, TokenCloud]:
    """The tokens of sentences at each layer; of sampled sentences with up to `most` tokens."""
    tokens = tokenise(subject.encoder.tokenizer, sentences, subject.max_length)
    n_tokens_U = np.array([len(ids) for ids in tokens.ids], dtype=np.int64)
    chosen_U = np.arange(len(sentences))
    if most is not None:
        n_ordinary_U = n_tokens_U - np.array([sum(own) for own in tokens.special])
        chosen_U = drawn(n_ordinary_U, most, subject.seed)
    sentence_N = np.repeat(chosen_U, n_tokens_U[chosen_U])
    start_N = np.concatenate([np.arange(n) for n in n_tokens_U[chosen_U]]).astype(np.int64)
    spans = Spans(sentence_N, start_N, start_N + 1)
    rows_LND = encode_rows(subject, name, tokens, spans, layers)
    token_N = np.concatenate([tokens.ids[i] for i in chosen_U]).astype(np.int64)
    special_N = np.concatenate([tokens.special[i] for i in chosen_U]).astype(bool)
    return {
        layer: TokenCloud(rows_ND, sentence_N, token_N, special_N, len(sentences), tokens.n_cut)
        for layer, rows_ND in zip(layers, rows_LND, strict=True)
    }


def drawn(n_rows_U: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Sentences, sampled by hashing positions, with up to `most` tokens; at least one.

    >>> drawn(np.array([3, 3, 3]), 7, seed=0).size, drawn(np.array([3, 3, 3]), 9, seed=0)
    (2, array([0, 1, 2]))
    """
    order_U = hashed_order(len(n_rows_U), seed).numpy()
    n_fitting = int(np.searchsorted(np.cumsum(n_rows_U[order_U]), most, side="right"))
    return np.sort(order_U[: max(1, n_fitting)])


def sample(cloud: TokenCloud, most: int, seed: int, among_U: np.ndarray | None = None) -> Sample:
    """Up to `most` ordinary tokens of whole sentences; from the sentences `among`, if given."""
    ordinary_N = ~cloud.special_N
    if among_U is not None:
        ordinary_N &= np.isin(cloud.sentence_N, among_U)
    sentence_N = cloud.sentence_N[ordinary_N]
    own_U, n_rows_U = np.unique(sentence_N, return_counts=True)
    chosen_U = own_U[drawn(n_rows_U, most, seed)]
    at_M = np.flatnonzero(ordinary_N)[np.isin(sentence_N, chosen_U)]
    return Sample(torch.from_numpy(cloud.rows_ND[at_M]), cloud.token_N[at_M], len(chosen_U))


def pooled(cloud: TokenCloud, transform: Transform | None, specials: bool = False) -> Tensor:
    """Mean `[U, D]` of the transformed tokens of each sentence, CLS and SEP with `specials` alone.

    A sentence without a token is zero, so that its cosine with any other is 0.
    """
    sum_UD = torch.zeros(cloud.n_sentences, cloud.rows_ND.shape[1])
    count_U1 = torch.zeros(cloud.n_sentences, 1)
    for start in range(0, len(cloud.rows_ND), BLOCK):
        kept_B = np.flatnonzero(specials | ~cloud.special_N[start : start + BLOCK])
        if not len(kept_B):
            continue
        y_BD = torch.from_numpy(np.array(cloud.rows_ND[start : start + BLOCK][kept_B]))
        if transform is not None:
            y_BD = transform(y_BD)
        at_B = torch.from_numpy(cloud.sentence_N[start : start + BLOCK][kept_B])
        sum_UD.index_add_(0, at_B, y_BD)
        count_U1.index_add_(0, at_B, torch.ones(len(at_B), 1))
    return sum_UD / count_U1.clamp_min(1.0)


OWN_POOLING, NONE = "own_pooling", "none"


# How tokens are assigned to clusters (None: one cluster), and whether directions are removed, too.
RECIPES: Mapping[str, tuple[Assign | None, bool] | None] = {
    OWN_POOLING: None,
    NONE: None,
    "mean": (None, False),
    "mean_pca": (None, True),
    "kmeans_mean": ("kmeans", False),
    "kmeans_mean_pca": ("kmeans", True),
    "gmm_mean": ("gmm", False),
    "gmm_mean_pca": ("gmm", True),
}


@dataclass(frozen=True)
class Fitted:
    """A frozen transform and facts about its fit."""

    stats: ClusterPCAStats
    facts: Mapping[str, Cell]

    def __call__(self, x_MD: Tensor) -> Tensor:
        """Transformed rows; the result of a row does not depend on the others."""
        return apply_cluster_pca(x_MD, self.stats)


def fit_transforms(
    x_MD: Tensor, split: str, options: OfflineIsotropy, subject: Subject
) -> dict[str, Fitted | None]:
    """Each transform fitted on the tokens of a split; None for the identity."""
    found = {}
    for name in options.transforms:
        subject.tell(f"fitting {name} on {len(x_MD):,} tokens of {split}")
        found[name] = fit_transform(x_MD, name, options, subject.seed, split)
    return found


def fit_transform(
    x_MD: Tensor, name: str, options: OfflineIsotropy, seed: int, split: str = ""
) -> Fitted | None:
    """A transform fitted on the given embeddings; None if it is the identity.

    >>> from isotrain.analysis.offline_isotropy.analysis import OfflineIsotropy
    >>> x = torch.tensor([[1.0, 0.0], [3.0, 0.0]])
    >>> fit_transform(x, "mean", OfflineIsotropy(), seed=0)(torch.tensor([[9.0, 0.0]])).tolist()
    [[7.0, 0.0]]
    """
    recipe = RECIPES[name]
    if recipe is None:
        return None
    assign, removes = recipe
    n_clusters = options.n_clusters if assign else 1
    n_removed = (options.n_components if assign else options.n_directions) if removes else 0
    anchors, assignment_N = fit_anchors(
        x_MD,
        n_clusters,
        assign or "kmeans",
        generator=torch.Generator().manual_seed(seed),
        n_iterations=options.n_iterations,
    )
    clusters = center_clusters(x_MD, anchors, assignment_N)
    stats = fit_cluster_pca(clusters, n_removed, options.rho, exact=True)
    count_K = torch.bincount(assignment_N, minlength=n_clusters)
    facts: dict[str, Cell] = {
        "fitted_on": split,
        "n_fitted": len(x_MD),
        "n_clusters": n_clusters,
        "n_directions": n_removed,  # of a cluster, where it is not small
        "smallest_cluster": int(count_K.min()),
        "directions_removed": int(stats.counters["directions_removed"]),
        "rows_borrowed": int(stats.counters["rows_borrowed"]),
    }
    return Fitted(stats._replace(assignment_N=None), facts)


def shapes(
    rows: Sample, fits: Mapping[str, Fitted | None], facts: Mapping[str, Cell]
) -> Iterator[dict[str, Cell]]:
    """One record per transform: isotropy of its output, and facts about its fit."""
    n = {"n_sentences": rows.n_sentences}
    for setting, fitted in fits.items():
        if setting != OWN_POOLING:  # the embeddings of `none`
            y_MD = rows.x_MD if fitted is None else fitted(rows.x_MD)
            known = {} if fitted is None else fitted.facts
            yield {"kind": "cloud", **facts, "setting": setting, **known, **shape_of(y_MD), **n}


def shape_of(x_MD: Tensor) -> dict[str, Cell]:
    """Isotropy of embeddings: ln I(W) over eigenvectors with both signs, IsoScore, mean cosine.

    `chance` is the median, and 95 % range, of ln I(W) of Gaussian clouds of the same N, D and rms
    norm; None where N or D is beyond the table.
    """
    n, d = x_MD.shape
    rms = float(x_MD.double().square().sum(dim=1).mean().sqrt())
    cloud = Cloud(x_MD)  # what the measures have in common is computed once
    log_value = float(partition(cloud, precision="mixed"))
    found: dict[str, Cell] = {
        "n_rows": n,
        "rms_norm": rms,
        "mean_cosine": float(mean_cosine(cloud)),
        "isoscore": float(isoscore(cloud, precision="mixed")),
        "partition": math.exp(log_value),
        "ln_partition": log_value,
    }
    try:
        band = gaussian_null(n, d, rms)
    except ValueError:  # beyond the stored grid
        return found | {"chance_low": None, "chance": None, "chance_high": None}
    return found | {"chance_low": band.low, "chance": band.median, "chance_high": band.high}
