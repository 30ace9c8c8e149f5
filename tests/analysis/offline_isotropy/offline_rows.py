"""Small STS and SST-2 sets on disk, a tiny encoder for them, and the outcome of an analysis."""

import json
import random

from isotrain.tasks.data.sources import LocalSource
from tests.analysis import runs

SMALL = {
    "n_clusters": 3,
    "n_components": 2,
    "n_directions": 2,
    "max_rows": 300,
    "n_resamples": 50,
}
WORDS = ("the", "a", "dog", "cat", "horse", "bird", "old", "small", "red", "sees", "likes")


def sentences(rng, n):
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, 7))) for _ in range(n)]


def pair_rows(seed, n, **more):
    rng = random.Random(seed)
    pairs = zip(sentences(rng, n), sentences(rng, n), strict=True)
    rows = [{"sentence1": a, "sentence2": b, "score": rng.uniform(0, 5)} for a, b in pairs]
    return [row | {key: value(i) for key, value in more.items()} for i, row in enumerate(rows)]


def labelled_rows(seed, n):
    rng = random.Random(seed)
    return [{"sentence": text, "label": rng.randint(0, 1)} for text in sentences(rng, n)]


def write(root, name, split, rows):
    (root / name).mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (root / name / f"{split}.jsonl").write_text(lines, encoding="utf-8")


def write_sets(root):
    """STS-B with two subsets, STS12 without, and SST-2."""
    by_half = {"file": lambda i: ("images", "belief")[i % 2]}
    for seed, split in enumerate(("train", "dev", "test")):
        write(root, "stsb", split, pair_rows(seed, 30, **by_half))
        write(root, "sst2", split, labelled_rows(seed, 30))
    write(root, "sts12", "test", pair_rows(5, 30))
    return root


def subject_on(encoder, root, folder):
    return runs.subject_on(encoder, LocalSource(str(root)), folder)
