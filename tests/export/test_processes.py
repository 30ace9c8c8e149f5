"""Exports in processes of their own: without isotrain, and with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from isotrain.export.command import main

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow

WITHOUT = """
import sys

class NoIsotrain:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "isotrain":
            raise ImportError("isotrain is not to be imported here")

sys.meta_path.insert(0, NoIsotrain())
"""
CLASSIFY = """
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

texts, logits = torch.load("known.pt")
tokenizer = AutoTokenizer.from_pretrained("folder")
model = AutoModelForSequenceClassification.from_pretrained("folder").eval()
inputs = tokenizer(*texts, truncation=True, padding=True, return_tensors="pt")
scale = max(1.0, logits.abs().max())
with torch.no_grad():
    rounded, found = model(**inputs).logits, model.double()(**inputs).logits
assert (found - logits).abs().max() <= 1e-6 * scale, found - logits
assert (rounded - logits).abs().max() <= 5e-6 * scale, rounded - logits  # sums of float32
assert "isotrain" not in sys.modules
"""
COMPARE = """
import sys
import torch
from sentence_transformers import SentenceTransformer

(first, second), cosines = torch.load("known.pt")
model = SentenceTransformer("folder", device="cpu", trust_remote_code=TRUSTED)
u, v = (model.encode(texts, convert_to_tensor=True) for texts in (first, second))
found = torch.cosine_similarity(u, v)
assert (found - cosines).abs().max() <= 1e-6, found - cosines
assert ("isotrain" in sys.modules) == TRUSTED
"""


def in_a_process(folder, text):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {
        "HF_HUB_OFFLINE": "1"
    }
    if "TRUSTED=True" in text:
        environment["PYTHONPATH"] = str(ROOT)
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def exported(made_run, of_the_run, tmp_path):
    """`exported(format, overrides, family)`: a folder with `folder` and what is known of it."""

    def export(form, *overrides, family):
        run = made_run("metric=[]", *overrides, family=family)
        assert main([str(run), "--format", form]) == 0
        known = of_the_run(run)
        place = tmp_path / "elsewhere"
        place.mkdir()
        (run / "export" / form).rename(place / "folder")
        with torch.no_grad():
            cosines = known.model.float()(known.batch).logits[:, 0]
        expected = known.output.logits if form == "transformers" else cosines
        torch.save((list(known.columns), expected), place / "known.pt")
        return place

    return export


@pytest.mark.parametrize(
    ("family", "pooling"),
    [("tiny", "cls"), ("roberta", "cls"), ("distilbert", "cls"), ("gpt2", "last")],
)
def test_plain_transformers_give_the_logits_of_the_run(exported, family, pooling):
    overrides = ("task=rte", "isotropy=zca", f"pooling={pooling}")
    in_a_process(exported("transformers", *overrides, family=family), WITHOUT + CLASSIFY)


@pytest.mark.parametrize("isotropy", ["none", "clip"])
def test_plain_sentence_transformers_give_the_cosines_of_the_run(exported, isotropy):
    overrides = ("task=stsb", "task.form=bi", "pooling=mean", f"isotropy={isotropy}")
    place = exported("sentence-transformers", *overrides, family="tiny")
    in_a_process(place, "TRUSTED=False\n" + WITHOUT + COMPARE)


def test_sentence_transformers_take_the_layer_of_isotrain_where_it_is_installed(exported):
    overrides = ("task=stsb", "task.form=bi", "pooling=mean", "isotropy=cluster_pca")
    place = exported("sentence-transformers", *overrides, "site=[tokens]", family="tiny")
    in_a_process(place, "TRUSTED=True\n" + COMPARE)
