"""Resume checkpoints: the bit-exact state right after an optimizer step."""

import os
import random
import signal
import threading
import time
from contextlib import suppress
from dataclasses import is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.io import TorchCheckpointIO
from pytorch_lightning.utilities.exceptions import SIGTERMException

from isotrain.model.checkpoint import save_checkpoint
from isotrain.model.distributed import n_processes, of_all_processes, sum_over_processes
from isotrain.runs.files import sync, write_json
from isotrain.training.callbacks.best_checkpoint import Selection
from isotrain.training.callbacks.non_finite import check_weights
from isotrain.training.loggers.jsonl import RecordLog

KEY = "isotrain"  # key of isotrain's part of a checkpoint
SIGNALS = (  # that stop a run with a checkpoint; Slurm sends SIGUSR1 or 2 before a time limit
    *(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2),
)


class Checkpoints(pl.Callback):
    """Write a checkpoint every n steps or s seconds, at a signal, and at the end of training.

    The last checkpoint, or the start of training, is what steps and seconds count from. Seconds are
    those of rank 0, and one sum over processes says both whether a checkpoint is due and whether a
    signal came.

    The state is taken at the start of the next batch, after logging and evaluation, with the loop
    counters of the end of the step. Weights do not change between two steps, so a signal can be
    handled at any time: within an accumulation with the state of the last step, within an
    evaluation with a note that it is due.

    A checkpoint holds weights, layer statistics and queues, optimizer, schedule, loop counters,
    the random states of every process, the length of `metrics.jsonl` and its digest, as plain
    containers and tensors (`weights_only=True` loads it). `resume.json` has its step.

    Args:
        path: the file.
        every_steps: optimizer steps between checkpoints; 0 = none by steps.
        every_s: seconds between checkpoints, whichever comes first; 0 = none by time.
        selection: its state at the step is part of a checkpoint.
    """

    def __init__(self, path: Path, every_steps: int, every_s: float, selection: Selection) -> None:
        super().__init__()
        self.path, self.selection = path, selection
        self.every_steps, self.every_s = every_steps, every_s
        self._step = self._saved_step = 0
        self._saved_at = 0.0  # on the clock of this process
        self._loops: dict[str, Any] | None = None  # counters at the end of the latest step
        self._state: dict[str, Any] = {}  # content of a checkpoint written now
        self._random: dict[str, Any] | None = None  # to restore at the first batch of a resumed run
        self._is_saving = False
        self._signal = 0  # number of the received signal
        self._handlers: dict[int, Any] = {}  # previous handlers of the process

    def on_load_checkpoint(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, checkpoint: dict[str, Any]
    ) -> None:
        """Store the state to restore when training starts."""
        states = checkpoint[KEY]["random"]
        self._random = states[trainer.global_rank if len(states) > trainer.global_rank else 0]
        self._state = checkpoint[KEY] | {
            "loops": checkpoint["loops"]["fit_loop"],
            "random": self._random,
        }
        self._step = self._saved_step = int(checkpoint["global_step"])
        self.selection.state = dict(self._state["selection"])
        trainer.datamodule.resume(self._state["epoch"], self._state["batches"])  # type: ignore[attr-defined]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Repeat the evaluation that a signal interrupted; stop again if a callback had stopped."""
        self.listen()
        self._saved_at = time.monotonic()
        trainer.should_stop = trainer.should_stop or self._state.get("should_stop", False)
        if not self._state.get("evaluation_due"):
            return
        progress: Any = trainer.fit_loop.epoch_progress.current
        loop = trainer.fit_loop.epoch_loop
        epoch, progress.processed = progress.processed, self._state["epoch"]
        trainer.validating = True
        loop.val_loop.restarting = False
        loop.val_loop.run()
        trainer.training = True
        progress.processed = epoch

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Take the state, and write a checkpoint if due."""
        if self._random is not None:
            _set_random_state(self._random)
            self._random = None
        is_new = self._take(trainer)
        seconds = time.monotonic() - self._saved_at
        is_late = bool(self.every_s) and seconds >= self.every_s and trainer.global_rank == 0
        number, is_late = self._agreed(is_late)
        n_steps = self._step - self._saved_step
        if is_new and (is_late or 0 < self.every_steps <= n_steps):
            self._save(trainer)
        self._stop_at(number)

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Store the loop counters of a step."""
        if trainer.global_step > self._step:
            self._step = trainer.global_step
            self._loops = _counters(trainer)

    def on_validation_start(self, *_: Any, **__: Any) -> None:
        """Listen for signals."""
        self.listen()

    on_test_start = on_validation_start

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        """Stop an evaluation at a signal; several processes stop at the next step instead."""
        if self._signal and n_processes() == 1:
            raise SIGTERMException(128 + self._signal)

    on_test_batch_end = on_validation_batch_end

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Save the trained state: the last evaluations may be interrupted."""
        if self._take(trainer):
            self._save(trainer)

    def on_exception(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, exception: BaseException
    ) -> None:
        """Save at a signal only: after an error the state may be invalid."""
        if isinstance(exception, SIGTERMException) and trainer.state.fn == "fit" and self._step:
            self._take(trainer, evaluation_due=bool(trainer.validating))
            self._save(trainer)

    def on_save_checkpoint(
        self, trainer: pl.Trainer, pl_module: Any, checkpoint: dict[str, Any]
    ) -> None:
        """Add isotrain's part, and the counters of the step; not to files of other callbacks."""
        if not self._is_saving:
            return
        state = dict(self._state)
        checkpoint["loops"]["fit_loop"] = state.pop("loops")
        numpy_state = state["random"]["numpy"]
        # A list in place of the array: a checkpoint has plain data.
        generator_state = numpy_state["state"] | {"key": [*map(int, numpy_state["state"]["key"])]}
        random_state = state["random"] | {"numpy": numpy_state | {"state": generator_state}}
        checkpoint[KEY] = state | {"random": of_all_processes(random_state)}

    def listen(self, answer: bool = True) -> None:
        """Handle `SIGNALS` by stopping at a safe point; `answer=False` restores handlers.

        An ignored SIGHUP (`nohup`) stays ignored. A second Ctrl-C stops at once. Lightning's
        SIGTERM handler talks to other processes and can block forever.
        """

        def note(number: int, _frame: Any) -> None:
            self._signal = number
            if number == signal.SIGINT:
                with suppress(OSError):  # the terminal may be closed
                    os.write(2, b"\nstopping with a checkpoint; Ctrl-C again stops without\n")
                signal.signal(signal.SIGINT, signal.default_int_handler)

        if threading.current_thread() is not threading.main_thread():
            return
        if answer and not self._handlers:
            self._handlers = {n: signal.getsignal(n) or signal.SIG_DFL for n in SIGNALS}
            if self._handlers[signal.SIGHUP] == signal.SIG_IGN:
                del self._handlers[signal.SIGHUP]
        for number, handler in self._handlers.items():
            signal.signal(number, note if answer else handler)
        if not answer:
            self._handlers = {}

    def if_asked(self) -> None:
        """Stop all processes together if any of them received a signal."""
        self._stop_at(self._agreed()[0])

    def _agreed(self, is_late: bool = False) -> tuple[int, bool]:
        """A signal that any process received (else 0), and whether any is late."""
        if n_processes() == 1:
            return self._signal, is_late
        flags = torch.tensor([*(self._signal == number for number in SIGNALS), is_late])
        counts = sum_over_processes(flags.int()).tolist()
        received = [number for number, n in zip(SIGNALS, counts, strict=False) if n]
        return next(iter(received), 0), bool(counts[-1])

    def _stop_at(self, number: int) -> None:
        if number:
            raise SIGTERMException(128 + (self._signal or number))

    def _take(self, trainer: pl.Trainer, evaluation_due: bool = False) -> bool:
        """Take the state after the latest step, if not done yet."""
        if self._loops is None:
            return False
        module: Any = trainer.lightning_module
        files = [logger.file for logger in trainer.loggers if isinstance(logger, RecordLog)]
        self._state = {
            "loops": self._loops,
            "epoch": self._loops["epoch_progress"]["current"]["processed"],
            "batches": self._loops["epoch_loop.batch_progress"]["current"]["ready"],
            "step": self._step,
            "evaluation_due": evaluation_due,
            "should_stop": trainer.should_stop,
            "evaluated_step": module.evaluated_step,
            "selection": dict(self.selection.state),
            "n_bytes": sum(file.n_bytes for file in files),
            "records_sha256": "".join(file.digest.hexdigest() for file in files),
            "random": _random_state(),  # of this process; a checkpoint has those of all
        }
        self._loops = None
        return True

    def _save(self, trainer: pl.Trainer) -> None:
        check_weights(trainer.lightning_module, self._step)
        for logger in trainer.loggers:
            logger.save()
            if isinstance(logger, RecordLog) and logger.file.n_bytes:
                sync(logger.file.path)  # else a power cut could lose records
        self._is_saving = True
        trainer.save_checkpoint(self.path, weights_only=False)
        self._is_saving = False
        if trainer.is_global_zero:  # for readers without torch
            write_json(self.path.with_suffix(".json"), {"step": self._step})
        self._saved_step, self._saved_at = self._step, time.monotonic()


class AtomicFiles(TorchCheckpointIO):
    """Write a checkpoint by `save_checkpoint`.

    Lightning would write through the system's temporary folder, which may be small.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any | None = None
    ) -> None:
        """Write atomically, with a digest."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        save_checkpoint(checkpoint, Path(path))


def _counters(trainer: pl.Trainer) -> dict[str, Any]:
    """Lightning's loop counters at the end of a batch, in the form of a running epoch."""
    loops = _state_of(trainer.fit_loop)
    for progress in loops["epoch_progress"].values():
        progress["ready"] = progress["started"] = progress["processed"] + 1
        progress["completed"] = progress["processed"]
    return loops


def _state_of(loop: Any, prefix: str = "") -> dict[str, Any]:
    """`loop.state_dict()`, whose copies by `dataclasses.asdict` take half a millisecond."""
    state = {f"{prefix}state_dict": loop.on_save_checkpoint()}
    for name, part in vars(loop).items():
        if is_dataclass(part) and hasattr(part, "state_dict"):
            state[prefix + name] = _copy_of(part)
        elif hasattr(part, "on_save_checkpoint"):
            state |= _state_of(part, f"{prefix}{name}.")
    return state


def _copy_of(counters: Any) -> dict[str, Any]:
    """A dataclass of numbers and of such dataclasses as dictionaries."""
    parts = vars(counters).items()
    return {name: part if isinstance(part, int) else _copy_of(part) for name, part in parts}


def _random_state() -> dict[str, Any]:
    """Random states of this process."""
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "numpy": np.random.get_state(legacy=False),
        "python": random.getstate(),
    }


def _set_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    torch.cuda.set_rng_state_all(state["cuda"])
    np.random.set_state(state["numpy"])
    random.setstate(state["python"])
