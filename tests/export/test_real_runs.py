"""A run of the command line, exported, and scored by sentence-transformers without isotrain."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from isotrain.runs.files import read_result
from isotrain.runs.predictions import read_predictions
from isotrain.tasks.data.demo_generator import DemoSource
from tests.export.test_processes import WITHOUT, in_a_process

pytestmark = pytest.mark.campaign

SCORE = """
import json
import torch
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer

model, found = SentenceTransformer("folder", device="cpu"), {}
for split, rows in json.load(open("rows.json")).items():
    names = ("sentence1", "sentence2")
    u, v = (model.encode([row[k] for row in rows], convert_to_tensor=True) for k in names)
    cosines = torch.cosine_similarity(u, v).tolist()
    found[split] = cosines, spearmanr(cosines, [row["score"] for row in rows]).statistic
json.dump(found, open("found.json", "w"))
assert "isotrain" not in sys.modules
"""


def command(*arguments):
    done = subprocess.run(
        [sys.executable, "-m", "isotrain", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_sentence_transformers_score_an_export_as_the_run_was_scored(tmp_path):
    train = ["task=stsb", "task.form=bi", "pooling=mean", "isotropy=zca", "metric=[]"]
    train += ["encoder=tiny", "source=demo", "trainer.max_steps=4", "trainer.accelerator=cpu"]
    command("train", *train, "report=false", f"output_dir={tmp_path / 'runs'}")
    (run,) = (tmp_path / "runs" / "stsb").iterdir()
    command("export", str(run), "--to", str(tmp_path / "to"))
    (tmp_path / "to" / "sentence-transformers").rename(tmp_path / "folder")
    rows = {split: DemoSource().rows("stsb", split) for split in ("dev", "test")}
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    in_a_process(tmp_path, WITHOUT + SCORE)
    found, scores = json.loads((tmp_path / "found.json").read_text()), read_result(run)["scores"]
    for split, stage in (("dev", "val"), ("test", "test")):
        cosines, score = found[split]
        recorded = read_predictions(run, split).prediction
        np.testing.assert_allclose(cosines, recorded, rtol=0, atol=1e-6)
        # two neighbours that float32 puts the other way round move it by 12 / N² at most
        n_close = int((np.diff(np.sort(recorded)) < 5e-7).sum())
        limit = 1e-6 + 12 * n_close / len(recorded) ** 2
        assert score == pytest.approx(scores[f"{stage}/spearman"], abs=limit)
