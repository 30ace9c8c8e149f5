"""Token embeddings, the transforms of Rajaei and Sheikhi, and the scores of a set at a layer.

Sentence pairs are compared by cosine, the labels of SST-2 read by a linear head.

N tokens (including special ones), M of a sample, P pairs, U sentences, S settings, R resamples, D
dimensions, K clusters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Annotated, Any, Final, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor

from isotrain.analysis.data_sets import (
    AVAILABLE,
    PLACES,
    SST2,
    SST2_DATA,
    Available,
    Pairs,
    SetName,
    present,
    readable_sets,
    sts_pairs,
)
from isotrain.analysis.encode import Spans, encode_rows, tokenise
from isotrain.analysis.offline_isotropy.show import NONE, PLOTS, TABLES
from isotrain.analysis.probe import MOST_STEPS, SETTLED, not_installed
from isotrain.analysis.types import Analysis, Cell, Part, PartResult, Record, Subject, analysis
from isotrain.geometry.cloud import Cloud
from isotrain.geometry.cluster_pca import (
    CenteredClusters,
    ClusterPCAStats,
    apply_cluster_pca,
    center_clusters,
    fit_cluster_pca,
)
from isotrain.geometry.cosine import paired_cosines
from isotrain.geometry.groups import hashed_order
from isotrain.geometry.kmeans import kmeans, nearest_centroid
from isotrain.geometry.mixture import fit_mixture, likeliest
from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.partition import partition
from isotrain.metrics.partition_null import gaussian_null
from isotrain.results.row_bootstrap import SCORES
from isotrain.results.statistics import wilson
from isotrain.runs.record import CannotRunError
from isotrain.tasks.data.sources import Source, load_split

Floats = NDArray[np.float64]
BLOCK = 2048  # tokens that are transformed at a time


class TokenCloud(NamedTuple):
    """Embeddings of tokens of some sentences, at one layer."""

    rows_ND: np.ndarray  # of all tokens, in a file on disk
    sentence_N: np.ndarray
    special_N: np.ndarray  # whether a row is CLS, SEP or the like
    n_sentences: int
    n_cut: int  # sentences that were longer than `max_length`

    def ordinary(self) -> TokenCloud:
        """Without special tokens."""
        rows_ND, sentence_N, special_N, *facts = self
        return TokenCloud(*(x_N[~special_N] for x_N in (rows_ND, sentence_N, special_N)), *facts)


Clouds = Callable[[], Mapping[int, TokenCloud]]  # of each layer, encoded at the first call


def token_clouds(
    subject: Subject,
    sentences: Sequence[str],
    layers: Sequence[int],
    most: int | None = None,
) -> dict[int, TokenCloud]:
    """The tokens of sentences at each layer; of sampled sentences with up to `most` tokens."""
    tokens = tokenise(subject.encoder.tokenizer, sentences, subject.max_length)
    n_special_U = np.array([sum(special) for special in tokens.special])
    n_tokens_U = np.array([len(ids) for ids in tokens.ids], dtype=np.int64)
    sentence_U = np.arange(len(sentences))
    if most is not None:
        sentence_U = sample_sentences(n_tokens_U - n_special_U, most, subject.seed)
    sentence_N = np.repeat(sentence_U, n_tokens_U[sentence_U])
    start_N = np.concatenate([np.arange(n) for n in n_tokens_U[sentence_U]]).astype(np.int64)
    rows_LND = encode_rows(subject, tokens, Spans(sentence_N, start_N, start_N + 1), layers)
    special_N = np.concatenate([tokens.special[i] for i in sentence_U]).astype(bool)
    facts = sentence_N, special_N, len(sentences), tokens.n_cut
    return {n: TokenCloud(x_ND, *facts) for n, x_ND in zip(layers, rows_LND, strict=True)}


def sample_sentences(n_rows_U: np.ndarray, most: int, seed: int) -> np.ndarray:
    """Sentences, sampled by hashing positions, with up to `most` tokens; at least one.

    >>> n_U = np.array([3, 3, 3])
    >>> sample_sentences(n_U, 7, seed=0).size, sample_sentences(n_U, 9, seed=0)
    (2, array([0, 1, 2]))
    """
    order_U = hashed_order(len(n_rows_U), seed).numpy()
    n_fitting = int(np.searchsorted(np.cumsum(n_rows_U[order_U]), most, side="right"))
    return np.sort(order_U[: max(1, n_fitting)])


def sample(
    cloud: TokenCloud, most: int, seed: int, among_U: np.ndarray | None = None
) -> np.ndarray:
    """Positions of up to `most` tokens of whole sentences; from the sentences `among`, if given."""
    sentence_N = cloud.sentence_N
    eligible_N = np.ones(len(sentence_N), bool) if among_U is None else np.isin(sentence_N, among_U)
    ids_U, n_rows_U = np.unique(sentence_N[eligible_N], return_counts=True)
    return np.flatnonzero(
        eligible_N & np.isin(sentence_N, ids_U[sample_sentences(n_rows_U, most, seed)])
    )


def pooled(cloud: TokenCloud) -> Tensor:
    """Mean `[U, D]` of the tokens of each sentence.

    A sentence without a token is zero, so that its cosine with any other is 0.
    """
    sentence_N = torch.from_numpy(cloud.sentence_N)
    sum_UD = torch.zeros(cloud.n_sentences, cloud.rows_ND.shape[1])
    sum_UD.index_add_(0, sentence_N, torch.from_numpy(cloud.rows_ND))
    count_U = torch.bincount(sentence_N, minlength=cloud.n_sentences)
    return sum_UD / count_U.clamp_min(1)[:, None]


OWN_POOLING: Final = "own_pooling"
Setting = Literal[
    "own_pooling",
    "none",
    "mean",
    "mean_pca",
    "kmeans_mean",
    "kmeans_mean_pca",
    "gmm_mean_pca",
]
# How tokens are assigned to clusters (None: one cluster), and whether directions are removed, too.
RECIPES: Mapping[str, tuple[Literal["kmeans", "gmm"] | None, bool] | None] = {
    OWN_POOLING: None,
    NONE: None,
    "mean": (None, False),
    "mean_pca": (None, True),
    "kmeans_mean": ("kmeans", False),
    "kmeans_mean_pca": ("kmeans", True),
    "gmm_mean_pca": ("gmm", True),
}


@dataclass(frozen=True)
class Fitted:
    """A frozen transform and facts about its fit."""

    stats: ClusterPCAStats
    nearest: Callable[[Tensor], Tensor]  # the cluster of each row
    facts: Mapping[str, Cell]

    def __call__(self, x_MD: Tensor) -> Tensor:
        """Transformed rows; the result of a row does not depend on the others."""
        return apply_cluster_pca(x_MD, self.stats, self.nearest(x_MD))


Fits = dict[str, Fitted | None]  # by setting; None for the identity


def fit_transforms(x_MD: Tensor, options: OfflineIsotropy, seed: int, split: str = "") -> Fits:
    """The transforms of `options`, fitted on the given embeddings; None for identities.

    Those with the same clusters share them.

    >>> x = torch.tensor([[1.0, 0.0], [3.0, 0.0]])
    >>> fits = fit_transforms(x, OfflineIsotropy(transforms=["none", "mean"]), seed=0)
    >>> fits["mean"](torch.tensor([[9.0, 0.0]])).tolist()
    [[7.0, 0.0]]
    """
    n_iterations = options.n_iterations

    @cache
    def clustered(assign: str | None) -> tuple[CenteredClusters, Callable[[Tensor], Tensor]]:
        """The clusters, and what finds the cluster of each embedding."""
        if assign == "gmm":
            kmeans_fit = clustered("kmeans")[0].clustering
            likely = partial(likeliest, mixture=fit_mixture(x_MD, kmeans_fit, n_iterations))
            return center_clusters(x_MD, kmeans_fit._replace(assignment_N=likely(x_MD))), likely
        n_clusters, generator = options.n_clusters if assign else 1, torch.Generator()
        generator.manual_seed(seed)
        kmeans_fit = kmeans(x_MD, n_clusters, generator=generator, n_iterations=n_iterations)
        nearest = partial(nearest_centroid, centroid_KD=kmeans_fit.centroid_KD)
        return center_clusters(x_MD, kmeans_fit), nearest

    fits: Fits = dict.fromkeys(options.transforms)
    for name in options.transforms:
        if (recipe := RECIPES[name]) is not None:
            assign, removes = recipe
            n_removed = (options.n_components if assign else options.n_directions) * removes
            clusters, nearest = clustered(assign)
            stats = fit_cluster_pca(clusters, n_removed, options.rho, exact=True)
            facts: dict[str, Cell] = {
                "fitted_on": split,
                "n_fitted": len(x_MD),
                "n_clusters": len(clusters.members),
                "n_directions": n_removed,  # of each cluster that is not too small
                "smallest_cluster": min(map(len, clusters.members)),
                "directions_removed": int(stats.counters["directions_removed"]),
                "rows_borrowed": int(stats.counters["rows_borrowed"]),
            }
            fits[name] = Fitted(replace(stats, assignment_N=None), nearest, facts)
    return fits


def apply_fits(
    cloud: TokenCloud, fits: Fits, sample_M: np.ndarray, facts: Mapping[str, Cell]
) -> tuple[dict[str, Tensor], list[Record]]:
    """Sentence embeddings of each setting, and the isotropy of its tokens in the sample.

    The sample has positions among the ordinary tokens.
    """
    ordinary = cloud.ordinary()
    counts = {"n_sentences": len(np.unique(ordinary.sentence_N[sample_M]))}
    embeddings: dict[str, Tensor] = {}
    records: list[Record] = []
    for setting, fit in fits.items():
        if setting == OWN_POOLING:  # the tokens of `none`, and special ones
            embeddings[setting] = pooled(cloud)
            continue
        y_ND = torch.from_numpy(ordinary.rows_ND)
        if fit is not None:
            y_ND = torch.cat([fit(x_BD) for x_BD in torch.split(y_ND, BLOCK)])
        embeddings[setting] = pooled(ordinary._replace(rows_ND=y_ND.numpy()))
        y_MD = y_ND if len(sample_M) == len(y_ND) else y_ND[torch.from_numpy(sample_M)]
        keys = {"kind": "cloud", **facts, "setting": setting}
        fit_facts = {} if fit is None else fit.facts
        records.append({**keys, **fit_facts, **shape_of(y_MD), **counts})
    return embeddings, records


def shape_of(x_MD: Tensor) -> dict[str, Cell]:
    """Isotropy of embeddings: ln I(W) over eigenvectors with both signs, IsoScore, mean cosine.

    `chance` is the median, and 95 % range, of ln I(W) of Gaussian clouds of the same N, D and rms
    norm; None where N or D is beyond the table.
    """
    n, d = x_MD.shape
    square_M = torch.cat([x_BD.double().square().sum(dim=1) for x_BD in torch.split(x_MD, BLOCK)])
    rms = float(square_M.mean().sqrt())
    cloud = Cloud(x_MD)  # computes what the metrics share once
    log_value = float(partition(cloud))
    try:
        band = gaussian_null(n, d, rms)
        chance: tuple[float | None, ...] = band.low, band.median, band.high
    except ValueError:  # beyond the stored grid
        chance = None, None, None
    return {
        "n_rows": n,
        "rms_norm": rms,
        "mean_cosine": float(mean_cosine(cloud)),
        "isoscore": float(isoscore(cloud)),
        "partition": math.exp(log_value),
        "ln_partition": log_value,
        **dict(zip(("chance_low", "chance", "chance_high"), chance, strict=True)),
    }


RESAMPLED = 2**20  # most entries of one array of resamples
TRAIN = "stsb"  # its train split fits the transforms, unless the scored sentences do


def measure_pairs(
    options: OfflineIsotropy,
    seed: int,
    name: str,
    pairs: Pairs,
    clouds: Clouds,
    train_clouds: Clouds | None,
    layer: int,
) -> PartResult:
    """Isotropy and correlations of a set at a layer; None = fit on the scored sentences."""
    data_set, split = PLACES[name]
    cloud = clouds()[layer]
    fit_cloud, fit_split = cloud.ordinary(), f"{data_set.name} {split}"
    sample_M = sample_fit_M = sample(fit_cloud, options.max_rows, seed)
    if train_clouds is not None:
        fit_cloud, fit_split = train_clouds()[layer].ordinary(), f"{TRAIN} train"
        sample_fit_M = sample(fit_cloud, options.max_rows, seed)
    fit_MD = torch.from_numpy(fit_cloud.rows_ND[sample_fit_M])
    fits = fit_transforms(fit_MD, options, seed, fit_split)
    facts: dict[str, Cell] = {"set": name, "split": split, "layer": layer}
    embeddings, records = apply_fits(cloud, fits, sample_M, facts)
    sides = pairs.first_P, pairs.second_P
    cosine_SP = np.stack([cosines(x_UD, *sides) for x_UD in embeddings.values()])
    counts = {"n_sentences": cloud.n_sentences, "n_sentences_cut": cloud.n_cut}
    score_records = scores(pairs, cosine_SP, [*fits], options.n_resamples, seed, facts | counts)
    fit_facts = {setting: {} if fit is None else fit.facts for setting, fit in fits.items()}
    return PartResult([*records, *({**r, **fit_facts[r["setting"]]} for r in score_records)])


def scores(
    pairs: Pairs,
    cosine_SP: Floats,
    settings: Sequence[str],
    n_resamples: int,
    seed: int,
    facts: Mapping[str, Cell],
) -> Iterator[Record]:
    """A record for each setting: both correlations times 100, gains over none, standard errors."""
    args = settings.index(NONE), n_resamples, seed
    stats = {k: agreement(k, pairs.gold_P, cosine_SP, *args) for k in ("spearman", "pearson")}
    for s, setting in enumerate(settings):
        record = {"kind": "similarity", **facts, "setting": setting, "n_pairs": len(pairs.gold_P)}
        for score, arrays in stats.items():
            names = (f"{score}{end}" for end in ("", "_error", "_gain", "_gain_error"))
            record |= {name: float(x_S[s]) for name, x_S in zip(names, arrays, strict=True)}
        yield record


class Examples(NamedTuple):
    """The examples of each split."""

    sentences: list[str]  # unique
    sentence: Mapping[str, Tensor]  # number of the sentence of each example
    label: Mapping[str, Tensor]


def read_examples(source: Source, max_train: int, seed: int) -> Examples:
    """Dev, test, and `max_train` training examples at most, drawn from the seed."""
    splits = {split: load_split(source, SST2_DATA, split) for split in ("train", "dev", "test")}
    order = hashed_order(len(splits["train"]), seed)[:max_train].tolist()
    splits["train"] = [splits["train"][i] for i in order]
    rows = [row for split_rows in splits.values() for row in split_rows]
    number, texts = pd.factorize(np.array([row["sentence"].strip() for row in rows], object))
    sizes = [len(split_rows) for split_rows in splits.values()]
    columns = torch.from_numpy(number), torch.tensor([row["label"] for row in rows])
    sentence, label = (dict(zip(splits, torch.split(x_N, sizes), strict=True)) for x_N in columns)
    return Examples([*texts], sentence, label)


def measure_sst2(
    options: OfflineIsotropy, seed: int, examples: Examples, clouds: Clouds, layer: int
) -> PartResult:
    """Accuracy of a head on each setting's features, on dev, and on test where it has gold.

    Transforms and head are fitted on the training examples alone.
    """
    _, sentence, label = examples
    cloud = clouds()[layer]
    ordinary = cloud.ordinary()
    sample_M = sample(
        ordinary, options.max_rows, seed, among_U=np.unique(sentence["train"].numpy())
    )
    fit_MD = torch.from_numpy(ordinary.rows_ND[sample_M])
    fits = fit_transforms(fit_MD, options, seed, f"{SST2} train")
    facts: dict[str, Cell] = {"set": SST2, "split": "train", "layer": layer}
    embeddings, records = apply_fits(cloud, fits, sample_M, facts)
    gold_splits = [s for s in ("dev", "test") if len(label[s]) and bool((label[s] >= 0).all())]
    for setting, x_UD in embeddings.items():
        head = fit_head(x_UD[sentence["train"]], label["train"], options.l2)
        for split in gold_splits:
            is_right = head.predict(x_UD[sentence[split]].double().numpy()) == label[split].numpy()
            low, high = wilson(share := float(is_right.mean()), n := len(is_right))
            keys = {"kind": "head", **facts, "split": split, "setting": setting}
            counts = {"n_train": len(label["train"]), "n_rows": n}
            interval = {"accuracy_low": low, "accuracy_high": high}
            records.append({**keys, **counts, "accuracy": share, **interval})
    return PartResult(records)


def fit_head(x_ND: Tensor, class_N: Tensor, l2: float) -> Any:
    """Logistic regression: mean log loss + λ/2·‖W‖², features of mean variance 1 over all.

    One scale for all features, so that a rotation changes no output. scikit-learn has one column
    w = w₁ − w₀ for two classes, and ‖W‖² is ‖w‖²/2.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer
    from threadpoolctl import threadpool_limits

    x_nD = x_ND.double().numpy()
    mean_D = x_nD.mean(axis=0)
    spread = np.sqrt(np.square(x_nD - mean_D).mean()) or 1.0
    scaler = FunctionTransformer(lambda rows: (rows - mean_D) / spread)
    classifier = LogisticRegression(C=2 / (l2 * len(x_nD)), max_iter=MOST_STEPS, tol=SETTLED)
    with threadpool_limits(torch.get_num_threads()):  # else BLAS takes every core
        return make_pipeline(scaler, classifier).fit(x_nD, class_N.numpy())


class Agreement(NamedTuple):
    """Correlation of each setting, times 100, and its gain over the baseline."""

    value_S: Floats
    error_S: Floats  # standard errors over pairs
    gain_S: Floats
    gain_error_S: Floats  # paired: both settings on the same resampled pairs


def cosines(pooled_UD: Tensor, first_P: np.ndarray, second_P: np.ndarray) -> Floats:
    """The cosine of each pair of rows, in float64."""
    sides = (torch.from_numpy(side) for side in (first_P, second_P))
    cosine_P: Floats = paired_cosines(*(pooled_UD.double()[side_P] for side_P in sides)).numpy()
    return cosine_P


def agreement(
    score: str, gold_P: Floats, cosine_SP: Floats, baseline: int, n_resamples: int, seed: int
) -> Agreement:
    """The correlation of each setting; NaN without spread.

    Errors are standard deviations over bootstrap resamples of the pairs, the same for all
    settings; gains are over the setting with the number `baseline`.

    >>> gold = np.array([0.0, 1.0, 2.0, 3.0])
    >>> found = agreement("pearson", gold, gold[None], 0, 50, 0)
    >>> found.value_S.round(6).tolist(), found.error_S.round(6).tolist()
    ([100.0], [0.0])
    """
    n, cosine_SP = len(gold_P), np.asfortranarray(cosine_SP)  # the order of sums in memory
    value_S = 100.0 * SCORES[score](gold_P, cosine_SP, np.ones((1, n)))[0]
    generator, block = np.random.default_rng(seed), max(1, RESAMPLED // n)
    blocks = []
    for start in range(0, n_resamples, block):
        n_drawn = min(block, n_resamples - start)
        count_RP = generator.multinomial(n, np.full(n, 1 / n), size=n_drawn).astype(float)
        blocks.append(100.0 * SCORES[score](gold_P, cosine_SP, count_RP))
    resampled_RS = np.concatenate(blocks)
    gain_RS = resampled_RS - resampled_RS[:, [baseline]]
    error_S, gain_error_S = (x_RS.std(axis=0, ddof=1) for x_RS in (resampled_RS, gain_RS))
    return Agreement(value_S, error_S, value_S - value_S[baseline], gain_error_S)


@analysis
class OfflineIsotropy(Analysis):
    """Transforms of token embeddings, then mean pooling, cosine and its correlation with gold.

    Each layer (by default every second one down from the last) is transformed and scored on its
    own. CLS, SEP and pads are neither fitted nor pooled, as published; `own_pooling` is the mean
    over all tokens. Gains are over `none`. Each different sentence counts once. Statistics are
    fitted on one split and frozen: with `fit_on=train` on STS-B's train split, less the scored
    sentences; with `test` on the scored sentences, the published protocol (transductive, without
    gold); for SST-2, whose features a linear head reads, on its train split. The arguments are the
    keys of
    `conf/analysis/offline_isotropy.yaml`. Rajaei and Sheikhi 2020; Rajaee and Pilehvar 2021.
    """

    name = "offline_isotropy"
    question = "What do transforms of frozen token embeddings do to STS scores and isotropy?"

    TABLES, PLOTS = TABLES, PLOTS

    sets: Available | Sequence[SetName] = AVAILABLE
    transforms: Sequence[Setting] = get_args(Setting)
    layers: Literal["alternate", "all"] | Sequence[int] = "alternate"
    n_clusters: Annotated[int, Field(ge=2)] = 27
    n_components: Annotated[int, Field(ge=1)] = 12
    n_directions: Annotated[int, Field(ge=1)] = 12
    n_iterations: Annotated[int, Field(ge=1)] = 10
    rho: Annotated[float, Field(gt=0, le=1)] = 0.25
    fit_on: Literal["train", "test"] = "train"
    max_rows: Annotated[int, Field(ge=100)] = 50_000
    n_resamples: Annotated[int, Field(ge=50)] = 200
    max_train: Annotated[int, Field(ge=10)] = 10_000
    l2: Annotated[float, Field(gt=0)] = 1e-3

    def __post_init__(self) -> None:
        """Add what gains are over."""
        if NONE not in self.transforms:
            self.transforms = (NONE, *self.transforms)

    def missing(self, source: Source) -> Sequence[str]:
        """Requested sets that the source lacks, or all if it has none; scikit-learn."""
        names, _, problems = present(source, self.sets, PLACES)
        return [*problems, *(not_installed() if SST2 in names else [])]

    def data_sets(self, source: Source) -> Iterable[Any]:
        """The measured data sets, and the one that statistics are fitted on."""
        names = present(source, self.sets, PLACES).names
        fit = [TRAIN] if self.fit_on == "train" and names != [SST2] else []
        return [PLACES[name].data_set for name in [*names, *fit]]

    def parts(self, subject: Subject) -> Iterator[Part]:
        """The absent sets, then each set at each layer."""
        all_layers = range(subject.encoder.n_blocks + 1)
        presets = {"all": all_layers, "alternate": all_layers[subject.encoder.n_blocks % 2 :: 2]}
        layers = presets[self.layers] if isinstance(self.layers, str) else self.layers
        if absent_layers := [k for k in layers if k not in all_layers]:
            raise CannotRunError(
                f"analysis.layers must be 0 (embeddings) to {subject.encoder.n_blocks}, got "
                f"{absent_layers}"
            )
        pairs, absent = readable_sets(subject.source, self.sets)
        records = [{"kind": "set left out", "set": n, "reason": why} for n, why in absent.items()]
        yield Part("sets", lambda: PartResult(records))
        for name in present(subject.source, self.sets, PLACES).names:
            if name not in absent:
                measure = self._measure(subject, layers, name, pairs.get(name))
                for layer in layers:
                    yield Part(f"{name}-layer_{layer:02d}", partial(measure, layer))

    def _measure(
        self, subject: Subject, layers: Sequence[int], name: str, pairs: Pairs | None
    ) -> Callable[[int], PartResult]:
        """What measures a layer of a set; SST-2 has no pairs."""
        encode, train_clouds = partial(token_clouds, subject, layers=layers), None
        if pairs is None:
            examples = read_examples(subject.source, self.max_train, subject.seed)
            clouds = cache(partial(encode, examples.sentences))
            return partial(measure_sst2, self, subject.seed, examples, clouds)
        if self.fit_on == "train":  # less scored sentences: some are in STS12 to 17
            scored = {*pairs.sentences}
            train = sts_pairs(subject.source, PLACES[TRAIN].data_set, "train").sentences
            fit_texts = [text for text in train if text not in scored]
            train_clouds = cache(partial(encode, fit_texts, most=self.max_rows))
        clouds = cache(partial(encode, pairs.sentences))
        return partial(measure_pairs, self, subject.seed, name, pairs, clouds, train_clouds)
