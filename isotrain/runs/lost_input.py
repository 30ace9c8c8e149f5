"""Lost input of a run: truncated texts and target words, unknown tokens, examples left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what a run leaves is read without torch
    from isotrain.types import Example

ADJECTIVES = {"train": "training", "holdout": "held-out"}  # of a split's examples


def lost_input(
    examples: Mapping[str, Sequence[Example]], left_out: Mapping[str, int]
) -> dict[str, Any]:
    """The losses of each split that has any, for the record.

    Args:
        examples: of each split, with what each one `lost`.
        left_out: examples that a task left out, by split and reason ("test: no gold").
    """
    losses: dict[str, Any] = {}
    for split, split_examples in examples.items():
        if counts := Counter(loss for example in split_examples for loss in set(example.lost)):
            losses[split] = {"examples": len(split_examples), "lost": dict(sorted(counts.items()))}
    for key, n in left_out.items():
        split, reason = key.split(": ", 1) if ": " in key else ("", key)  # of a task of one's own
        losses.setdefault(split, {}).setdefault("left_out", {})[reason] = n
    return losses


def lost_text(lost: Mapping[str, Any]) -> str:
    """The losses in words, for the terminal, the page and tables; empty if there are none.

    >>> lost_text({"train": {"examples": 2490, "lost": {"cut at task.max_length=128": 304}},
    ...            "test": {"left_out": {"no gold": 3000}}})
    '304 of 2,490 training examples cut at task.max_length=128; left out of test: 3,000 (no gold)'
    """
    texts = []
    for split, losses in lost.items():
        of_all = f"of {losses.get('examples', 0):,} {ADJECTIVES.get(split, split)} examples"
        texts += [f"{n:,} {of_all} {loss}" for loss, n in losses.get("lost", {}).items()]
        if left_out := losses.get("left_out"):
            counts = ", ".join(f"{n:,} ({reason})" for reason, n in left_out.items())
            texts.append(f"left out{f' of {split}' if split else ''}: {counts}")
    return "; ".join(texts)
