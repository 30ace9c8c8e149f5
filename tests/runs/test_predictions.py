"""What a run predicted for every row: written, read, and worth the scores of the run."""

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr
from torch.nn.functional import cross_entropy

from isotrain.runner import folder_of, run
from isotrain.runs.files import read_result
from isotrain.runs.predictions import Predictions, path_of, read_predictions, write_predictions

floats = st.floats(-1e6, 1e6, width=32)


@given(st.dictionaries(st.integers(0, 2**24), st.tuples(floats, floats), min_size=1, max_size=9))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_written_is_read_in_the_order_of_rows(tmp_path, rows):
    index = np.array(list(rows))
    label, prediction = np.array(list(rows.values()), dtype=np.float32).T
    logits = np.stack([label, prediction], axis=1)
    write_predictions(tmp_path, "dev", Predictions(index, label, prediction))
    assert read_predictions(tmp_path, "dev").logits is None
    write_predictions(tmp_path, "dev", Predictions(index, label, prediction, logits))
    found = read_predictions(tmp_path, "dev")
    assert found.logits.astype(np.float32).tolist() == logits[np.argsort(index)].tolist()
    order = np.argsort(index)
    assert found.index.tolist() == index[order].tolist()
    assert found.label.astype(np.float32).tolist() == label[order].tolist()
    assert found.prediction.astype(np.float32).tolist() == prediction[order].tolist()


@pytest.mark.parametrize(
    ("text", "message"),
    [("a,b\n1,2\n", "not enough values"), ("index,label,prediction\n1,2,x\n", "could not convert")],
)
def test_another_file_is_rejected(tmp_path, text, message):
    write_predictions(tmp_path, "dev", Predictions(*np.ones((3, 1))))
    path_of(tmp_path, "dev").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_predictions(tmp_path, "dev")


def scaled_by_grid(test, dev):
    """The log loss of test at the temperature that is the best of a grid on dev."""
    (logits, labels), (dev_logits, dev_labels) = (
        (torch.from_numpy(x.logits), torch.from_numpy(x.label).long()) for x in (test, dev)
    )
    grid = torch.cat([torch.zeros(1), torch.logspace(-3, 2, 2001)]).double()
    losses = torch.stack([cross_entropy(b * dev_logits, dev_labels) for b in grid])
    return float(cross_entropy(grid[losses.argmin()] * logits, labels))


@pytest.mark.parametrize(("task", "select"), [("wic", "best"), ("stsb", "last")])
def test_the_scores_of_a_run_are_those_of_its_predictions(composed, small, tmp_path, task, select):
    cfg = composed(
        *small,
        f"task={task}",
        f"output_dir={tmp_path}",
        f"training.select={select}",
        "trainer.max_steps=6",
        "trainer.val_check_interval=2",
        "optimizer.lr=1e-2",
    )
    scores = run(cfg)
    folder = folder_of(cfg)
    both = {split: read_predictions(folder, split) for split in ("dev", "test")}
    for stage, (split, found) in zip(("val", "test"), both.items(), strict=True):
        assert found.index.tolist() == sorted(set(found.index))
        assert len(found.index) == read_result(folder)["n_rows"][split]
        if task == "stsb":
            expected = spearmanr(found.label, found.prediction).statistic
            assert scores[f"{stage}/spearman"] == pytest.approx(expected, abs=1e-6)
            assert found.logits is None
            continue
        accuracy = np.mean(found.label == found.prediction)
        assert scores[f"{stage}/accuracy"] == pytest.approx(accuracy, abs=1e-6)
        logits, labels = torch.from_numpy(found.logits), torch.from_numpy(found.label).long()
        assert logits.argmax(1).tolist() == found.prediction.tolist()
        loss = float(cross_entropy(logits, labels))
        assert scores[f"{stage}/loss"] == pytest.approx(loss, abs=1e-5)
    if task == "wic":
        expected = scaled_by_grid(both["test"], both["dev"])
        assert scores["test/scaled_loss"] == pytest.approx(expected, abs=1e-3)
