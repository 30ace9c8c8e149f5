"""SST-2 at one layer: frozen embeddings transformed, pooled, and read by a linear head.

N rows, U sentences, D dimensions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from isotrain.analysis.linear_probe import fit_logistic
from isotrain.analysis.offline_isotropy.cloud import Clouds, pooled, sample
from isotrain.analysis.offline_isotropy.transforms import OWN_POOLING, Fitting, shapes
from isotrain.analysis.sst2_data_set import DATA
from isotrain.analysis.sts_sets import SST2
from isotrain.analysis.types import Cell, Found, Record
from isotrain.geometry.groups import hashed_order
from isotrain.pages.verdict import wilson
from isotrain.runs.record import CannotRunError
from isotrain.tasks.data.sources import Source, load_split


class Examples(NamedTuple):
    """The examples of each split."""

    sentences: list[str]  # the different ones
    sentence: Mapping[str, Tensor]  # number of the sentence of each example
    label: Mapping[str, Tensor]


def read_examples(source: Source, max_train: int, seed: int) -> Examples:
    """Dev, test, and `max_train` training examples at most, drawn from the seed.

    Raises:
        CannotRunError: the training examples are of one class.
    """
    splits = {split: load_split(source, DATA, split) for split in ("train", "dev", "test")}
    order = hashed_order(len(splits["train"]), seed)[:max_train].tolist()
    splits["train"] = [splits["train"][i] for i in order]
    texts = {split: [row["sentence"].strip() for row in own] for split, own in splits.items()}
    sentences = list(dict.fromkeys(text for own in texts.values() for text in own))
    number = {text: i for i, text in enumerate(sentences)}
    at = {split: torch.tensor([number[text] for text in own]) for split, own in texts.items()}
    label = {s: torch.tensor([row["label"] for row in own]) for s, own in splits.items()}
    if len(set(label["train"].tolist())) < 2:
        raise CannotRunError(
            f"a linear head needs rows of two classes, and {len(label['train'])} training rows of "
            f"{SST2} have one; set analysis.max_train higher"
        )
    return Examples(sentences, at, label)


def measure_sst2(
    examples: Examples, clouds: Clouds, fitting: Fitting, l2: float, layer: int
) -> Found:
    """Accuracy of a head on each setting's features, on dev, and on test where it has gold.

    Transforms and head are fitted on the training examples alone.
    """
    _, at, label = examples
    cloud = clouds()[layer]
    rows = sample(cloud, fitting.max_rows, fitting.seed, among_U=np.unique(at["train"].numpy()))
    fits = fitting.fits(rows.x_MD, f"{SST2} train")
    facts: dict[str, Cell] = {"set": SST2, "split": "train", "layer": layer}
    records: list[Record] = []
    for record in shapes(rows.x_MD, fits, facts):
        records.append({**record, "n_sentences": rows.n_sentences})
    for setting, transform in fits.items():
        fitting.tell(f"{SST2}, layer {layer}: fitting a head on {setting}")
        x_UD = pooled(cloud, transform, specials=setting == OWN_POOLING)
        head = next(fit_logistic(x_UD[at["train"]], label["train"], [l2], one_scale=True))
        for split in ("dev", "test"):
            if not len(label[split]) or bool((label[split] < 0).any()):  # no gold
                continue
            share = float((head(x_UD[at[split]]).argmax(dim=1) == label[split]).double().mean())
            low, high = wilson(share, n := len(label[split]))
            records.append(
                {
                    "kind": "head",
                    **facts,
                    "split": split,
                    "setting": setting,
                    "n_train": len(label["train"]),
                    "n_rows": n,
                    "accuracy": share,
                    "accuracy_low": low,
                    "accuracy_high": high,
                }
            )
    return Found(records)
