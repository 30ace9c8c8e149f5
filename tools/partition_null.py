"""Writes the table of `partition_null`: ln I(W) of isotropic Gaussian clouds.

    OMP_NUM_THREADS=1 .venv/bin/python tools/partition_null.py            # about 7 minutes
    OMP_NUM_THREADS=1 .venv/bin/python tools/partition_null.py --check    # about 3 minutes

A cloud has iid N(0, rms²/D) entries. One eigenproblem serves every rms of a draw: with
e = exp(rms·p) of the projections p at one rms, e² is that of twice the rms. The number of draws
follows from the shape alone, so the same table comes out on every machine (up to rounding). Below
100 draws the band is their mean ± 1.96 standard deviations, below 8 its width is that of half the
rows, and a shape too large for two draws continues parallel to the curve of half the width.
`--check` compares the stored table with fresh draws between its nodes.
"""

import argparse
import json
import math
import time
from pathlib import Path

import torch
from torch import Tensor

from isotrain.metrics.partition_null import TABLE, gaussian_null

ROWS = [2**k for k in range(1, 18)]  # N
WIDTHS = [2**k for k in range(14)]  # D
NORMS = [2.0**k for k in range(-2, 11)]  # rms norm
QUANTILES = torch.tensor([0.975, 0.5, 0.025], dtype=torch.float64)  # of ln(−ln I): low I first
NORMAL = torch.tensor([1.96, 0.0, -1.96], dtype=torch.float64)  # the same of a normal law
SECONDS = 2.5  # spent on a shape
MOST_SECONDS = 6.0  # of one draw; shapes that cost more are extrapolated
MOST_DRAWS = 600
FOR_QUANTILES, FOR_SPREAD = 100, 8  # draws that it takes


def seconds_of(n: int, d: int) -> float:
    """Model of the time of one draw, on one core."""
    side = min(n, d)
    return 1e-5 + n * (25e-9 * side + 6e-9 * d) + 3e-11 * n * d * side + 9e-11 * side**3


def n_draws(n: int, d: int) -> int:
    if seconds_of(n, d) > MOST_SECONDS:
        return 0
    return max(2, min(MOST_DRAWS, int(SECONDS / seconds_of(n, d))))


def log_partitions(n: int, d: int, count: int, norms: list[float], seed: int) -> Tensor:
    """ln I of `count` clouds at each rms norm (each twice the one before), `[count, R]`."""
    generator = torch.Generator().manual_seed(seed)
    at_once = max(1, (1 << 21) // (n * d))
    parts = []
    for start in range(0, count, at_once):
        n_clouds = min(at_once, count - start)
        x = torch.randn(n_clouds, n, d, generator=generator) / math.sqrt(d)
        if n < d:  # XV = U√Λ, with XXᵀ = UΛUᵀ
            value, vector = torch.linalg.eigh(x @ x.mT)
            projection = (vector * value.clamp_min(0.0).sqrt()[:, None, :]).double()
        else:
            projection = (x @ torch.linalg.eigh(x.mT @ x)[1]).double()
        empty = projection.new_full((n_clouds, len(norms)), math.log(n) if n < d else math.nan)
        low, high = empty.clone(), empty.clone()  # F = N in the null space, where there is one
        for block in projection.split(max(1, (1 << 17) // (n * n_clouds)), dim=2):
            for signed in (block, -block):
                largest = signed.amax(dim=1)
                power = ((signed - largest[:, None]) * norms[0]).exp_()
                for k, norm in enumerate(norms):
                    log_f = power.sum(dim=1).log_() + norm * largest
                    low[:, k] = torch.fmin(low[:, k], log_f.amin(dim=1))
                    high[:, k] = torch.fmax(high[:, k], log_f.amax(dim=1))
                    power.square_()
        parts.append(low - high)
    return torch.cat(parts)


def build() -> dict[str, object]:
    offset_R = torch.tensor(NORMS, dtype=torch.float64).log()
    table = torch.full((len(ROWS), len(WIDTHS), len(NORMS), 3), math.nan, dtype=torch.float64)
    started = time.perf_counter()
    for i, n in enumerate(ROWS):
        for j, d in enumerate(WIDTHS):
            count = n_draws(n, d)
            if count:
                drawn = log_partitions(n, d, count, NORMS, seed=100_003 * n + d)
                value = (-drawn).log() - offset_R
                centre = value.mean(dim=0)[:, None]
                if count >= FOR_QUANTILES:
                    table[i, j] = value.quantile(QUANTILES, dim=0).T
                elif count >= FOR_SPREAD:
                    table[i, j] = centre + value.std(dim=0)[:, None] * NORMAL
                else:  # the width of the band is that of half the rows
                    table[i, j] = centre + table[i - 1, j] - table[i - 1, j, :, 1:2]
            else:  # parallel to the curve of half the width
                table[i, j] = table[i - 1, j] + table[i, j - 1] - table[i - 1, j - 1]
        print(f"N = {n}: {time.perf_counter() - started:.0f} s", flush=True)
    return {
        "value": "1000·ln(−ln I / rms) by N, D, rms norm; at 97.5, 50 and 2.5 %",
        "rows": ROWS,
        "widths": WIDTHS,
        "norms": NORMS,
        "draws": [[n_draws(n, d) for d in WIDTHS] for n in ROWS],
        "table": (1000.0 * table).round().int().tolist(),
    }


def check() -> None:
    """Errors of ln(−ln I) at midpoints, where a fresh simulation takes a few seconds."""
    root = math.sqrt(2.0)
    norms = [root * norm for norm in NORMS[:-1]]
    print("| N | D | draws | median, worst rms | low, worst rms | high, worst rms |")
    print("| --- | --- | --- | --- | --- | --- |")
    errors = []
    for n in (3, 6, 23, 91, 277, 724, 2896, 11585):
        for d in (3, 23, 91, 362, 768, 1448):
            count = min(2000, int(4.0 / seconds_of(n, d)))
            if count < FOR_QUANTILES:
                continue
            drawn = log_partitions(n, d, count, norms, seed=n + d)
            truth = (-drawn).log().quantile(QUANTILES, dim=0).T
            bands = [gaussian_null(n, d, norm) for norm in norms]
            found = torch.tensor(bands, dtype=torch.float64).neg().log()
            error = (found - truth)[:, [1, 0, 2]]
            errors.append(error)
            worst = error.abs().amax(dim=0).tolist()
            print(
                f"| {n} | {d} | {count} | " + " | ".join(f"{e:.3f}" for e in worst) + " |",
                flush=True,
            )
    size = torch.stack(errors).abs()
    for name, part in (("median", size[..., 0]), ("low and high", size[..., 1:])):
        q = part.flatten().quantile(torch.tensor([0.5, 0.95, 1.0], dtype=torch.float64)).tolist()
        print(f"{name}: half below {q[0]:.3f}, 95 % below {q[1]:.3f}, worst {q[2]:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare the stored table")
    parser.add_argument("--output", type=Path, default=TABLE)
    arguments = parser.parse_args()
    torch.set_flush_denormal(True)
    if arguments.check:
        check()
        return
    table = build()
    arguments.output.write_text(json.dumps(table, separators=(",", ":"), ensure_ascii=False) + "\n")
    print(f"{arguments.output}: {arguments.output.stat().st_size} bytes")


if __name__ == "__main__":
    main()
