"""Best-checkpoint selection."""

import math
from pathlib import Path
from typing import Any, Literal

import pytorch_lightning as pl

from isotrain.model.checkpoint import load_checkpoint, save_checkpoint
from isotrain.runs.files import DamagedError

Select = Literal["last", "best", "holdout"]


class Selection(pl.Callback):
    """Select weights by the monitored score.

    Every evaluation after the first optimizer step is a candidate; ties go to the earlier one, and
    NaN never wins. `best` uses dev and `holdout` the held-out training examples. The weights of the
    best candidate are saved with the layers' frozen statistics, and `restore` loads them at the
    end. `last` saves nothing.

    `state` is plain data and part of each resume checkpoint (see `Checkpoints`). If the file is
    newer than that checkpoint, the resumed run rewrites it, bit-identical.

    Args:
        select: last | best | holdout.
        score: key of the score without its stage, such as `accuracy`.
        mode: max | min, which scores are better.
        folder: of the run; `best.ckpt` in it has the best weights.
    """

    def __init__(self, select: Select, score: str, mode: str, folder: Path) -> None:
        super().__init__()
        self.select, self.mode = select, mode
        self.path = folder / "best.ckpt"
        self.key = f"{'holdout' if select == 'holdout' else 'val'}/{score}"
        self.state: dict[str, Any] = {
            "n_candidates": 0,  # candidates so far
            "step": None,  # step of the best one
            "score": None,
        }
        self.is_restored = False

    def load_best(self, state: dict[str, Any], step: float) -> dict[str, Any] | None:
        """The file of the best weights of a `state`; None if it needs none.

        From `step` on it may be newer: the killed run got further, and the resumed run rewrites
        it.

        Raises:
            DamagedError: the file is missing, changed, or of another step: the run was resumed with
                other code or on another machine, and reached another score.
        """
        if self.select == "last" or state["step"] is None:
            return None
        checkpoint = load_checkpoint(self.path)
        if checkpoint["step"] != state["step"] and checkpoint["step"] < step:
            raise DamagedError(
                self.path, f"its weights are of step {checkpoint['step']}, not of {state['step']}"
            )
        return checkpoint

    def on_validation_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        """Compare the score of these weights with the best one so far."""
        if self.is_restored or trainer.global_step == 0:
            return
        score = float(trainer.callback_metrics[self.key])
        best, sign = self.state["score"], 1 if self.mode == "max" else -1
        self.state["n_candidates"] += 1
        if not math.isnan(score) and (best is None or sign * score > sign * best):
            self.state |= {"step": trainer.global_step, "score": score}
            if self.select != "last" and trainer.is_global_zero:
                checkpoint = {"state_dict": pl_module.state_dict(), "step": trainer.global_step}
                save_checkpoint(checkpoint, self.path)

    def restore(self, trainer: pl.Trainer, module: Any) -> bool:
        """Load the selected weights in every process; False if the last ones are kept.

        The module keeps their frozen statistics from then on, and logs at their step. Errors are
        those of `load_best`.
        """
        trainer.strategy.barrier()  # rank 0 may still be writing
        checkpoint = self.load_best(self.state, math.inf)
        if checkpoint is None:
            return False
        module.load_state_dict(checkpoint["state_dict"])
        module.selected_step = checkpoint["step"]
        self.is_restored = True
        return True

    def facts(self, last_step: int) -> dict[str, Any]:
        """For the record: selected step and candidates; `select` is `last` if none had a score."""
        return {
            "select": self.select if self.is_restored else "last",
            "selected_step": self.state["step"] if self.is_restored else last_step,
            "n_candidates": self.state["n_candidates"],
        }
