"""What a run of a few steps, on a part of dev, leaves and prints."""

import warnings

import pytest
from safetensors.torch import load_file

from isotrain.encoders.tiny import build_tiny
from isotrain.pages.show import show_run
from isotrain.runner import folder_of, run
from isotrain.runs.files import read_result
from isotrain.runs.predictions import read_predictions
from isotrain.training.module import FineTuning
from tests.stopped_runs import differing, finished


@pytest.mark.parametrize(
    ("steps", "every", "logged"),
    [(3, 10, [2]), (4, 2, [1, 3]), (0, 10, [])],
)
def test_the_loss_of_a_run_shorter_than_the_interval_is_logged(
    composed, small, tmp_path, steps, every, logged
):
    _, rows, _ = finished(
        composed(
            *(*small, "task=rte", "metric=[]", f"output_dir={tmp_path}"),
            *("data.batch_size=16", f"trainer.max_steps={steps}"),
            *(f"trainer.log_every_n_steps={every}", "report=false"),
        ),
        show=show_run,
    )
    assert [row["step"] for row in rows if "train/loss" in row] == logged


def test_a_curve_has_twenty_points_and_lightning_says_nothing(composed, small, tmp_path):
    """Three batches an epoch; where an explicit interval is longer, Lightning warns."""
    cfg = composed(
        *(*small, "task=rte", "metric=[]", f"output_dir={tmp_path}", "data.n_train=24"),
        *("trainer.max_epochs=15", "trainer.val_check_interval=3", "report=false"),
    )
    _, rows, _ = finished(cfg)
    steps = [row["step"] for row in rows if "train/loss" in row]
    assert steps == [*range(1, 45, 2)]
    cfg.trainer.log_every_n_steps = 5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        finished(cfg)


def test_arguments_of_the_trainer_that_change_no_number(composed, small, tmp_path):
    own = (*small, "task=rte", "metric=[]", "trainer.max_steps=2")
    plain = finished(composed(*own, f"output_dir={tmp_path / 'a'}"))
    more = ("+trainer.enable_model_summary=true", "+trainer.profiler=simple")
    more += ("trainer.strategy=ddp", "+trainer.enable_progress_bar=false")
    cfg = composed(*own, *more, f"output_dir={tmp_path / 'b'}")
    assert finished(cfg)[0] == plain[0]
    assert folder_of(cfg).name == folder_of(composed(*own)).name


def test_overfitting_repeats_the_first_batches(composed, small, tmp_path, monkeypatch):
    seen, original = [], FineTuning.training_step

    def note(self, batch, batch_idx):
        seen.append(batch.input_ids.tolist())
        return original(self, batch, batch_idx)

    monkeypatch.setattr(FineTuning, "training_step", note)
    own = (*small, "task=rte", "metric=[]", f"output_dir={tmp_path}", "trainer.max_epochs=2")
    cfg = composed(*own, "+trainer.overfit_batches=3", "data.eval_batch_size=4")
    assert run(cfg)
    assert len(seen) == 6
    assert seen[:3] == seen[3:]
    assert len(set(read_predictions(folder_of(cfg), "dev").index)) == 32, "dev is whole"


def test_a_limited_evaluation_scores_one_random_subset_in_every_run(
    composed, small, tmp_path, capsys
):
    """The same examples for any seed, method and evaluation; no first batches of sorted ones."""
    overrides = (*small, "metric=[]", f"output_dir={tmp_path}", "report=false")
    overrides += ("trainer.max_steps=1", "data.n_test=8", "data.eval_batch_size=4")
    numbers = {}
    for more in (["data.n_dev=8"], ["data.n_dev=8", "seed=1", "isotropy=mean"], ["data.n_dev=12"]):
        cfg = composed(*overrides, "task=wic", *more)
        run(cfg)
        folder = folder_of(cfg)
        numbers[" ".join(more)] = set(read_predictions(folder, "dev").index.tolist())
        n = len(numbers[" ".join(more)])
        assert read_result(folder)["limited_evaluation"] == {
            "dev": {"scored": n, "of": 32},
            "test": {"scored": 8, "of": 32},
        }
        assert f"scored of dev: {n} of 32 examples, a fixed random" in capsys.readouterr().out
    one, other, larger = numbers.values()
    assert one == other < larger, "a smaller subset lies within a larger one"
    assert len(one) == 8
    assert one != set(range(8))


def test_the_untrained_model_is_scored_on_test_where_it_is_asked_for(composed, small, tmp_path):
    """And nothing else of the run differs."""
    overrides = (*small, "task=wic", "metric=[]", "report=false", "trainer.max_steps=2")
    found = []
    for is_asked in (False, True):
        more = (f"training.test_untrained={is_asked}", f"output_dir={tmp_path / str(is_asked)}")
        found.append(finished(composed(*overrides, *more)))
    (scores, plain, weights), (scores_too, rows, weights_too) = found
    (extra,) = [row for row in rows if row not in plain]
    assert [row for row in rows if row != extra] == plain
    assert extra["step"] == 0
    assert extra.keys() == {
        *("step", "test/accuracy", "test/loss", "test/scaled_loss", "test/n_rows")
    }
    assert scores == scores_too
    assert differing(weights, weights_too) == []


def test_a_run_of_a_cut_encoder(composed, small, tmp_path):
    """Layers, freezing, read points and speed paths count the blocks that are left."""
    tiny = build_tiny(width=16, n_blocks=3, n_heads=2)
    for part in (tiny.model, tiny.tokenizer):
        part.save_pretrained(tmp_path / "bert")
    own = [text for text in small if not text.startswith("encoder")]
    own += ["encoder=huggingface", f"encoder.name={tmp_path / 'bert'}", "encoder.n_blocks=2"]
    own += [f"output_dir={tmp_path}", "task=rte", "metric=[mean_cosine]", "trainer.max_steps=2"]
    own += ["freezing=first_n", "freezing.n_blocks=1", "site=[layer_2]", "isotropy=mean"]
    cfg = composed(*own)
    run(cfg)
    folder = folder_of(cfg)
    result = read_result(folder)
    layers = {key.split("/")[2] for key in result["scores"] if "/mean_cosine/layer_" in key}
    assert layers == {"layer_00", "layer_01", "layer_02", "layer_2"}
    assert result["encoder"].endswith("cut after block 2")
    assert result["speed"]["frozen_prefix"] == "taken"
    weights = load_file(folder / "weights.safetensors")
    blocks = {key.split("encoder.layer.")[1][0] for key in weights if "encoder.layer." in key}
    assert blocks == {"0", "1"}
    for text, message in (
        ("site=[layer_3]", "layer_1 to layer_2"),
        ("freezing.n_blocks=3", "most 2"),
    ):
        with pytest.raises(ValueError, match=f"{message} for this encoder"):
            run(composed(*own, text))


def test_a_pass_over_training_examples_needs_no_evaluation(composed, small, tmp_path):
    more = ("isotropy=mean", "objective=[istar]", "objective.istar.reference=epoch", "task=wic")
    more += ("+trainer.limit_val_batches=0", "trainer.max_steps=2", f"output_dir={tmp_path}")
    cfg = composed(*small, *more, "report=false", "trainer.log_every_n_steps=1")
    _, rows, _ = finished(cfg, show=show_run)
    assert [row["step"] for row in rows if "train/istar" in row] == [0, 1]
