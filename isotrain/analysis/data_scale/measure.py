"""Scores of the heads of one task on one kind of features: every seed, every training size.

E examples, N rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import torch

from isotrain.analysis.data_scale.diagnostic import Diagnostic, matthews
from isotrain.analysis.data_scale.examples import Examples, unseen_shares
from isotrain.analysis.data_scale.features import Features
from isotrain.analysis.data_scale.head import train_head
from isotrain.analysis.data_scale.order import held_out, nested_order
from isotrain.analysis.types import Record
from isotrain.tasks.conll import span_f1


class Plan(NamedTuple):
    """Which heads are trained."""

    sizes: list[int]  # of training sets, rising
    seeds: list[int]  # one draw of training examples each
    hidden: int  # units of a head


def measured(
    features: Features,
    examples: Examples,
    plan: Plan,
    diagnostic: Diagnostic | None,
    tell: Callable[[str], None],
) -> Iterator[Record]:
    """A record for each seed and size; and for each category, by the heads of the largest size."""
    label_N = torch.from_numpy(examples.label_N)
    first = int(np.searchsorted(examples.example_N, examples.n_train))  # row behind training
    for number, seed in enumerate(plan.seeds):
        order = nested_order(examples.stratum_E[: examples.n_train], seed)
        for size in plan.sizes:
            tell(f"seed {number}, {size:,} training examples")
            held_n = held_out(examples.stratum_E[order[:size]])
            fit, held = (examples.rows_of(order[:size][part]) for part in (~held_n, held_n))
            head = train_head(
                features,
                label_N,
                torch.from_numpy(fit),
                torch.from_numpy(held),
                n_classes=len(examples.classes),
                hidden=plan.hidden,
                seed=seed,
            )
            class_n = head.classes(features, torch.arange(first, len(features))).numpy()
            scores = scored(examples, class_n, order[:size])
            yield {"kind": "score", "size": size, "seed": number, **scores, "epochs": head.n_epochs}
        if diagnostic is not None:
            more = class_n[examples.n_scored :]
            gold = np.array([row["label"] for row in diagnostic.rows])
            for category, mask_N in diagnostic.category.items():
                yield {
                    "kind": "diagnostic",
                    "size": size,
                    "seed": number,
                    "category": category,
                    "n": int(mask_N.sum()),
                    "correlation": matthews(gold[mask_N], more[mask_N]) if mask_N.any() else None,
                }


def scored(examples: Examples, class_n: np.ndarray, chosen_E: np.ndarray) -> Record:
    """The score of predicted classes; and those of the halves with fewer and with more new words.

    A scored example is of the second half where a larger share of its words than the median's is
    in none of the chosen training examples.
    """
    unseen_E = unseen_shares(examples, chosen_E)
    many_E = unseen_E > np.median(unseen_E)
    return {
        "score": _score(examples, class_n, np.ones_like(many_E)),
        "n_scored": len(many_E),
        "unseen_share": float(unseen_E.mean()),
        "score_few_unseen": _score(examples, class_n, ~many_E),
        "n_few_unseen": int((~many_E).sum()),
        "score_many_unseen": _score(examples, class_n, many_E),
        "n_many_unseen": int(many_E.sum()),
    }


def majority(examples: Examples) -> float | None:
    """The share of the largest class among the scored examples; None for tags."""
    if examples.gold_E is not None:
        return None
    counts = np.bincount(examples.label_N[examples.rows_of(examples.scored_E)])
    return float(counts.max() / counts.sum())


def _score(examples: Examples, class_n: np.ndarray, kept_E: np.ndarray) -> float | None:
    """Accuracy of the kept scored examples, or F1 of the entities of tagged ones."""
    kept = examples.scored_E[kept_E]
    if not len(kept):
        return None
    first = np.searchsorted(examples.example_N, examples.n_train)  # row of the first prediction
    if examples.gold_E is None:
        row_n = examples.rows_of(kept)
        return float((class_n[row_n - first] == examples.label_N[row_n]).mean())
    gold = [examples.gold_E[e] for e in kept]
    rows = (examples.rows_of(np.array([e])) - first for e in kept)
    return span_f1(gold, [[examples.classes[c] for c in class_n[own]] for own in rows])
