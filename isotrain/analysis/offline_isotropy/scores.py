"""Score one set at one layer: transform, pool and compare with gold labels.

Sentence pairs are compared by cosine, the labels of SST-2 read by a linear head.

N rows (tokens), P pairs, U sentences, S settings, R resamples, D dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotrain.analysis.data_sets import PLACES, SST2, SST2_DATA, Pairs, sts_pairs
from isotrain.analysis.offline_isotropy.clouds import (
    NONE,
    OWN_POOLING,
    Clouds,
    Fitted,
    Sample,
    fit_transforms,
    pooled,
    sample,
    shapes,
)
from isotrain.analysis.plots import principal_map
from isotrain.analysis.probe import MOST_STEPS, SETTLED
from isotrain.analysis.types import Cell, Found, Record, Subject
from isotrain.geometry.cosine import paired_cosines
from isotrain.geometry.groups import hashed_order
from isotrain.pages.verdict import wilson
from isotrain.reporting.row_bootstrap import SCORES
from isotrain.tasks.data.sources import Source, load_split

if TYPE_CHECKING:
    from isotrain.analysis.offline_isotropy.analysis import OfflineIsotropy

Floats = NDArray[np.float64]
BLOCK = 2**20  # numbers in one array of resamples
TRAIN = "stsb"  # whose train split statistics come from, unless from the scored sentences


def measure_pairs(
    subject: Subject,
    options: OfflineIsotropy,
    name: str,
    pairs: Pairs,
    clouds: Clouds,
    train_clouds: Clouds | None,
    map_rows: int,
    layer: int,
) -> Found:
    """Isotropy and correlations of a set at a layer; None = fit on the scored sentences."""
    data_set, split = PLACES[name]
    cloud, seed = clouds()[layer], subject.seed
    rows = sample(cloud, options.max_rows, seed)
    if train_clouds is None:
        fits = fit_transforms(rows.x_MD, f"{data_set.name} {split}", options, subject)
    else:
        train = sample(train_clouds()[layer], options.max_rows, seed)
        fits = fit_transforms(train.x_MD, f"{TRAIN} train", options, subject)
    facts: dict[str, Cell] = {"set": name, "split": split, "layer": layer}
    records: list[Record] = [*shapes(rows, fits, facts)]
    cosine_SP = np.stack(
        [
            cosines(
                pooled(cloud, transform, specials=setting == OWN_POOLING),
                pairs.first_P,
                pairs.second_P,
            )
            for setting, transform in fits.items()
        ]
    )
    subject.tell(f"{name}, layer {layer}: scoring {len(pairs.gold_P):,} pairs")
    facts |= {"n_sentences": cloud.n_sentences, "n_sentences_cut": cloud.n_cut}
    known = {setting: fitted.facts for setting, fitted in fits.items() if fitted}
    found = scores(pairs, cosine_SP, [*fits], options.n_resamples, seed, facts)
    records += ({**record, **known.get(str(record["setting"]), {})} for record in found)
    maps = row_maps(rows, fits, map_rows, seed) if map_rows else {}
    return Found(records, {f"layer_{layer:02d}/{key}": array for key, array in maps.items()})


def row_maps(
    rows: Sample, fits: Mapping[str, Fitted | None], n_points: int, seed: int
) -> dict[str, np.ndarray]:
    """`map_<setting>` `[n, 2]` and `share_<setting>` `[2]` of each transform; `frequency` `[n]`.

    The frequency of a point is how often its token occurs in the sample.
    """
    at_n = hashed_order(len(rows.x_MD), seed)[:n_points]
    _, index_M, count = np.unique(rows.token_M, return_inverse=True, return_counts=True)
    found = {"frequency": count[index_M][at_n.numpy()]}
    for setting, transform in fits.items():
        if setting != OWN_POOLING:
            y_MD = rows.x_MD if transform is None else transform(rows.x_MD)
            point_M2, share_2 = principal_map(y_MD, 2)
            found[f"map_{setting}"] = point_M2[at_n].float().numpy()
            found[f"share_{setting}"] = share_2.numpy()
    return found


def train_sentences(source: Source, name: str, pairs: Pairs) -> list[str]:
    """The sentences of STS-B's train split, without those that are scored (some of STS12 to 17)."""
    scored = set(pairs.sentences)
    train = sts_pairs(source, PLACES[TRAIN].data_set, "train").sentences
    left = [text for text in train if text not in scored]
    if not left:
        raise ValueError(
            f"fit_on=train: every sentence of {TRAIN} train is scored in {name}; use fit_on=test"
        )
    return left


def scores(
    pairs: Pairs,
    cosine_SP: Floats,
    settings: Sequence[str],
    n_resamples: int,
    seed: int,
    facts: Mapping[str, Cell],
) -> Iterator[Record]:
    """A record for each setting: both correlations times 100, gains over none, standard errors."""
    gold_P, none = pairs.gold_P, settings.index(NONE)
    found = {
        score: agreement(score, gold_P, cosine_SP, none, n_resamples, seed)
        for score in ("spearman", "pearson")
    }
    for s, setting in enumerate(settings):
        record: dict[str, Cell] = {"kind": "similarity", **facts, "setting": setting}
        record["n_pairs"] = len(gold_P)
        for score, one in found.items():
            record[score] = float(one.value_S[s])
            record[f"{score}_error"] = float(one.error_S[s])
            record[f"{score}_gain"] = float(one.gain_S[s])
            record[f"{score}_gain_error"] = float(one.gain_error_S[s])
        yield record


class Examples(NamedTuple):
    """The examples of each split."""

    sentences: list[str]  # the different ones
    sentence: Mapping[str, Tensor]  # number of the sentence of each example
    label: Mapping[str, Tensor]


def read_examples(source: Source, max_train: int, seed: int) -> Examples:
    """Dev, test, and `max_train` training examples at most, drawn from the seed."""
    splits = {split: load_split(source, SST2_DATA, split) for split in ("train", "dev", "test")}
    order = hashed_order(len(splits["train"]), seed)[:max_train].tolist()
    splits["train"] = [splits["train"][i] for i in order]
    texts = {split: [row["sentence"].strip() for row in own] for split, own in splits.items()}
    sentences = list(dict.fromkeys(text for own in texts.values() for text in own))
    number = {text: i for i, text in enumerate(sentences)}
    at = {split: torch.tensor([number[text] for text in own]) for split, own in texts.items()}
    label = {s: torch.tensor([row["label"] for row in own]) for s, own in splits.items()}
    return Examples(sentences, at, label)


def measure_sst2(
    subject: Subject, options: OfflineIsotropy, examples: Examples, clouds: Clouds, layer: int
) -> Found:
    """Accuracy of a head on each setting's features, on dev, and on test where it has gold.

    Transforms and head are fitted on the training examples alone.
    """
    _, at, label = examples
    cloud = clouds()[layer]
    train_U = np.unique(at["train"].numpy())
    rows = sample(cloud, options.max_rows, subject.seed, among_U=train_U)
    fits = fit_transforms(rows.x_MD, f"{SST2} train", options, subject)
    facts: dict[str, Cell] = {"set": SST2, "split": "train", "layer": layer}
    records: list[Record] = [*shapes(rows, fits, facts)]
    for setting, transform in fits.items():
        subject.tell(f"{SST2}, layer {layer}: fitting a head on {setting}")
        x_UD = pooled(cloud, transform, specials=setting == OWN_POOLING)
        head = fit_head(x_UD[at["train"]], label["train"], options.l2)
        for split in ("dev", "test"):
            if not len(label[split]) or bool((label[split] < 0).any()):  # no gold
                continue
            right = head.predict(x_UD[at[split]].double().numpy()) == label[split].numpy()
            share = float(right.mean())
            low, high = wilson(share, n := len(label[split]))
            place = {"kind": "head", **facts, "split": split, "setting": setting}
            counts = {"n_train": len(label["train"]), "n_rows": n}
            ends = {"accuracy_low": low, "accuracy_high": high}
            records.append({**place, **counts, "accuracy": share, **ends})
    return Found(records)


def fit_head(x_ND: Tensor, class_N: Tensor, l2: float) -> Any:
    """Logistic regression: mean log loss + λ/2·‖W‖², features of mean variance 1 over all.

    One scale for all features, so that a rotation changes no output. scikit-learn has one column
    w = w₁ − w₀ for two classes, and ‖W‖² is ‖w‖²/2.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    x_nD = x_ND.double().numpy()
    mean_D = x_nD.mean(axis=0)
    spread = np.sqrt(np.square(x_nD - mean_D).mean()) or 1.0
    scaled = FunctionTransformer(lambda rows: (rows - mean_D) / spread)
    fit = LogisticRegression(C=2 / (l2 * len(x_nD)), max_iter=MOST_STEPS, tol=SETTLED)
    return make_pipeline(scaled, fit).fit(x_nD, class_N.numpy())


class Agreement(NamedTuple):
    """Correlation of each setting, times 100, and its gain over the baseline."""

    value_S: Floats
    error_S: Floats  # standard errors over pairs
    gain_S: Floats
    gain_error_S: Floats  # paired: both settings on the same resampled pairs


def cosines(pooled_UD: Tensor, first_P: np.ndarray, second_P: np.ndarray) -> Floats:
    """The cosine of each pair of rows, in float64."""
    at = (torch.from_numpy(side) for side in (first_P, second_P))
    found_P: Floats = paired_cosines(*(pooled_UD.double()[side_P] for side_P in at)).numpy()
    return found_P


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
    generator, block = np.random.default_rng(seed), max(1, BLOCK // n)
    blocks = []
    for start in range(0, n_resamples, block):
        n_drawn = min(block, n_resamples - start)
        count_RP = generator.multinomial(n, np.full(n, 1 / n), size=n_drawn).astype(float)
        blocks.append(100.0 * SCORES[score](gold_P, cosine_SP, count_RP))
    resampled_RS = np.concatenate(blocks)
    gain_RS = resampled_RS - resampled_RS[:, [baseline]]
    error_S, gain_error_S = (one.std(axis=0, ddof=1) for one in (resampled_RS, gain_RS))
    return Agreement(value_S, error_S, value_S - value_S[baseline], gain_error_S)
