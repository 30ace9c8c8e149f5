"""Raw, clipped and whitened embeddings on WiC (cosine threshold) and STS.

L layers, N embeddings or pairs, P pairs of a set, D dimensions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from isotrain.analysis.data_sets import PLACES, TEST_SETS, NoGoldError, sts_pairs
from isotrain.analysis.encode import encode_rows, tokenise, whole_sentences
from isotrain.analysis.probe import spearman
from isotrain.analysis.selection import find_targets, wic_pairs
from isotrain.analysis.types import Cell, Record, Subject
from isotrain.geometry.cosine import paired_cosines
from isotrain.geometry.groups import hashed_order
from isotrain.geometry.whitening import apply_whitening
from isotrain.pages.verdict import wilson
from isotrain.tasks.data.sources import SPLITS, Source
from isotrain.transforms.cut_tails import CutTails
from isotrain.transforms.whitening import Whitening

NONE, CUT, WHITENED = "none", "cut", "whitened"
TREATMENTS = (NONE, CUT, WHITENED)

Treatment = Callable[[Tensor], Tensor]


def treatments(fit_ND: Tensor, dims: Sequence[int], epsilon: float) -> Mapping[str, Treatment]:
    """Maps `[N, D] -> [N, D]` by name, float64: `none`, `cut` and `whitened`.

    `cut` sets `dims` to zero; `whitened` is (x − μ)·U diag((λ + ε·λ̄)^−1/2) with the mean and
    directions of `fit`; ε = 1e-6 keeps directions emptied by a norm small. Luo 2020; Su
    2021 (whitening, ε = 0).

    >>> x = torch.tensor([[3.0, 50.0], [1.0, 50.0], [-4.0, 51.0]])
    >>> treatments(x, [1], 0.0)["cut"](x[:1]).tolist()
    [[3.0, 0.0]]
    """
    fit_ND = fit_ND.double()
    width = fit_ND.shape[1]
    tails = CutTails(width, dims=list(dims), mode="zero")
    cut = tails.estimate(fit_ND)
    whitening = Whitening(width, epsilon, keep_scale=False).estimate(fit_ND)
    return {
        NONE: lambda x_ND: x_ND.double(),
        CUT: lambda x_ND: tails.transform(x_ND.double(), cut, are_last=False),
        WHITENED: lambda x_ND: apply_whitening(x_ND.double(), whitening),
    }


def pair_cosines(u_ND: Tensor, v_ND: Tensor) -> Tensor:
    """Cosine `[N]` of each pair (u_i, v_i), in [−1, 1]; 0 if either vector is zero."""
    return paired_cosines(u_ND, v_ND).clamp(-1.0, 1.0)


FIT = "fit"  # the half of train used to fit whitening
EVALUATED = ("dev", "test")
Answers = Mapping[str, tuple[Tensor, Tensor]]
"""By split: cosines `[N]`, and whether the sense is the same `[N]`."""


class Threshold(NamedTuple):
    """Predict "same sense" if cosine ≥ `value`; accuracy on the data used to select it."""

    value: float
    accuracy: float


def best_threshold(cosine_N: Tensor, same_N: Tensor) -> Threshold:
    """The threshold with the highest accuracy; the lowest of ties.

    Candidates are −1 (all the same sense), the midpoints of adjacent cosines, and one just above
    1 (none). Exact, by one sort.

    >>> best_threshold(torch.tensor([0.75, 0.25, 1.0, 0.0]), torch.tensor([1, 0, 1, 0]))
    Threshold(value=0.5, accuracy=1.0)
    """
    order_N = cosine_N.argsort()
    cosine_N, same_N = cosine_N.double()[order_N], same_N.long()[order_N]
    n = len(cosine_N)
    none_below, ones = same_N.new_zeros(1), int(same_N.sum())
    same_below = torch.cat([none_below, same_N.cumsum(0)])  # [N + 1]: count in the k smallest
    right = torch.arange(n + 1) - same_below + (ones - same_below)
    middle = (cosine_N[1:] + cosine_N[:-1]) / 2
    value = torch.cat(
        [middle.new_tensor([-1.0]), middle, middle.new_tensor([math.nextafter(1.0, 2.0)])]
    )
    apart = torch.ones(n + 1, dtype=torch.bool)
    apart[1:-1] = cosine_N[1:] > cosine_N[:-1]  # no threshold between equal cosines
    k = int(torch.where(apart, right, -1).argmax())
    return Threshold(float(value[k]), int(right[k]) / n)


def accuracy(cosine_N: Tensor, same_N: Tensor, threshold: float) -> float:
    """Accuracy of a threshold."""
    return float(((cosine_N.double() >= threshold).long() == same_N.long()).double().mean())


def wic_records(
    subject: Subject, dims: list[int], epsilon: float, most: int | None
) -> list[Record]:
    """WiC accuracy of each treatment and layer, and of each treatment's selected layer.

    Whitening is fitted on the targets of one half of train (`fit_half`); the other half selects
    threshold and layer. `optimistic_<split>`: with the threshold tuned on that split;
    `constant_true`: always predicting "same". `wic chosen`: the selected layer, and the best cell.
    """
    rows = {split: wic_pairs(subject.source, split, most, subject.seed) for split in SPLITS}
    given = [row for split in SPLITS for row in rows[split]]
    found = find_targets(given, subject.encoder.tokenizer, subject.max_length)
    split_N = np.repeat(SPLITS, [len(rows[split]) for split in SPLITS])[found.kept_N]
    same_N = torch.tensor([int(given[k]["label"]) for k in found.kept_N])
    train = np.flatnonzero(split_N == "train")
    if len(train) < 2:
        raise ValueError(
            f"{len(train)} pairs of WiC's train split keep both targets within "
            f"{subject.max_length} tokens, and two are needed; raise max_length"
        )
    is_fit = fit_half([str(given[found.kept_N[i]]["word"]) for i in train], subject.seed)
    split_N = split_N.astype(object)
    split_N[train[is_fit]] = FIT
    target = encode_rows(subject, "wic", found.tokens, found.spans)
    cells: dict[str, dict[int, Answers]] = {name: {} for name in TREATMENTS}
    at = {split: torch.from_numpy(split_N == split) for split in SPLITS if split in split_N}
    for layer, x_ND in enumerate(target):
        subject.tell(f"WiC, layer {layer} of {len(target) - 1}")
        pair_N2D = torch.from_numpy(x_ND).reshape(-1, 2, x_ND.shape[1])
        for name, cosine_N in _cosines(pair_N2D, split_N, dims, epsilon).items():
            cells[name][layer] = {s: (cosine_N[at_N], same_N[at_N]) for s, at_N in at.items()}
    counts = {"n_fit": int(is_fit.sum()), "n_left_out": found.n_left_out}
    return [record for name in TREATMENTS for record in _scored(name, cells[name], counts)]


def fit_half(words: Sequence[str], seed: int) -> np.ndarray:
    """Mask of the training pairs used to fit whitening, one half; sampled by hashing words.

    Whitening pushes the embeddings it was fitted on too far apart, so all pairs of a word are in
    one half, except for the word at the cut.

    >>> fit_half(["dog", "cat", "dog", "cat"], seed=0).tolist()
    [True, False, True, False]
    """
    names, word_N = np.unique(words, return_inverse=True)
    rank_W = hashed_order(len(names), seed).argsort().numpy()
    rank_N = hashed_order(len(words), seed).argsort().numpy()
    mask_N = np.zeros(len(words), dtype=bool)
    mask_N[np.lexsort((rank_N, rank_W[word_N]))[: len(words) // 2]] = True
    return mask_N


def _cosines(
    pair_N2D: Tensor, split_N: np.ndarray, dims: Sequence[int], epsilon: float
) -> dict[str, Tensor]:
    """The cosine `[N]` of each pair by treatment; whitening is fitted on the pairs of FIT alone."""
    is_fit_N = torch.from_numpy(split_N == FIT)
    maps = treatments(pair_N2D[is_fit_N].flatten(0, 1), dims, epsilon)
    return {t: pair_cosines(maps[t](pair_N2D[:, 0]), maps[t](pair_N2D[:, 1])) for t in TREATMENTS}


def _scored(name: str, cells: Mapping[int, Answers], counts: Mapping[str, int]) -> list[Record]:
    """The records of a treatment, from the cosines of each layer."""
    records: list[Record] = []
    for layer, answers in cells.items():
        threshold = best_threshold(*answers["train"])
        record: dict[str, Cell] = {
            "kind": "wic",
            "treatment": name,
            "layer": layer,
            "threshold": threshold.value,
            "train": threshold.accuracy,
            "n_train": len(answers["train"][1]),
            **counts,
        }
        for split in (s for s in EVALUATED if s in answers):
            share, n = accuracy(*answers[split], threshold.value), len(answers[split][1])
            low, high = wilson(share, n)
            record |= {split: share, f"n_{split}": n, f"{split}_low": low, f"{split}_high": high}
            record[f"{split}_error"] = math.sqrt(share * (1 - share) / n)
            record[f"constant_true_{split}"] = float(answers[split][1].double().mean())
            record[f"optimistic_{split}"] = best_threshold(*answers[split]).accuracy
        record.setdefault("n_dev", 0)  # the table reports it even if no pair is left
        records.append(record)
    chosen = max(records, key=lambda r: (r["train"], -int(r["layer"] or 0)))
    best = {key: max(float(r[key] or 0) for r in records) for key in chosen if "optimistic" in key}
    return [*records, {**chosen, **best, "kind": "wic chosen"}]


STS_FIT = "stsb"  # whitening is fitted on its train split


def sts_sets(source: Source) -> list[str]:
    """The STS sets of a source; empty if it lacks the set that whitening is fitted on.

    >>> from isotrain.tasks.data.demo_generator import DemoSource
    >>> sts_sets(DemoSource())
    ['stsb']
    """
    found = [name for name in TEST_SETS if not source.missing(PLACES[name].data_set)]
    return found if STS_FIT in found else []


def sts_records(
    subject: Subject, sets: Sequence[str], dims: list[int], epsilon: float, most: int | None
) -> list[Record]:
    """Spearman × 100 of cosine and gold score, for each set, treatment and layer.

    Sentences are means of all their tokens; `most` pairs of a test split are sampled. Whitening is
    fitted on the sentences of STS-B's train split that occur in no set.
    """
    records: list[Record] = []
    texts: dict[str, int] = {}
    pairs = {}
    for name in sets:
        try:
            found = sts_pairs(subject.source, PLACES[name].data_set, "test")
        except NoGoldError as error:
            records.append({"kind": "sts left out", "set": name, "why": str(error)})
            continue
        n = len(found.gold_P)
        own = np.arange(n) if most is None else np.sort(hashed_order(n, subject.seed)[:most])
        sides = [
            [texts.setdefault(found.sentences[i], len(texts)) for i in side_P[own]]
            for side_P in (found.first_P, found.second_P)
        ]
        pairs[name] = (torch.tensor(sides), found.gold_P[own])
    train = sts_pairs(subject.source, PLACES[STS_FIT].data_set, "train").sentences
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
                at: Record = {"set": name, "treatment": treatment, "layer": layer}
                counts = {"n_pairs": len(gold_P), "n_fit": len(fit)}
                scores = dict(zip(("spearman", "low", "high"), percent, strict=True))
                records.append({"kind": "sts", **at, **counts, **scores})
    return records
