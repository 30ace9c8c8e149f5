"""The real data sets: counts, WiC spans, and the published STS-B score of MiniLM untrained."""

import os
import re

import pytest
import torch
from hydra.utils import instantiate
from transformers import BertTokenizer

from isotrain.encoders.on_disk import packaged_folder
from isotrain.model.isotropic_model import IsotropicModel
from isotrain.model.pooling import MeanPooling
from isotrain.tasks.data.encoding import collate
from isotrain.tasks.data.sources import LocalSource
from isotrain.tasks.nli_pairs import NLIPairs
from isotrain.tasks.text import DATA, Text, is_heading, split_sentences
from isotrain.tasks.wic import WiC
from isotrain.training.data import SortedBatches
from tests.parts import RTE, SNLI, STSB

pytestmark = pytest.mark.real_data

COUNTS = {
    RTE: (2490, 277, 0),
    WiC: (5428, 638, 1400),
    STSB: (5749, 1500, 1379),
    SNLI: (10000, 9842, 9824),  # train is a part of it
}


@pytest.fixture(scope="module")
def source():
    return LocalSource(os.environ["ISOTRAIN_DATA_DIR"])


@pytest.fixture(scope="module")
def minilm_tokenizer():
    return BertTokenizer.from_pretrained(packaged_folder())


@pytest.mark.parametrize("kind", COUNTS)
def test_official_counts(source, kind):
    rows = kind().load(source)
    assert tuple(len(rows[split]) for split in ("train", "dev", "test")) == COUNTS[kind]


@pytest.mark.slow
def test_sentences_of_wikitext(source):
    """17,556 paragraphs of 74,585 sentences; where nothing is quoted, a pattern finds the same."""
    task = Text()
    rows = task.load(source)
    assert {split: len(found) for split, found in rows.items()} == {
        "train": 73186,
        "dev": 1500,
        "test": 1379,
    }
    assert task.left_out == {
        "train: headings": 6211,
        "train: fewer than 4 words": 1244,
        "train: repeated": 155,
    }
    n_plain = 0
    for line in source.read(DATA, "dev"):
        if not is_heading(line["text"]) and not re.search(r'["()[\]]', line["text"]):
            words = " ".join(line["text"].split())
            expected = re.split(r"(?<= [.!?]) (?![a-z.,;:!?ß-öø-ÿ])", words)
            assert list(split_sentences(line["text"])) == expected
            n_plain += 1
    assert n_plain > 500


@pytest.mark.parametrize(
    ("hard", "n", "n_left"), [(False, 3341, 6659), (True, 106, 9790)], ids=["pairs", "triplets"]
)
def test_pairs_of_snli(source, hard, n, n_left):
    task = NLIPairs(hard_negatives=hard)
    rows = task.load(source)
    assert tuple(len(rows[split]) for split in ("train", "dev", "test")) == (n, 1500, 1379)
    assert task.left_out == {"train: of no example": n_left}


@pytest.mark.parametrize("form", ["cross", "bi"])
def test_every_wic_span_covers_its_word(source, minilm_tokenizer, form):
    task = WiC(form=form, max_length=128)
    for rows in task.load(source).values():
        for row, example in zip(rows, task.encode(rows, minilm_tokenizer), strict=True):
            spans = [(q, span) for q, part in enumerate(example.spans) for span in part]
            for number, (q, (start, stop)) in zip("12", spans, strict=True):
                tokens = minilm_tokenizer.convert_ids_to_tokens(example.input_ids[q][start:stop])
                text = row[f"sentence{number}"][row[f"start{number}"] : row[f"end{number}"]]
                spelled = "".join(token.removeprefix("##") for token in tokens)
                assert "".join(minilm_tokenizer.tokenize(text)).replace("##", "") in spelled


@pytest.mark.slow
def test_stsb_without_training(source, composed):
    encoder = instantiate(composed("encoder=minilm").encoder)
    task = STSB(form="bi", max_length=128)
    examples = task.encode(task.load(source)["test"], encoder.tokenizer)
    model = IsotropicModel(encoder, MeanPooling(), task.build_head(384, 2), {}).eval()
    score = task.metrics()
    lengths = [max(map(len, e.input_ids)) for e in examples]
    with torch.inference_mode():
        for rows in SortedBatches(lengths, 64):
            batch = collate([examples[i] for i in rows], encoder.tokenizer.pad_token_id)
            score.update(task.predictions(model(batch).logits), batch.labels)
    assert float(score.compute()["spearman"]) == pytest.approx(0.8203, abs=0.0005)
