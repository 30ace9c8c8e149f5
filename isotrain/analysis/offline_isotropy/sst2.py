"""SST-2 with frozen features: rows transformed, pooled, and read by a linear head.

N rows, U sentences, D dimensions.
"""

from __future__ import annotations

import numpy as np
import torch

from isotrain.analysis.linear_probe import fit_logistic
from isotrain.analysis.offline_isotropy.cloud import pooled, sample, token_cloud
from isotrain.analysis.offline_isotropy.transforms import OWN_POOLING, Fitting, shapes
from isotrain.analysis.sts_sets import SST2
from isotrain.analysis.types import Cell, Found, Record, Subject
from isotrain.geometry.groups import hashed_order
from isotrain.pages.verdict import wilson
from isotrain.record import CannotRunError
from isotrain.tasks.sources import load_split
from isotrain.tasks.sst2 import DATA


def measure_sst2(
    subject: Subject, layer: int, fitting: Fitting, max_train: int, l2: float
) -> Found:
    """Accuracy of a head on each setting's features, on dev, and on test where it has gold.

    Transforms and head are fitted on the training rows alone, `max_train` of them at most.
    """
    splits = {split: load_split(subject.source, DATA, split) for split in ("train", "dev", "test")}
    order = hashed_order(len(splits["train"]), fitting.seed)[:max_train].tolist()
    splits["train"] = [splits["train"][i] for i in order]
    texts = {split: [row["sentence"].strip() for row in own] for split, own in splits.items()}
    number = dict.fromkeys(text for own in texts.values() for text in own)
    number = {text: i for i, text in enumerate(number)}
    at = {split: torch.tensor([number[text] for text in own]) for split, own in texts.items()}
    cloud = token_cloud(subject, SST2, list(number), layer)
    rows = sample(cloud, fitting.max_rows, fitting.seed, among_U=np.unique(at["train"].numpy()))
    fits = fitting.fits(rows.x_MD, f"{SST2} train")
    facts: dict[str, Cell] = {"set": SST2, "split": "train", "layer": layer}
    records: list[Record] = []
    for record in shapes(rows.x_MD, fits, facts):
        records.append({**record, "n_sentences": rows.n_sentences})
    label = {s: torch.tensor([row["label"] for row in own]) for s, own in splits.items()}
    if len(set(label["train"].tolist())) < 2:
        raise CannotRunError(
            f"a linear head needs rows of two classes, and {len(label['train'])} training rows of "
            f"{SST2} have one; set analysis.max_train higher"
        )
    for setting, transform in fits.items():
        subject.tell(f"{SST2}: fitting a head on {setting}")
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
