"""Tasks without a loss of their own: what a run of one logs and rejects."""

import pytest
import torch

from isotrain.runner import folder_of
from isotrain.runs.files import read_result
from isotrain.tasks.contrastive import FirstPairCosine
from tests.stopped_runs import finished

SIMCSE = ("objective=[simcse]", "metric=[isoscore]", "trainer.log_every_n_steps=1", "threads=1")
PAIR = ("objective.simcse.positives=pair", "task.hard_negatives=true")
BEHIND = ("isotropy=cluster_pca", "isotropy.n_clusters=2")
CHOICES = {
    "text, tokens": ("task=text", "pooling=mean", *BEHIND, "site=[tokens,pooled]"),
    "text, refit": ("task=text", *BEHIND, "isotropy.eval_stats=refit", "site=[pooled]"),
    "pairs": ("task=nli_pairs", "objective.simcse.positives=pair", *BEHIND, "site=[layer_1]"),
    "triplets": ("task=nli_pairs", *PAIR, *BEHIND, "site=[tokens,pooled]"),
}


@pytest.mark.parametrize("name", CHOICES)
def test_a_run_trains_by_the_objective_and_is_scored_on_pairs(composed, small, tmp_path, name):
    more = (*SIMCSE, *CHOICES[name], f"output_dir={tmp_path}", "trainer.max_steps=3")
    cfg = composed(*small, *more)
    scores, rows, state = finished(cfg)
    record = read_result(folder_of(cfg))
    steps = [row for row in rows if "train/loss" in row]
    assert len(steps) == 3
    assert all(row["train/loss"] == row["train/simcse"] > 0 for row in steps)
    assert not any("train/task_loss" in row for row in rows)
    assert {"val/spearman", "val/pearson", "val/loss", "test/spearman"} <= set(scores)
    evaluated = [row["step"] for row in rows if "val/spearman" in row]
    assert (evaluated[0], evaluated[-1]) == (0, 3)
    assert record["n_rows"]["dev"] == record["n_rows"]["test"] == 32
    names = ("wikitext-2" if "text" in name else "snli", "stsb")
    assert all(part in one for part, one in zip(names, record["data"].split("; "), strict=True))
    assert record["lost_input"]["train"]["left_out"]
    assert any("isotropy/isoscore/pooled/after" in row for row in rows) == ("pooled" in str(more))
    assert any(key.startswith("model.encoder") for key in state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_head(dtype):
    head = FirstPairCosine()
    assert list(head.parameters()) == []
    pooled = torch.randn(5, 3, 4, dtype=dtype, requires_grad=True)
    expected = (pooled[:, 0] * pooled[:, 1]).sum(1) / pooled[:, :2].norm(dim=2).prod(1)
    for n in (2, 3):
        torch.testing.assert_close(head(pooled[:, :n])[:, 0], expected)
    alone = head(pooled[:, :1])
    assert alone.tolist() == [[0.0]] * 5
    assert not alone.requires_grad
