"""Progress on a terminal: steps, evaluation batches, and the newest values."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytorch_lightning as pl
import rich.progress
from pytorch_lightning.callbacks import ProgressBar
from rich import get_console
from rich.console import RenderableType
from rich.progress import BarColumn, ProgressColumn, Task, TaskID, TextColumn
from rich.table import Column
from rich.text import Text

from isotrain.console import duration
from isotrain.runs.keys import parse_key

VALUES_S = 0.5  # seconds between two looks at the newest values, which wait for the device
LAYERS, SCORES = "fitting the layers", "scores and isotropy"  # parts of an evaluation


class Progress(ProgressBar):
    """A line of optimizer steps, one of an evaluation, and one of loss, score and isotropy.

    The line of an evaluation names its part: fitting the layers, passing the examples, measuring.
    All are gone at the end: what is left to read is printed once, as a summary.

    Args:
        refresh_rate: frames per second.
    """

    def __init__(self, refresh_rate: float = 4) -> None:
        super().__init__()
        self._refresh_rate, self._enabled = refresh_rate, True
        self._lines: Lines | None = None
        self._training: TaskID | None = None
        self._evaluating: TaskID | None = None
        self._values: dict[str, float] = {}  # the newest of each key
        self._looked_at = -math.inf

    def disable(self) -> None:
        """Show nothing, in processes other than the first."""
        self._enabled = False

    def enable(self) -> None:
        """Show lines from the next stage on."""
        self._enabled = True

    def get_metrics(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule
    ) -> dict[str, int | str | float | dict[str, float]]:
        """The values logged for the bar: `loss`, `accuracy`, `isoscore`, without stage or layer."""
        return dict(short(trainer.progress_bar_metrics))

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """The line of steps; after a resume it starts at the step of the checkpoint."""
        n_steps = trainer.estimated_stepping_batches
        total = None if math.isinf(n_steps) else int(n_steps)
        self._training = self._add("training", total, completed=trainer.global_step)

    def on_train_epoch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """Objectives may read all training examples now."""
        self._set(self._training, description=f"preparing epoch {trainer.current_epoch + 1}")

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:
        """The epoch, counted from 1."""
        self._set(self._training, description=f"epoch {trainer.current_epoch + 1}")

    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Steps made; the newest values every `VALUES_S`."""
        self._set(self._training, completed=trainer.global_step)
        if time.monotonic() - self._looked_at > VALUES_S:
            self._look(trainer)

    def on_validation_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
        """The line of an evaluation; the layers are fitted first."""
        has_layers = any(t.has_statistics for t in pl_module.model.transforms.values())
        self._evaluating = self._add(LAYERS if has_layers else "evaluating", None)

    on_test_start = on_validation_start

    def on_validation_batch_start(
        self,
        trainer: pl.Trainer,
        pl_module: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """The examples of dev, then those held out."""
        what = "held-out examples" if dataloader_idx else "evaluating on dev"
        self._set(self._evaluating, description=what, total=_n_batches(trainer.num_val_batches))

    def on_test_batch_start(self, trainer: pl.Trainer, *_: Any, **__: Any) -> None:
        """The examples of test."""
        total = _n_batches(trainer.num_test_batches)
        self._set(self._evaluating, description="evaluating on test", total=total)

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        """One batch more; after the last, everything is measured."""
        if self._lines is None or self._evaluating is None:
            return
        self._lines.update(self._evaluating, advance=1)
        task = next(t for t in self._lines.tasks if t.id == self._evaluating)
        if task.finished:
            self._lines.update(self._evaluating, description=SCORES, refresh=True)

    on_test_batch_end = on_validation_batch_end

    def on_validation_end(self, trainer: pl.Trainer, *_: Any) -> None:
        """Take the line of the evaluation away; its values stay at that of the steps."""
        self._look(trainer)
        if self._lines is not None and self._evaluating is not None:
            self._lines.remove_task(self._evaluating)
            self._evaluating = None

    def teardown(self, *_: Any, **__: Any) -> None:
        """Take all lines away."""
        if self._lines is not None:
            self._lines.stop()
        self._lines = self._training = self._evaluating = None

    on_exception = teardown

    def _add(self, description: str, total: int | None, completed: int = 0) -> TaskID | None:
        """A new line, where any is shown."""
        if not self._enabled:
            return None
        if self._lines is None:
            first = Column(no_wrap=True, min_width=len(SCORES))  # nothing moves sideways
            self._lines = Lines(
                TextColumn("{task.description}", markup=False, table_column=first),
                BarColumn(bar_width=20),
                Counts(table_column=Column(no_wrap=True, min_width=len("1000/1000"))),
                Times(table_column=Column(no_wrap=True)),
                console=get_console(),
                transient=True,
                refresh_per_second=self._refresh_rate,
            )
            self._lines.start()
        return self._lines.add_task(description, total=total, completed=completed)

    def _set(self, line: TaskID | None, **changes: Any) -> None:
        if self._lines is not None and line is not None:
            self._lines.update(line, **changes)

    def _look(self, trainer: pl.Trainer) -> None:
        self._values |= trainer.progress_bar_metrics
        self._looked_at = time.monotonic()
        if self._lines is not None:
            self._lines.values = short(self._values)


class Counts(ProgressColumn):
    """Steps or batches that are done, of all."""

    def render(self, task: Task) -> Text:
        """Such as `40/94`; nothing where it is not known yet what is counted."""
        if task.total is None:
            return Text(f"{task.completed:.0f}" if task.completed else "")
        return Text(f"{task.completed:.0f}/{task.total:.0f}")


class Times(ProgressColumn):
    """Time since the beginning, and what is left at the present speed."""

    max_refresh = 0.25

    def render(self, task: Task) -> Text:
        """Such as `0:12, 3:40 left`."""
        left = f", {duration(task.time_remaining)} left" if task.time_remaining else ""
        return Text(duration(task.elapsed or 0) + left)


class Lines(rich.progress.Progress):
    """Bars, and the newest values on a line of their own, where no narrow terminal cuts them."""

    values: Mapping[str, float] = {}

    def get_renderables(self) -> Iterator[RenderableType]:
        """Such as `loss 0.690  accuracy 0.526` below the bars."""
        yield self.make_tasks_table(self.tasks)
        if self.values:
            yield Text("  ".join(f"{name} {value:.3f}" for name, value in self.values.items()))


def short(values: Mapping[str, float]) -> dict[str, float]:
    """Values without stage or layer: of training, then scores, then isotropy.

    >>> short({"isoscore": 0.2, "val/accuracy": 0.5, "train/loss": 0.7})
    {'loss': 0.7, 'accuracy': 0.5, 'isoscore': 0.2}
    """
    stages = ("train", "val", "test")
    order = {key: (*stages, key.partition("/")[0]).index(key.partition("/")[0]) for key in values}
    found = {}
    for key in sorted(values, key=order.__getitem__):
        curve = parse_key(key)
        found[curve.metric if curve else key.rpartition("/")[2]] = values[key]
    return found


def _n_batches(of_loaders: Any) -> int | None:
    """Batches of all loaders of an evaluation; None where one has no end."""
    n = sum(of_loaders)
    return None if math.isinf(n) else int(n)
