"""Runs on changed training data: what is trained on, what is recorded, and resuming."""

import json
from collections import Counter

import pytest
import torch

from isotrain.runner import folder_of, run
from tests.stopped_runs import fail, finished, stopped

WHOLE = {"entailment": 1500, "not_entailment": 1500}


@pytest.fixture
def demo(tmp_path):
    """Overrides of two steps on the demo source."""
    return (
        *("encoder=tiny", "encoder.width=8", "encoder.n_blocks=1", "source=demo", "task=rte"),
        *("trainer.accelerator=cpu", "trainer.max_steps=2", "metric=[]", "data.batch_size=4"),
        *("data.eval_batch_size=250", "checkpoint.final=false", f"output_dir={tmp_path / 'runs'}"),
    )


def result_of(cfg):
    folder = folder_of(cfg)
    return json.loads((folder / "result.json").read_text())


def classes(before, kept, trained_on):
    return {
        name: {"before": before[name], "kept": kept[i], "trained_on": trained_on[i]}
        for i, name in enumerate(before)
    }


@pytest.mark.parametrize(
    ("override", "done", "line"),
    [
        ("data.n_train=null", {}, None),
        (
            "data.label_skew=0.9",
            {
                "rows": {"before": 3000, "after": 1650},
                "classes": classes(WHOLE, *[[1500, 150]] * 2),
            },
            "1,650 of 3,000 training examples (entailment 1,500 of 1,500, not_entail",
        ),
        (
            "data.hypothesis_only=true",
            {
                "rows": {"before": 3000, "after": 3000},
                "classes": classes(WHOLE, *[[1500, 1500]] * 2),
                "sentence1": "empty in every split",
            },
            "not_entailment 1,500 of 1,500); sentence 1 empty in every split",
        ),
    ],
)
def test_a_run_records_and_prints_what_was_changed(composed, demo, capsys, override, done, line):
    cfg = composed(*demo, override)
    scores = run(cfg)
    printed = capsys.readouterr().out
    result = result_of(cfg)
    assert result["data_changes"] == done
    n_train = done["rows"]["after"] if done else 3000
    assert result["n_rows"] == {"train": n_train, "dev": 500, "test": 500}
    assert ("changed data: " in printed) == (line is not None)
    if line:
        assert printed.count("changed data: ") == 1
        assert line in printed
    assert "val/accuracy" in scores


def test_a_run_with_label_noise(composed, demo, capsys):
    cfg = composed(*demo, "data.label_noise=0.1", "data.n_train=1000")
    run(cfg)
    done = result_of(cfg)["data_changes"]
    assert done["rows"] == {"before": 3000, "after": 1000}
    assert done["labels_replaced"] == 100
    assert done["labels_changed"] == 100
    trained_on = [n["trained_on"] for n in done["classes"].values()]
    assert sum(trained_on) == 1000
    assert trained_on != [500, 500]
    message = "not_entailment 500 of 1,500); 100 labels replaced, of which 100 differ"
    assert message in capsys.readouterr().out


def batches(built, *overrides):
    """Texts are gone here: token ids and labels of the first epoch, in order."""
    data = built("task=rte", *overrides).data
    found = list(data.first_batches(None))
    ids = [tuple(row[row != 0].tolist()) for batch in found for row in batch.input_ids]
    return ids, torch.cat([batch.labels for batch in found]).tolist(), data


def test_what_is_trained_on_is_what_was_kept(built, tmp_path):
    """Cached and not; the rows of the fixture are reported apart by their token ids."""
    cache = f"cache_dir={tmp_path / 'cache'}"
    whole, whole_labels, whole_data = batches(built, cache)
    assert len(set(whole)) == len(whole) == 96
    label = dict(zip(whole, whole_labels, strict=True))
    whole_index = {tuple(e.input_ids[0]): e.index for e in whole_data.examples["train"]}
    for how in (cache, cache, "cache_dir=null"):
        ids, labels, data = batches(built, how, "data.n_train=31", "data.label_noise=0.2")
        assert data.n_rows == {"train": 31, "dev": 32, "test": 0}
        assert set(ids) < set(whole)
        assert len(set(ids)) == 31
        assert sum(label[row] != y for row, y in zip(ids, labels, strict=True)) == 6
        assert {e.index for e in data.examples["train"]} == {whole_index[row] for row in ids}
        assert Counter(map(label.get, ids)) in (Counter({0: 16, 1: 15}), Counter({0: 15, 1: 16}))


@pytest.mark.parametrize("form", ["cross", "bi"])
def test_only_the_second_sentence_is_left(built, form):
    data = built(
        "task=rte", f"task.form={form}", "data.hypothesis_only=true", "cache_dir=null"
    ).data
    for split in ("train", "dev"):
        n_first = {
            len(e.input_ids[0]) if form == "bi" else e.token_type_ids[0].count(0)
            for e in data.examples[split]
        }
        assert n_first == {2}  # CLS and SEP


def test_a_stopped_run_goes_on_with_the_same_changes(composed, small, tmp_path, monkeypatch):
    overrides = (
        *(*small, "task=rte", "trainer.max_epochs=2", "checkpoint.every_steps=4", "metric=[]"),
        *("data.label_skew=0.3", "data.n_train=66", "data.label_noise=0.25"),
    )

    whole = composed(*overrides, f"output_dir={tmp_path / 'whole'}")
    reference = finished(whole)
    cfg = composed(*overrides, f"output_dir={tmp_path / 'cut'}")
    stopped(cfg, monkeypatch, "training_step", 10, fail)
    scores, rows, state = finished(cfg)
    result = result_of(cfg)
    assert result["resumed_after_step"] == 8
    assert result["data_changes"] == result_of(whole)["data_changes"]
    assert result["data_changes"]["rows"] == {"before": 96, "after": 66}  # 0.8 of 48 + 34
    assert result["data_changes"]["labels_changed"] == 16
    assert (scores, rows) == reference[:2]
    assert all(torch.equal(state[name], tensor) for name, tensor in reference[2].items())
