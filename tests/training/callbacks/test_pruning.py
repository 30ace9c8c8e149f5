"""A pruned run: what its trial is reported, and that it resumes as one that was not pruned."""

import json

import pytest

from isotrain.model.checkpoint import load_checkpoint
from isotrain.runner import folder_of, run
from isotrain.training.callbacks.pruning import PrunedError, Pruning
from isotrain.training.callbacks.resume import KEY
from tests.stopped_runs import assert_same_end, finished


class FakeTrial:
    """Prunes at one evaluation."""

    def __init__(self, at=0):
        self.at, self.reports = at, []

    def report(self, value, step):
        self.reports.append((step, value))

    def should_prune(self):
        return self.reports[-1][0] == self.at


@pytest.fixture
def keys(small):
    return (
        *small,
        "task=wic",
        "isotropy=cluster_pca",
        "isotropy.n_clusters=2",
        "metric=[isoscore]",
        "training.select=best",
        "trainer.val_check_interval=3",  # of 12 batches
    )


def pruning(trial):
    return {"callbacks": [Pruning(trial, "val/accuracy")]}


def scores(rows):
    return [row["val/accuracy"] for row in rows if "val/accuracy" in row and row["step"] > 0]


def test_a_pruned_run_resumes_and_ends_as_one_that_was_not(composed, keys, tmp_path):
    whole = FakeTrial()
    reference = finished(composed(*keys, f"output_dir={tmp_path / 'a'}"), **pruning(whole))
    assert [number for number, _ in whole.reports] == [1, 2, 3, 4], "not the one at step 0"
    assert [value for _, value in whole.reports] == scores(reference[1])[:4]
    cfg = composed(*keys, f"output_dir={tmp_path / 'b'}")
    first, second = FakeTrial(at=2), FakeTrial()
    with pytest.raises(PrunedError):
        run(cfg, **pruning(first))
    folder = folder_of(cfg)
    assert json.loads((folder / "result.json").read_text())["status"] == "interrupted"
    assert load_checkpoint(folder / "resume.ckpt")[KEY]["step"] == 6
    assert first.reports == whole.reports[:2]
    assert_same_end(finished(cfg, **pruning(second)), reference)
    assert second.reports == whole.reports[2:]


def test_a_run_pruned_at_its_end_is_finished(composed, keys, tmp_path):
    cfg = composed(*keys, f"output_dir={tmp_path}")
    assert "val/accuracy" in run(cfg, **pruning(FakeTrial(at=4)))
