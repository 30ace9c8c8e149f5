"""Task nli_pairs: which hypotheses become pairs and triplets."""

import json
import shutil

import pytest

from isotrain.tasks.data.demo_generator import DemoSource
from isotrain.tasks.data.sources import LocalSource
from isotrain.tasks.nli_pairs import NLIPairs
from tests.parts import STSB

ENTAILED, NEUTRAL, CONTRADICTED, NO_GOLD = 0, 1, 2, -1
ROWS = [
    ("p1", "e1", ENTAILED),
    ("p2", "c1", CONTRADICTED),
    ("p1", "n1", NEUTRAL),
    ("p3", "e2", ENTAILED),
    ("p3", "c2", CONTRADICTED),
    ("p3", "x", NO_GOLD),
    ("p3", "e3", ENTAILED),
    ("p4", "e4", ENTAILED),
    ("p4", "c3", CONTRADICTED),
    ("p4", "c4", CONTRADICTED),
]


@pytest.fixture
def source(data_dir, tmp_path):
    """`source(rows)`: a folder with these rows of SNLI, and the fixture's STS-B."""
    shutil.copytree(data_dir / "stsb", tmp_path / "stsb")

    def write(rows):
        (tmp_path / "snli").mkdir()
        names = ("premise", "hypothesis", "label")
        lines = [json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows]
        for split in ("train", "dev"):
            (tmp_path / "snli" / f"{split}.jsonl").write_text("".join(lines))
        return LocalSource(str(tmp_path))

    return write


def texts(rows):
    return [tuple(v for k, v in sorted(row.items()) if k != "at") for row in rows]


def test_pairs(source):
    task = NLIPairs()
    rows = task.load(source(ROWS))["train"]
    assert texts(rows) == [("p1", "e1"), ("p3", "e2"), ("p3", "e3"), ("p4", "e4")]
    assert [int(row["at"].rpartition(":")[2]) for row in rows] == [1, 4, 7, 8]
    assert task.left_out == {"train: no gold": 1, "train: of no example": 5}


def test_triplets_take_contradictions_in_turn(source):
    task = NLIPairs(hard_negatives=True)
    rows = task.load(source([*ROWS, ("p4", "e5", ENTAILED), ("p4", "e6", ENTAILED)]))["train"]
    assert texts(rows) == [
        ("p3", "e2", "c2"),
        ("p3", "e3", "c2"),
        ("p4", "e4", "c3"),
        ("p4", "e5", "c4"),
        ("p4", "e6", "c3"),
    ]
    # p1's two, p2's one
    assert task.left_out == {"train: no gold": 1, "train: of no example": 3}


@pytest.mark.parametrize(
    ("rows", "hard", "message"),
    [
        (ROWS[:3], True, "none of 2 premises in .*snli .*has an entailed and a contradicted hyp"),
        (ROWS[1:3], False, "none of 2 premises .* has an entailed hypothesis; use other data"),
    ],
)
def test_no_example_is_rejected_with_the_count(source, rows, hard, message):
    with pytest.raises(ValueError, match=message):
        NLIPairs(hard_negatives=hard).load(source(rows))


@pytest.mark.parametrize(("hard", "n"), [(False, 2), (True, 3)])
def test_sequences_of_training_and_evaluation(source, tokenizer, hard, n):
    task = NLIPairs(hard_negatives=hard, train_length=5)
    rows = task.load(source([("q q", "z z z z z", 0), ("q q", "7 7 7", 2)]))
    assert task.n_sequences == n
    (example,) = task.encode(rows["train"], tokenizer)
    assert [len(ids) for ids in example.input_ids] == [4, 5, 5][:n]
    assert example.label == 0.0
    assert task.encode(rows["dev"], tokenizer) == STSB(form="bi").encode(rows["dev"], tokenizer)


def test_generated_premises_have_both():
    rows = NLIPairs(hard_negatives=True).load(DemoSource())["train"]
    assert len(rows) == len({row["sentence1"] for row in rows}) == 1000
    assert all(len({*one}) == 3 for one in texts(rows))
