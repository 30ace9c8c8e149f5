"""Check that the rebuilt model reproduces the predictions recorded by the run.

B examples, C outputs.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.export.formats import CannotExportError
from isotrain.export.rebuilt import Rebuilt
from isotrain.export.source_run import SourceRun
from isotrain.runs.predictions import read_predictions
from isotrain.tasks.base import Task

TIGHT, LOOSE = 1e-4, 0.02  # logit tolerance, relative to the example's largest logit or 1
LEAST = 0.9  # share of examples that must agree under LOOSE
NOISE = 0.1  # largest half-precision error at which a comparison is meaningful
FLOAT32 = ("None", "32", "32-true", "64", "64-true")  # values of trainer.precision


class Agreement(NamedTuple):
    """Number of examples whose prediction matches the record."""

    n_same: int
    n_rows: int
    tolerance: float
    where: str  # device and precision of the run; if nothing was compared, why

    def __str__(self) -> str:
        if not self.n_rows:
            return f"nothing was compared, since {self.where}"
        n = (
            f"all {self.n_rows}"
            if self.n_same == self.n_rows
            else f"{self.n_same} of {self.n_rows}"
        )
        return (
            f"{n} examples are predicted as the run recorded them "
            f"(logits to {self.tolerance:.2g} of the largest one; it computed {self.where})"
        )


def agreement(run: SourceRun, rebuilt: Rebuilt) -> Agreement:
    """Count the examples whose prediction matches `predictions/dev.csv`.

    On a CPU in float32 all must match, up to 1e-4 in a logit: batches are padded to another length
    here, which changes the order of sums, by 1e-6 or so. A class may differ only if the logits are
    that close to a decision boundary. For a run on another device, nine in ten must match: classes
    exactly, scores up to 0.02. In half precision the tolerance is the change that bfloat16 makes to
    these logits, since whitening amplifies its noise; above 0.1 nothing is compared.

    Raises:
        CannotExportError: fewer match.
    """
    device, precision = str(run.result.get("device")), str(run.cfg.trainer.get("precision"))
    exact = device == "cpu" and precision in FLOAT32
    tolerance, least = (TIGHT, 1.0) if exact else (LOOSE, LEAST)
    where = f"on {device}, precision {precision}"
    is_half = precision not in FLOAT32
    if is_half:
        tolerance = max(LOOSE, _noise_of_half(rebuilt))
    recorded = read_predictions(run.folder, "dev")
    if recorded is None:
        return Agreement(0, 0, tolerance, "it kept no predictions of these examples")
    if tolerance > NOISE:
        return Agreement(0, 0, tolerance, f"half precision changes these logits by {tolerance:.2g}")
    known = dict(zip(recorded.index.tolist(), recorded.prediction.tolist(), strict=True))
    numbers = rebuilt.batch.index.tolist()
    rows = torch.tensor([i in known for i in numbers])
    recorded_B = torch.tensor([known[i] for i in numbers if i in known], dtype=torch.float64)
    same_B = same(
        rebuilt.task, rebuilt.single.logits[rows], recorded_B, tolerance, exact or is_half
    )
    found = Agreement(int(same_B.sum()), len(recorded_B), tolerance, where)
    if found.n_same < least * found.n_rows:
        raise CannotExportError(
            f"{run.weights} must predict what predictions/dev.csv has, and {found}; these files "
            "are not of one run: give its command with rerun=true"
        )
    return found


def same(
    task: Task, logits_BC: Tensor, recorded_B: Tensor, tolerance: float, may_cross: bool
) -> Tensor:
    """Whether recorded predictions match the logits up to an error in one logit, `[B]`.

    The error is `tolerance` times the example's largest logit, or 1. A score must lie between the
    predictions of the shifted logits; a class must be one of them, or with `may_cross=False` that
    of the unshifted logits.
    """
    if not len(logits_BC):
        return torch.zeros(0, dtype=torch.bool)
    step_B1 = tolerance * logits_BC.abs().amax(dim=1, keepdim=True).clamp(min=1)
    eye_CC = torch.eye(logits_BC.shape[1])
    moves_MC = torch.cat([torch.zeros_like(eye_CC[:1]), eye_CC, -eye_CC])
    found_MB = torch.stack([task.predictions(logits_BC + step_B1 * move_C) for move_C in moves_MC])
    if not found_MB.is_floating_point():
        return (found_MB[: None if may_cross else 1] == recorded_B).any(dim=0)
    low_B, high_B = found_MB.double().amin(dim=0), found_MB.double().amax(dim=0)
    return (low_B <= recorded_B) & (recorded_B <= high_B)


@torch.no_grad()
def _noise_of_half(rebuilt: Rebuilt) -> float:
    """Largest change of a logit in bfloat16, relative to its example's largest logit or 1."""
    exact_BC = rebuilt.single.logits
    with torch.autocast("cpu", torch.bfloat16):
        half_BC = rebuilt.model(rebuilt.batch).logits.float()
    largest_B = exact_BC.abs().amax(dim=1).clamp(min=1)
    return float(((half_BC - exact_BC).abs().amax(dim=1) / largest_B).max())
