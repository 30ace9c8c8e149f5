"""NaN, full disks, failing loggers, locked folders: a sentence, a report, and nothing lost."""

import errno
import json
import math
import shutil

import pytest
import torch

from isotrain.model.checkpoint import load_checkpoint
from isotrain.pages.show import show_run
from isotrain.runner import folder_of, run
from isotrain.runs.files import read_records, read_result
from isotrain.runs.record import StorageError
from isotrain.training.callbacks.non_finite import NonFiniteError, NonFiniteGuard
from isotrain.training.callbacks.resume import KEY, Checkpoints
from isotrain.training.loggers.jsonl import RecordLog
from isotrain.training.module import FineTuning


@pytest.fixture
def overrides(small, tmp_path):
    return (
        *small,
        *("task=wic", "checkpoint.every_steps=2", "cache_dir=null", "metric=[]"),
        f"output_dir={tmp_path / 'runs'}",
    )


def at_step(monkeypatch, step, spoil):
    """`spoil(loss)` in place of the task loss once `step` steps are done."""
    from isotrain.tasks.wic import WiC

    original = WiC.training_loss

    def loss(task, logits, labels):
        value = original(task, logits, labels)
        return spoil(value) if logits.requires_grad and next(count) >= step else value

    count = iter(range(10_000))
    monkeypatch.setattr(WiC, "training_loss", loss)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_loss_that_is_nan_stops_with_the_rows_of_the_batch(
    composed, overrides, monkeypatch, accumulate
):
    cfg = composed(*overrides, f"trainer.accumulate_grad_batches={accumulate}")
    with monkeypatch.context() as patch:
        at_step(patch, 5, lambda loss: loss * math.nan)
        with pytest.raises(NonFiniteError, match=r"the loss is nan at step \d+ .*task_loss"):
            run(cfg)
    folder = folder_of(cfg)
    fault = json.loads((folder / "fault.json").read_text())
    assert fault["what"] == "loss"
    assert fault["steps_done"] == 5 // accumulate
    assert len(fault["rows"]) == 8  # of the batch
    assert set(fault["rows"]) <= set(range(96))
    assert fault["loss_parts"] == [{"train/task_loss": "nan"}]
    assert fault["value"] == "nan"
    assert any(p["weight_norm"] > 0 for p in fault["parameters"].values())
    assert json.loads((folder / "result.json").read_text())["status"] == "failed"
    # The checkpoint before it is intact, and the run goes on from it.
    point = load_checkpoint(folder / "resume.ckpt")[KEY]
    assert 0 < point["step"] <= fault["steps_done"]
    state = torch.load(folder / "resume.ckpt", weights_only=True)["state_dict"]
    assert all(torch.isfinite(t.float()).all() for t in state.values())
    assert "val/accuracy" in run(cfg)
    assert json.loads((folder / "result.json").read_text())["status"] == "finished"


class Exploding(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad * math.inf


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_gradient_that_is_not_finite_never_reaches_the_weights(
    composed, overrides, monkeypatch, precision
):
    seen = {}
    at_step(monkeypatch, 3, Exploding.apply)
    original = FineTuning.configure_gradient_clipping

    def watched(self, *arguments, **options):
        seen["before"] = [p.detach().clone() for p in self.parameters()]
        seen["module"] = self
        return original(self, *arguments, **options)

    monkeypatch.setattr(FineTuning, "configure_gradient_clipping", watched)
    with pytest.raises(NonFiniteError, match=r"gradient norm is (nan|inf) at step 4"):
        run(composed(*overrides, f"trainer.precision={precision}"))
    for before, now in zip(seen["before"], seen["module"].parameters(), strict=True):
        assert torch.equal(before, now)


def test_the_loss_is_blamed_before_the_gradient_and_by_its_own_micro_batch():
    guard, model = NonFiniteGuard(), torch.nn.Linear(1, 1)
    for number, value in enumerate([0.5, math.inf, math.nan]):
        guard.note(torch.tensor(value), {"part": torch.tensor(value)}, torch.tensor([number]))
    with pytest.raises(NonFiniteError, match=r"the loss is inf at step 4 \(in part\)") as caught:
        guard.check(torch.tensor(math.nan), 3, model)
    assert caught.value.report["rows"] == [1]
    guard.note(torch.tensor(0.5), {}, torch.tensor([3]))  # nothing of that step is left
    with pytest.raises(NonFiniteError, match="the gradient norm is inf") as caught:
        guard.check(torch.tensor(math.inf), 3, model)
    assert caught.value.report["rows"] == [3]
    guard.note(torch.tensor(0.5), {}, torch.tensor([3]))
    guard.check(None, 3, model)


@pytest.mark.parametrize(
    "more", [["trainer.max_steps=1"], ["checkpoint.every_steps=1"]], ids=["end", "checkpoint"]
)
def test_weights_that_are_not_finite_end_no_run(composed, overrides, monkeypatch, more):
    """A decay that is too large leaves loss and gradient of its step finite."""
    cfg = composed(*overrides, *more)

    def overflow(self, *_):
        next(self.parameters()).data.fill_(math.inf)

    monkeypatch.setattr(FineTuning, "on_train_batch_end", overflow)
    with pytest.raises(NonFiniteError, match=r"weights must be finite, and after step \d \d+ of"):
        run(cfg)
    folder = folder_of(cfg)
    assert json.loads((folder / "fault.json").read_text())["what"] == "weights"
    assert read_result(folder)["status"] == "failed"
    assert not (folder / "weights.safetensors").exists()


@pytest.mark.parametrize("name", ["metrics.jsonl", "."])
def test_what_is_taken_away_under_a_run_is_reported(composed, overrides, monkeypatch, name):
    cfg = composed(*overrides)
    folder, original, count = (
        folder_of(cfg),
        FineTuning.training_step,
        iter(range(10_000)),
    )

    def take_away(self, *arguments):
        if next(count) == 5:
            shutil.rmtree(folder) if name == "." else (folder / name).unlink()
        return original(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(FineTuning, "training_step", take_away)
        with pytest.raises(StorageError, match=r"No such file.* put the folder back"):
            run(cfg)
    assert "val/accuracy" in run(cfg)


def full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_at_a_checkpoint(composed, overrides, monkeypatch):
    cfg = composed(*overrides)
    folder = folder_of(cfg)
    original, n_saved = Checkpoints._save, 0

    def save(self, trainer):
        nonlocal n_saved
        n_saved += 1
        with monkeypatch.context() as disk:
            if n_saved == 3:
                disk.setattr(torch, "save", full)
            original(self, trainer)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "_save", save)
        with pytest.raises(StorageError, match=r"No space left.*intact.*same command"):
            run(cfg)
    assert load_checkpoint(folder / "resume.ckpt")[KEY]["step"] == 4
    assert not list(folder.glob("*.part"))
    assert "val/accuracy" in run(cfg)


def test_a_full_disk_at_a_row_leaves_no_half_line(composed, overrides, monkeypatch, tmp_path):
    class HalfWritten:
        """A file that takes the first half of a line and then no more."""

        def __init__(self, stream):
            self.stream = stream

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.stream.close()

        def seek(self, *where):
            return self.stream.seek(*where)

        def truncate(self, n):
            self.stream.truncate(n)

        def write(self, line):
            self.stream.write(line[: len(line) // 2])
            full()

    path = tmp_path / "metrics.jsonl"
    logger = RecordLog(path)
    logger.log_metrics({"a": 1.0}, step=0)
    opened = type(path).open
    with monkeypatch.context() as patch:
        patch.setattr(type(path), "open", lambda self, mode: HalfWritten(opened(self, mode)))
        with pytest.raises(OSError, match="No space"):
            logger.log_metrics({"a": 2.0}, step=1)
    assert not path.read_text().endswith("\n")
    logger.log_metrics({"a": 3.0}, step=2)
    assert [row["a"] for row in read_records(path)] == [1.0, 3.0]


def test_no_secret_reaches_a_file_of_a_failed_run(composed, overrides, monkeypatch, tmp_path):
    monkeypatch.setenv("MY_API_KEY", "s3cret-of-mine")
    cfg = composed(
        *(*overrides, "trainer.max_steps=1", "report=true", "logger=[tensorboard]"),
    )
    cfg.output_dir = str(tmp_path / "runs-s3cret-of-mine")

    def fail(self, *_):
        raise RuntimeError("refused: key s3cret-of-mine is not known")

    monkeypatch.setattr(FineTuning, "on_test_start", fail)
    with pytest.raises(RuntimeError, match="refused"):
        run(cfg, show=show_run)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"result.json", "config.yaml", "metrics.jsonl"} <= {path.name for path in files}
    for path in files:
        assert b"s3cret-of-mine" not in path.read_bytes(), path
