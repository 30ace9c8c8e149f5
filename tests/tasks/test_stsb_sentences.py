"""Task stsb_sentences: each sentence of train once, none of them one that is scored."""

import json

import pytest

from isotrain.tasks.data.sources import LocalSource
from isotrain.tasks.stsb_sentences import STSBSentences

SPLITS = {
    "train": [("A cat.", "A dog."), ("A dog.", "A bird."), ("A fish.", "A cow.")],
    "dev": [("a  fish", "A hen.")],
    "test": [("A goat.", "A cow.")],
}


def write(root, splits):
    (root / "stsb").mkdir()
    for split, pairs in splits.items():
        rows = [{"sentence1": a, "sentence2": b, "score": i} for i, (a, b) in enumerate(pairs)]
        (root / "stsb" / f"{split}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return LocalSource(str(root))


def test_sentences_and_what_is_left_out(tmp_path):
    task = STSBSentences()
    rows = task.load(write(tmp_path, SPLITS))
    file = tmp_path / "stsb" / "train.jsonl"
    assert rows["train"] == [
        {"sentence1": "A cat.", "at": f"{file}:1"},
        {"sentence1": "A dog.", "at": f"{file}:1"},
        {"sentence1": "A bird.", "at": f"{file}:2"},
    ]
    assert task.left_out == {"train: repeated": 1, "train: also in dev or test": 2}


def test_no_sentence_of_its_own_is_rejected(tmp_path):
    source = write(tmp_path, {**SPLITS, "train": [("A fish.", "A cow.")]})
    with pytest.raises(ValueError, match=r"all 2 sentences of train in .* are also in dev"):
        STSBSentences().load(source)
