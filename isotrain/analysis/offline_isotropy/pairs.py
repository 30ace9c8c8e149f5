"""One set of sentence pairs at one layer: embeddings transformed, pooled, compared and scored.

N rows (tokens), P pairs, S settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from isotrain.analysis.offline_isotropy.cloud import Clouds, pooled, sample
from isotrain.analysis.offline_isotropy.maps import row_maps
from isotrain.analysis.offline_isotropy.scores import (
    Floats,
    agreement,
    cosines,
    groups_of,
    subset_names,
)
from isotrain.analysis.offline_isotropy.transforms import NONE, OWN_POOLING, Fitting, shapes
from isotrain.analysis.sts_sets import PLACES, Pairs, sts_pairs
from isotrain.analysis.types import Cell, Found, Record
from isotrain.types import Source

TRAIN = "stsb"  # whose train split statistics come from, unless from the scored sentences


class Scoring(NamedTuple):
    """How cosines are held against gold."""

    aggregates: Sequence[str]
    n_resamples: int
    seed: int


def measure_pairs(
    name: str,
    pairs: Pairs,
    clouds: Clouds,
    train_clouds: Clouds | None,
    fitting: Fitting,
    scoring: Scoring,
    map_rows: int,
    layer: int,
) -> Found:
    """Records of the cloud and of the correlations of a set at a layer; `map_rows` points of maps.

    Statistics come from `train_clouds`, or where there are none from the scored sentences.
    """
    data_set, split = PLACES[name]
    cloud = clouds()[layer]
    rows = sample(cloud, fitting.max_rows, fitting.seed)
    if train_clouds is None:
        fits = fitting.fits(rows.x_MD, f"{data_set.name} {split}")
    else:
        train = sample(train_clouds()[layer], fitting.max_rows, fitting.seed)
        fits = fitting.fits(train.x_MD, f"{TRAIN} train")
    facts: dict[str, Cell] = {"set": name, "split": split, "layer": layer}
    records: list[Record] = []
    for record in shapes(rows.x_MD, fits, facts):
        records.append({**record, "n_sentences": rows.n_sentences})
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
    fitting.tell(f"{name}, layer {layer}: scoring {len(pairs.gold_P):,} pairs")
    facts |= {"n_sentences": cloud.n_sentences, "n_sentences_cut": cloud.n_cut}
    known = {setting: fitted.facts for setting, fitted in fits.items() if fitted}
    records += (
        {**record, **known.get(str(record.get("setting")), {})}
        for record in scores(pairs, cosine_SP, [*fits], scoring, facts)
    )
    maps = row_maps(rows, fits, map_rows, fitting.seed) if map_rows else {}
    return Found(records, {f"layer_{layer:02d}/{key}": array for key, array in maps.items()})


def train_sentences(source: Source, name: str, pairs: Pairs) -> list[str]:
    """The sentences of STS-B's train split, without those that are scored.

    STS-B was selected from STS12 to STS17, so that its train split has sentences of their tests.

    Raises:
        ValueError: nothing is left.
    """
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
    scoring: Scoring,
    facts: Mapping[str, Cell],
) -> Iterator[Record]:
    """A record for each setting and aggregate, and for each setting and subset."""
    by_subset = False
    for aggregate in scoring.aggregates:
        own = {**facts, "aggregate": aggregate}
        try:
            groups, weights = groups_of(pairs.subset_P, aggregate, len(pairs.gold_P))
        except ValueError as error:
            yield {"kind": "aggregate left out", **own, "reason": str(error)}
            continue
        by_subset |= aggregate != "all"
        own = {"kind": "similarity", **own, "n_groups": len(groups)}
        yield from _correlations(pairs, cosine_SP, settings, scoring, own, groups, weights)
    if by_subset and pairs.subset_P is not None:
        for subset in subset_names(pairs.subset_P):
            at = np.flatnonzero(pairs.subset_P == subset)
            own = {"kind": "subset", **facts, "subset": subset}
            yield from _correlations(pairs, cosine_SP, settings, scoring, own, [at], [1.0])


def _correlations(
    pairs: Pairs,
    cosine_SP: Floats,
    settings: Sequence[str],
    scoring: Scoring,
    facts: Mapping[str, Cell],
    groups: Sequence[np.ndarray],
    weights: Sequence[float],
) -> Iterator[Record]:
    found = {
        score: agreement(
            score,
            pairs.gold_P,
            cosine_SP,
            groups,
            weights,
            settings.index(NONE),
            scoring.n_resamples,
            scoring.seed,
        )
        for score in ("spearman", "pearson")
    }
    for s, setting in enumerate(settings):
        record = {**facts, "setting": setting, "n_pairs": sum(map(len, groups))}
        for score, one in found.items():
            record[score] = float(one.value_S[s])
            record[f"{score}_error"] = float(one.error_S[s])
            record[f"{score}_gain"] = float(one.gain_S[s])
            record[f"{score}_gain_error"] = float(one.gain_error_S[s])
        yield record
