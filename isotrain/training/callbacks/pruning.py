"""Pruning: stop a trial of a search whose scores do not look promising."""

import signal
from typing import Any

import pytorch_lightning as pl
from pytorch_lightning.utilities.exceptions import SIGTERMException

from isotrain.training.callbacks.best_checkpoint import Selection


class PrunedError(SIGTERMException):
    """The run was pruned: stopped with a checkpoint, as by a signal."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


class Pruning(pl.Callback):
    """Report every evaluation after step 0 to a trial, and stop the run if that prunes it.

    Evaluations are numbered from 1, as `Selection` counts its candidates; a resumed run may report
    one again. It stops before the next batch: after the last one there is nothing to save.

    Args:
        trial: of Optuna; its `report` and `should_prune` are called.
        score: key of the score, such as `val/accuracy`.
    """

    def __init__(self, trial: Any, score: str) -> None:
        super().__init__()
        self.trial, self.score = trial, score
        self._n_reported = 0
        self._is_pruned = False

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Report the score of a new candidate."""
        callbacks = trainer.callbacks  # type: ignore[attr-defined]
        (selection,) = (callback for callback in callbacks if isinstance(callback, Selection))
        if (number := int(selection.state["n_candidates"])) > self._n_reported:
            self._n_reported = number
            if (score := trainer.callback_metrics.get(self.score)) is not None:
                self.trial.report(float(score), number)
                self._is_pruned = self.trial.should_prune()

    def on_train_batch_start(self, *_: object) -> None:
        """Stop a pruned run, after `Checkpoints` has taken its state."""
        if self._is_pruned:
            raise PrunedError
