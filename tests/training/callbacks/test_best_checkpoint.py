"""Whose weights a run ends with: those of the best evaluation, bit by bit, also after a kill."""

from pathlib import Path

import pytest
import torch

from isotrain.model.checkpoint import load_checkpoint
from isotrain.pages.show import show_run
from isotrain.runner import folder_of, run
from isotrain.runs.files import read_result
from isotrain.runs.record import StorageError
from isotrain.training.callbacks.best_checkpoint import Selection
from isotrain.training.callbacks.resume import KEY
from isotrain.training.module import FineTuning
from tests import stopped_runs
from tests.stopped_runs import differing, fail, stopped, terminate

DEV = {0: 0.9, 3: 0.5, 6: 0.7, 9: 0.7, 12: 0.6, 15: 0.5, 18: 0.65, 21: 0.4, 24: 0.3}
HELD = {0: 0.1, 3: 0.2, 6: 0.1, 9: 0.4, 14: 0.3, 17: 0.4, 20: 0.2, 22: 0.3}


@pytest.fixture
def overrides(small, tmp_path):
    """24 steps in two epochs (22 where rows are held out), evaluated every 3."""
    return (
        *small,
        *("task=wic", "isotropy=cluster_pca", "isotropy.n_clusters=2", "metric=[isoscore]"),
        *("trainer.max_epochs=2", "trainer.val_check_interval=3", "checkpoint.every_steps=4"),
        *("schedule=constant", "training.warmup_fraction=0", "cache_dir=null"),
        "trainer.log_every_n_steps=6",  # at most the steps of any run here: shorter ones log more
        f"output_dir={tmp_path / 'runs'}",
    )


@pytest.fixture
def scripted(monkeypatch):
    """`scripted(val=..., holdout=...)`: scores by the step of the weights, not of predictions."""

    def script(**scores):
        def log_scores(self, *stages):
            step = self.trainer.global_step if self.selected_step is None else self.selected_step
            self.log("step", float(step), logger=False)
            for stage in stages:
                self.log(f"{stage}/accuracy", scores.get(stage, {}).get(step, 0.5), logger=False)
                self.scores[f"{stage}_"].reset()

        monkeypatch.setattr(FineTuning, "_log_scores", log_scores)

    return script


def finished(cfg):
    _, rows, state = stopped_runs.finished(cfg, show=show_run)
    return read_result(folder_of(cfg)), rows, state


def evaluations(rows):
    return [row for row in rows if "val/accuracy" in row]


def test_best_ends_with_the_weights_and_statistics_of_the_best_evaluation(
    composed, overrides, scripted, monkeypatch, tmp_path, capsys
):
    scripted(val=DEV, test={6: 0.75})
    at_evaluation = {}
    original = Selection.on_validation_end

    def spy(self, trainer, module):
        if not self.is_restored:
            state = {name: x.clone() for name, x in module.state_dict().items()}
            at_evaluation[trainer.global_step] = state
        original(self, trainer, module)

    monkeypatch.setattr(Selection, "on_validation_end", spy)
    result, rows, state = finished(composed(*overrides, "training.select=best"))
    printed = capsys.readouterr().out
    assert (result["select"], result["selected_step"], result["steps"]) == ("best", 6, 24)
    assert result["n_candidates"] == 8, "step 0 is none of them"
    assert "step 6, the best of 8 evaluations on dev" in printed
    assert result["scores"]["val/accuracy"] == pytest.approx(0.7)
    assert differing(state, at_evaluation[6]) == []
    assert differing(state, at_evaluation[9])
    *_, again, test = rows
    (at_6,) = [row for row in evaluations(rows[:-2]) if row["step"] == 6]
    assert again == at_6, "the same numbers, isotropy and losses among them, at the same step"
    assert test["test/accuracy"] == pytest.approx(0.75)
    assert test["step"] == 6
    stopped = composed(*overrides, "trainer.max_steps=6", f"output_dir={tmp_path / 'six'}")
    _, rows_6, state_6 = finished(stopped)
    assert rows_6[: len(rows_6) - 1] == rows[: len(rows_6) - 1], "training is the same"
    assert differing(state, state_6) == [], "those of a run that stopped there"


@pytest.mark.parametrize("mode", ["max", "min"])
def test_the_first_of_equal_scores_and_never_one_that_is_no_number(mode, tmp_path):
    """Against a list: scores in order of time, of which the callback sees one at a time."""
    nan = float("nan")
    for scores in ([nan, 0.2, 0.2, nan, 0.1], [0.1, 0.3, 0.3, 0.2], [nan, nan], [0.0, 0.0], []):
        selection, trainer = Selection("last", "score", mode, tmp_path), FakeTrainer()
        for trainer.global_step, score in enumerate(scores, start=1):
            trainer.callback_metrics = {"val/score": torch.tensor(score)}
            selection.on_validation_end(trainer, None)
        finite = [score for score in scores if score == score]
        best = (max if mode == "max" else min)(finite) if finite else None
        assert selection.state["step"] == (None if best is None else 1 + scores.index(best))
        assert selection.state["n_candidates"] == len(scores)


class FakeTrainer:
    """What a selection reads of a trainer."""

    is_global_zero = True


def test_early_stopping_ends_a_run_and_best_goes_back(composed, overrides, scripted, capsys):
    scripted(val=DEV)
    cfg = composed(
        *overrides,
        "training.select=best",
        "callbacks=[early_stopping]",
        "callbacks.early_stopping.patience=2",
    )
    result, rows, _ = finished(cfg)
    assert [row["step"] for row in evaluations(rows)] == [0, 3, 6, 9, 12, 6]
    assert (result["steps"], result["selected_step"], result["n_candidates"]) == (12, 6, 4)
    assert result["stopped_early"]
    assert "stopped early, after step 12" in capsys.readouterr().out


def test_rows_held_out_are_chosen_by_the_seed_and_never_trained_on(
    composed, overrides, scripted, monkeypatch, capsys
):
    scripted(val=DEV, holdout=HELD)
    seen, original = set(), FineTuning.training_step
    prefilled, passes = set(), FineTuning._passes

    def note(self, batch, batch_idx):
        seen.update(batch.index.tolist())
        return original(self, batch, batch_idx)

    def note_pass(self, n_batches):
        for batch, output in passes(self, n_batches):
            prefilled.update(batch.index.tolist())
            yield batch, output

    monkeypatch.setattr(FineTuning, "training_step", note)
    monkeypatch.setattr(FineTuning, "_passes", note_pass)
    cfg = composed(*overrides, "training.select=holdout", "isotropy.eval_stats=refit")
    result, rows, _ = finished(cfg)
    assert result["n_rows"] == {"train": 86, "dev": 32, "test": 32, "holdout": 10}
    assert len(seen) == 86
    assert prefilled == seen, "layers are fitted on no row that is held out either"
    assert (result["select"], result["selected_step"]) == ("holdout", 9)
    assert "best of 7 evaluations on 10 held-out training examples" in capsys.readouterr().out
    assert all("holdout/accuracy" in row and "holdout/loss" in row for row in evaluations(rows))
    assert result["scores"]["holdout/accuracy"] == pytest.approx(0.4)
    n_dev = {row["isotropy/n_rows/pooled/before"] for row in evaluations(rows)}
    assert n_dev == {32}, "the monitor measures dev alone"


def held(built, *overrides):
    data = built("task=wic", "training.select=holdout", *overrides).data
    parts = {
        split: [example.index for example in data.examples[split]] for split in ("train", "holdout")
    }
    assert sorted(parts["train"] + parts["holdout"]) == list(range(96))
    return parts["holdout"]


def test_the_part_held_out_is_a_function_of_share_and_seed(built):
    first = held(built)
    torch.manual_seed(5)
    assert held(built) == first
    assert held(built, "seed=1") != first
    assert len(first) == 10
    assert len(held(built, "data.holdout=0.25")) == 24
    assert len(held(built, "data.holdout=0.001")) == 1, "one row at least"
    with pytest.raises(ValueError, match=r"holdout=0\.999 of 96 training examples leaves none"):
        held(built, "data.holdout=0.999")


FACTS = ("select", "selected_step", "n_candidates", "stopped_early", "steps", "scores")
WHOLE = {}  # runs that nothing stopped, by what they have beside the others
STOPPING = (
    "callbacks=[early_stopping]",
    "callbacks.early_stopping.patience=3",
)  # with the scores below: after step 20
ACCUMULATING = ("trainer.accumulate_grad_batches=2", "trainer.val_check_interval=5")


@pytest.mark.campaign
@pytest.mark.parametrize(
    ("more", "method", "at", "reaction", "step"),
    [
        (STOPPING, "training_step", 8, fail, 4),  # best.ckpt is of step 6 already
        (STOPPING, "training_step", 14, terminate, 14),  # and the best one behind it
        (STOPPING, "validation_step", 3 * 6 + 2, terminate, 9),  # in an evaluation
        (STOPPING, "validation_step", 6 * 6 + 2, terminate, 20),  # in the one that stops the run
        (STOPPING, "test_step", 2, terminate, 20),  # stopped early: no step is added
        (ACCUMULATING, "on_validation_epoch_end", 2, terminate, 2),  # and back to before it
    ],
)
def test_a_run_that_was_stopped_selects_the_same_weights(
    composed, overrides, scripted, monkeypatch, tmp_path, more, method, at, reaction, step
):
    scripted(val=DEV, holdout={**HELD, 2: 0.45, 5: 0.3})
    keys = (*overrides, *more, "training.select=holdout")
    if more not in WHOLE:
        WHOLE[more] = finished(composed(*keys, f"output_dir={tmp_path / 'whole'}"))
    result, rows, state = WHOLE[more]
    assert result["stopped_early"] == (more is STOPPING)
    cfg = composed(*keys)
    folder = stopped(cfg, monkeypatch, method, at, reaction)
    assert load_checkpoint(folder / "resume.ckpt")[KEY]["step"] == step
    result2, rows2, state2 = finished(cfg)
    assert {key: result2[key] for key in FACTS} == {key: result[key] for key in FACTS}
    assert rows2 == rows
    assert differing(state, state2) == []


@pytest.mark.parametrize("harm", [Path.unlink, lambda file: file.write_bytes(b"PK")])
def test_where_the_best_weights_are_lost_the_run_starts_anew(
    composed, overrides, scripted, monkeypatch, capsys, harm
):
    scripted(val=DEV)
    cfg = composed(*overrides, "training.select=best")
    folder = stopped(cfg, monkeypatch, "training_step", 8, terminate)
    harm(folder / "best.ckpt")
    assert finished(cfg)[0]["selected_step"] == 6
    assert "best.ckpt is damaged (it" in capsys.readouterr().out
    assert (folder / "resume.ckpt.damaged").is_file()


def test_weights_of_another_step_are_never_taken_for_the_selected_ones(
    composed, overrides, scripted, monkeypatch
):
    """A resumed run that scored otherwise than before, as on another machine it may."""
    scripted(val=DEV)
    cfg = composed(*overrides, "training.select=best", "trainer.max_steps=9")
    stopped(cfg, monkeypatch, "training_step", 8, fail)  # back to step 4, best.ckpt of step 6
    scripted(val={3: 0.5, 6: 0.4, 9: 0.3})
    with pytest.raises(StorageError, match=r"its weights are of step 6, not of 3.*rerun=true"):
        run(cfg)
    assert finished(cfg)[0]["selected_step"] == 3, "the file is put aside"


@pytest.mark.parametrize(
    ("more", "steps"),
    [
        (["trainer.max_epochs=0"], 0),
        (["+trainer.fast_dev_run=true", "trainer.val_check_interval=1.0"], 1),
    ],
)
def test_runs_with_hardly_an_evaluation(composed, overrides, more, steps):
    result, _, _ = finished(composed(*overrides, *more, "training.select=holdout"))
    assert result["status"] == "finished"
    assert result["selected_step"] == result["steps"] == result["n_candidates"] == steps
    assert result["select"] == ("holdout" if steps else "last")
