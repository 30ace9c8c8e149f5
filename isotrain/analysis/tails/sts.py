"""Sentence similarity of mean-pooled rows, before and after a treatment. P pairs, N sentences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from isotrain.analysis.encode import encode_rows, tokenise, whole_sentences
from isotrain.analysis.rank_correlation import spearman
from isotrain.analysis.sts_sets import PLACES, TEST_SETS, NoGoldError, read_pairs
from isotrain.analysis.tails.treatments import TREATMENTS, pair_cosines, treatments
from isotrain.analysis.types import Record, Subject
from isotrain.geometry.groups import hashed_order
from isotrain.tasks.data.sources import Source

FIT = "stsb"  # whose train split whitening is fitted on


def sts_sets(source: Source) -> list[str]:
    """The STS sets that a source has; none where it lacks the one whitening is fitted on.

    >>> from isotrain.tasks.data.demo_generator import DemoSource
    >>> sts_sets(DemoSource())
    ['stsb']
    """
    found = [name for name in TEST_SETS if not source.missing(PLACES[name].data_set)]
    return found if FIT in found else []


def sts_records(
    subject: Subject, sets: Sequence[str], dims: list[int], epsilon: float, most: int | None
) -> list[Record]:
    """Spearman × 100 of cosine and gold, for each set, treatment and layer.

    Sentences are means over all their tokens, CLS and SEP among them. All pairs of the test split
    of a set are ranked together. Whitening is fitted on the sentences of STS-B's train split that
    are in none of the sets. A set without gold has a record that says so. `most` pairs of each set,
    drawn from the seed; None = all.
    """
    records: list[Record] = []
    texts: dict[str, int] = {}
    pairs = {}
    for name in sets:
        try:
            found = read_pairs(subject.source, PLACES[name].data_set, "test")
        except NoGoldError as error:
            records.append({"kind": "sts left out", "set": name, "why": str(error)})
            continue
        n = len(found.gold_P)
        own = np.arange(n) if most is None else np.sort(hashed_order(n, subject.seed)[:most])
        at = [
            [texts.setdefault(found.sentences[i], len(texts)) for i in side_P[own]]
            for side_P in (found.first_P, found.second_P)
        ]
        pairs[name] = (torch.tensor(at), found.gold_P[own])
    train = read_pairs(subject.source, PLACES[FIT].data_set, "train").sentences
    order = hashed_order(len(train), subject.seed).tolist()
    fit = [train[i] for i in order if train[i] not in texts][: None if most is None else 2 * most]
    tokens = tokenise(subject.encoder.tokenizer, [*texts, *fit], subject.max_length)
    rows = encode_rows(subject, "sts", tokens, whole_sentences(tokens))
    for layer, x_ND in enumerate(rows):
        subject.tell(f"STS, layer {layer} of {len(rows) - 1}")
        x = torch.from_numpy(x_ND)
        maps = treatments(x[len(texts) :], dims, epsilon)
        for treatment in TREATMENTS:
            treated_ND = maps[treatment](x[: len(texts)])
            for name, (at_2P, gold_P) in pairs.items():
                cosine_P = pair_cosines(treated_ND[at_2P[0]], treated_ND[at_2P[1]])
                score = spearman(cosine_P.numpy(), gold_P)
                percent = (None if part is None else 100 * part for part in score)
                value, low, high = percent
                records.append(
                    {
                        "kind": "sts",
                        "set": name,
                        "treatment": treatment,
                        "layer": layer,
                        "n_pairs": len(gold_P),
                        "n_fit": len(fit),
                        "spearman": value,
                        "low": low,
                        "high": high,
                    }
                )
    return records
