"""The real data sets: counts, WiC spans, and the published STS-B score of MiniLM untrained."""

from __future__ import annotations

import os

import pytest
import torch
from hydra.utils import instantiate
from transformers import BertTokenizer

from isotrain.encoders.minilm import packaged_folder
from isotrain.model import IsotropicModel
from isotrain.poolers import MeanPooling
from isotrain.tasks.rte import RTE
from isotrain.tasks.sources import LocalSource
from isotrain.tasks.stsb import STSB
from isotrain.tasks.wic import WiC
from isotrain.training.data import SortedBatches, collate

pytestmark = pytest.mark.real_data

COUNTS = {RTE: (2490, 277, 0), WiC: (5428, 638, 1400), STSB: (5749, 1500, 1379)}


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
