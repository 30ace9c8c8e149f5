"""Killed anywhere and started again: the same weights and rows, bit by bit."""

import json
import re
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from pytorch_lightning.utilities.exceptions import SIGTERMException

from isotrain.model.checkpoint import load_checkpoint, save_checkpoint
from isotrain.runner import folder_of, run
from isotrain.runs.record import StorageError
from isotrain.runs.stored import checkpoint_step
from isotrain.training.callbacks import resume as checkpoints
from isotrain.training.callbacks.resume import KEY, Checkpoints
from isotrain.training.module import FineTuning
from tests.processes import on_ranks
from tests.stopped_runs import assert_same_end, fail, finished, stopped, terminate

TERM, USR2 = signal.SIGTERM, signal.SIGUSR2


@pytest.fixture(scope="module")
def keys(small):
    return (
        *small,
        "task=wic",
        "isotropy=cluster_pca",
        "isotropy.n_clusters=2",
        "metric=[isoscore,cosine_drift]",
        "trainer.max_epochs=2",
        "trainer.val_check_interval=5",
        "checkpoint.every_steps=4",
        "cache_dir=null",
    )


@pytest.fixture
def overrides(keys, tmp_path):
    return (*keys, f"output_dir={tmp_path / 'runs'}")


@pytest.fixture(scope="module")
def reference(composed, keys, tmp_path_factory):
    """The run that nothing stops: its scores, rows and weights."""
    return finished(composed(*keys, f"output_dir={tmp_path_factory.mktemp('whole')}"))


@pytest.mark.parametrize(
    ("method", "at", "reaction", "step"),
    [
        ("training_step", 15, terminate, 15),  # in the second epoch; the step is still done
        ("training_step", 12, terminate, 12),  # the last step of an epoch
        ("training_step", 15, fail, 12),  # back to the last of every 4 steps
        ("validation_step", 4 + 4 + 2, terminate, 10),  # in the evaluation of step 10
        ("test_step", 2, terminate, 24),  # all is trained
    ],
)
def test_a_stopped_run_goes_on_to_the_same_end(
    composed, overrides, reference, monkeypatch, capsys, method, at, reaction, step
):
    cfg = composed(*overrides)
    folder = stopped(cfg, monkeypatch, method, at, reaction)
    result = json.loads((folder / "result.json").read_text())
    assert result["status"] == ("failed" if reaction is fail else "interrupted")
    point = load_checkpoint(folder / "resume.ckpt")[KEY]
    assert point["step"] == step == checkpoint_step(folder)
    assert point["evaluation_due"] == (method == "validation_step")
    capsys.readouterr()
    end = finished(cfg)
    assert f"resuming after step {step}" in capsys.readouterr().out
    assert_same_end(end, reference)
    assert not list(folder.glob("resume.*"))


def test_a_checkpoint_being_written_never_harms_the_older_one(
    composed, overrides, reference, monkeypatch
):
    cfg = composed(*overrides)
    folder = folder_of(cfg)
    original, n_saved = checkpoints.os.replace, 0

    def cut(source, target):
        nonlocal n_saved
        if str(target).endswith("resume.ckpt"):
            n_saved += 1
            if n_saved == 3:
                raise RuntimeError("killed with the new file half way")
        original(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints.os, "replace", cut)
        with pytest.raises(RuntimeError, match="half way"):
            run(cfg)
    assert load_checkpoint(folder / "resume.ckpt")[KEY]["step"] == 8
    assert_same_end(finished(cfg), reference)


def flipped(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 1
    file.write_bytes(content)


def rewritten(change):
    """Damage with a digest that is right: the content is judged."""

    def harm(file):
        state = torch.load(file, weights_only=True)
        change(state)
        save_checkpoint(state, file)

    return harm


def without_point(state):
    del state[KEY]


def cut_by_a_crash(file):
    """As a power cut leaves records that were not synced."""
    file.write_bytes(file.read_bytes()[:-300])


@pytest.mark.parametrize(
    ("name", "harm", "said"),
    [
        ("resume.ckpt", flipped, "its content is not what was written"),
        ("resume.ckpt", rewritten(without_point), "it is no checkpoint to resume from"),
        ("metrics.jsonl", cut_by_a_crash, "its first .* bytes are not what was written"),
    ],
)
def test_a_damaged_file_is_put_aside_and_the_run_starts_anew(
    composed, overrides, reference, monkeypatch, capsys, name, harm, said
):
    cfg = composed(*overrides)
    folder = stopped(cfg, monkeypatch, "training_step", 7, terminate)
    harm(folder / name)
    capsys.readouterr()
    assert_same_end(finished(cfg), reference)
    assert re.search(rf"{name} is damaged \({said}\); starting anew", capsys.readouterr().out)
    asides = {path.name for path in folder.glob("*.damaged*")}
    assert asides == {"resume.ckpt.damaged", f"{name}.damaged"}


def test_a_checkpoint_of_another_model_ends_the_run_and_stays(composed, overrides, monkeypatch):
    """As after a change of the code."""

    def other_head(state):
        state["state_dict"]["model.head.linear.bias"] = torch.zeros(5)

    cfg = composed(*overrides)
    file = stopped(cfg, monkeypatch, "training_step", 7, terminate) / "resume.ckpt"
    rewritten(other_head)(file)
    with pytest.raises(RuntimeError, match=r"size mismatch for model\.head\.linear\.bias"):
        run(cfg)
    assert load_checkpoint(file)[KEY]["step"] == 7


def test_an_optimizer_without_states_resumes(composed, overrides, monkeypatch, capsys):
    """SGD without momentum keeps none."""
    without = [f"~optimizer.{key}" for key in ("betas", "eps", "fused")]
    cfg = composed(*overrides, *without, "optimizer._target_=torch.optim.SGD", "metric=[]")
    stopped(cfg, monkeypatch, "training_step", 7, terminate)
    run(cfg)
    assert "resuming after step 7" in capsys.readouterr().out


def test_records_are_synced_before_the_checkpoint_that_counts_them(
    composed, overrides, monkeypatch
):
    events = []
    monkeypatch.setattr(checkpoints, "sync", lambda path: events.append(path.name))
    write = checkpoints.save_checkpoint
    monkeypatch.setattr(
        checkpoints, "save_checkpoint", lambda *parts: events.append(parts[1].name) or write(*parts)
    )
    run(composed(*overrides, "trainer.max_steps=4", "metric=[]"))
    pair = ["metrics.jsonl", "resume.ckpt"]
    assert events in (pair, [*pair, *pair])


def test_a_damaged_record_and_a_damaged_end_of_the_metrics_cost_no_checkpoint(
    composed, overrides, reference, monkeypatch, capsys
):
    """What was logged behind the checkpoint comes again."""
    cfg = composed(*overrides)
    folder = stopped(cfg, monkeypatch, "training_step", 15, fail)
    (folder / "result.json").write_text("{")
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b"\xff{\n")
    assert finished(cfg)[1] == reference[1]
    said = capsys.readouterr().out
    assert "resuming after step 12" in said


def test_a_checkpoint_that_cannot_be_opened_just_now_is_not_given_up(
    composed, overrides, monkeypatch
):
    cfg = composed(*overrides)
    folder = stopped(cfg, monkeypatch, "training_step", 7, terminate)
    before = (folder / "resume.ckpt").read_bytes()

    def busy(*_, **__):
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "load", busy)
        with pytest.raises(StorageError, match=r"Input/output error.* give the same command again"):
            run(cfg)
    assert (folder / "resume.ckpt").read_bytes() == before


def test_a_checkpoint_is_plain_and_complete(composed, overrides, monkeypatch):
    """Trap 8 and 9: it loads without trusting pickles, and holds the random states."""
    cfg = composed(*overrides)
    folder = stopped(cfg, monkeypatch, "training_step", 7, terminate)
    content = torch.load(folder / "resume.ckpt", weights_only=True)
    assert {"state_dict", "optimizer_states", "lr_schedulers", "loops"} <= content.keys()
    (state,) = content["isotrain"]["random"]
    assert set(state) == {"torch", "cuda", "numpy", "python"}
    queue = [name for name in content["state_dict"] if name.endswith("queue.rows_MD")]
    assert queue
    assert content["state_dict"][queue[0]].abs().sum() > 0


def test_the_period_counts_optimizer_steps(composed, overrides, monkeypatch):
    saved = []
    original = Checkpoints._save

    def note(self, trainer):
        saved.append(trainer.global_step)
        original(self, trainer)

    monkeypatch.setattr(Checkpoints, "_save", note)
    run(composed(*overrides, "trainer.accumulate_grad_batches=2", "checkpoint.every_steps=4"))
    assert saved == [4, 8, 12]  # 6 steps an epoch; the last one is the end


@pytest.mark.parametrize(
    ("steps", "seconds", "due"),
    [
        (0, 35, [4, 8, 12]),  # a step takes 10 s
        (3, 35, [3, 6, 9, 12]),
        (5, 35, [4, 8, 12]),
        (0, 0, [12]),  # only what is trained, for the evaluations that follow
    ],
)
def test_a_checkpoint_is_due_by_steps_or_seconds(
    composed, overrides, monkeypatch, steps, seconds, due
):
    now, saved = [1e6], []
    save, step = Checkpoints._save, FineTuning.training_step

    def note(self, trainer):
        saved.append(trainer.global_step)
        save(self, trainer)

    def slow(self, *arguments):
        now[0] += 10
        return step(self, *arguments)

    monkeypatch.setattr(Checkpoints, "_save", note)
    monkeypatch.setattr(FineTuning, "training_step", slow)
    monkeypatch.setattr(checkpoints, "time", SimpleNamespace(monotonic=lambda: now[0]))
    own = (f"checkpoint.every_steps={steps}", f"checkpoint.every_s={seconds}", "metric=[]")
    run(composed(*overrides, *own, "trainer.max_steps=12"))
    assert saved == due


def saves(rank, late):
    callback, saved = Checkpoints(Path("resume.ckpt"), 0, 10, None), []
    callback._take, callback._save = lambda trainer: True, saved.append
    callback._saved_at = time.monotonic() - (20 if rank == late else 0)
    callback.on_train_batch_start(SimpleNamespace(global_rank=rank), None, None, 0)
    return len(saved)


def stops(rank, signals):
    callback = Checkpoints(Path("resume.ckpt"), 0, 0, None)
    callback._signal = signals[rank]
    try:
        callback.if_asked()
    except SIGTERMException as error:
        return error.args[0]
    return 0


LATE = [0, 1]  # the rank by whose clock a checkpoint is due
RECEIVED = [(TERM, TERM), (0, USR2), (0, 0)]  # the signal of each rank, 0 = none


def saves_and_stops(rank):
    """Whether a rank saves, and the exit codes by which it stops."""
    return [saves(rank, late) for late in LATE], [stops(rank, signals) for signals in RECEIVED]


def test_the_clock_of_rank_0_and_a_signal_to_any_rank_decide_for_all(tmp_path):
    for saved, codes in on_ranks(saves_and_stops, 2, tmp_path):
        assert saved == [1, 0]
        assert codes == [128 + TERM, 128 + USR2, 0]


def test_a_run_under_nohup_does_not_hear_that_the_terminal_is_closed(tmp_path):
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    callback = Checkpoints(tmp_path / "resume.ckpt", 0, 0, None)
    callback.listen()
    try:
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        others = (TERM, signal.SIGINT, signal.SIGUSR1, USR2)
        assert {signal.getsignal(one).__name__ for one in others} == {"note"}
        callback.listen(False)
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        callback.listen()
        assert signal.getsignal(signal.SIGHUP).__name__ == "note"
    finally:
        callback.listen(False)
        signal.signal(signal.SIGHUP, before)


def test_a_second_ctrl_c_does_not_wait_for_the_checkpoint(tmp_path, capfd):
    before = signal.getsignal(signal.SIGINT)
    callback = Checkpoints(tmp_path / "resume.ckpt", 0, 0, None)
    callback.listen()
    try:
        signal.raise_signal(signal.SIGINT)
        assert "Ctrl-C again stops without" in capfd.readouterr().err
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    finally:
        callback.listen(False)
    assert signal.getsignal(signal.SIGINT) is before
