"""Partition isotropy of isotropic Gaussian clouds. N embeddings, D dimensions, Q quantiles."""

import functools
import json
import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from isotrain.geometry.cloud import Cloud

TABLE = Path(__file__).with_suffix(".json")  # written by tools/partition_null.py


class Band(NamedTuple):
    """2.5 %, 50 % and 97.5 % quantiles of ln I(W) over draws of a Gaussian cloud; in (−∞, 0]."""

    low: float
    median: float
    high: float


def partition_null(x: Tensor | Cloud) -> dict[str, Tensor]:
    """`low`, `median`, `high` of ln I(W) of Gaussian clouds like `x [N, D]`; each in (−∞, 0].

    What `partition` (both signs) gives an isotropic cloud of the same N, D and rms norm
    √(mean ‖x_i‖²): 95 % of such clouds are between `low` and `high`. A value of `partition` inside
    the band is no evidence against isotropy. See `gaussian_null` for the error of the figures.

    Raises:
        ValueError: N or D beyond the stored grid.

    Ours; I(W) is that of Mu and Viswanath 2018.

    >>> values = partition_null(torch.eye(32, 768))
    >>> bool(values["low"] < values["median"] < values["high"] < 0.0)
    True
    """
    x = Cloud.of(x).rows.detach()
    n, d = x.shape
    largest = float(x.abs().amax())  # divided out: squares stay in range
    length = float(torch.linalg.vector_norm(x / largest)) * largest if largest else 0.0
    band = gaussian_null(n, d, length / math.sqrt(n))
    return {name: x.new_tensor(value) for name, value in band._asdict().items()}


def gaussian_null(n: int, d: int, rms_norm: float) -> Band:
    """Null band of ln I(W) (both signs) of `n` × `d` iid N(0, rms_norm²/d) entries.

    From a stored table of simulations over N = 2 … 131,072, D = 1 … 8,192 and rms norms 1/4 …
    1,024, in powers of two; up to 600 draws a shape. Interpolated is h = ln(−ln I / rms): linear in
    ln N and ln D, cubic (Catmull-Rom) in ln rms. Beyond the rms norms h is constant, its limit at
    both ends.

    Error of ln(−ln I) at 480 points between the nodes: median of the band .008 on half of them,
    .031 on 95 %, .09 at worst; its ends .014, .095 and .23, the worst at D = 3. For D = 768 and N =
    2,048 to 20,000 the median is within .04 to .1; for N ≥ 3,000 and D ≥ 2,048 within .2, wider
    than the band.

    >>> band = gaussian_null(277, 768, 15.0)
    >>> [round(math.exp(value), 1) for value in band]
    [0.2, 0.3, 0.3]
    """
    rows, widths, norms, table_NDRQ = _table()
    if not (rows[0] <= n <= rows[-1] and widths[0] <= d <= widths[-1]):
        raise ValueError(
            f"the null band is known for N = {rows[0]:.0f} to {rows[-1]:.0f} and "
            f"D = {widths[0]:.0f} to {widths[-1]:.0f}, got N = {n}, D = {d}; measure fewer rows, "
            "or extend the table with tools/partition_null.py"
        )
    if rms_norm == 0.0:
        return Band(0.0, 0.0, 0.0)
    weights = (_weights(rows, n), _weights(widths, d), _weights(norms, rms_norm, cubic=True))
    h_Q = torch.einsum("n,d,r,ndrq->q", *weights, table_NDRQ)
    return Band(*(-rms_norm * h_Q.exp()).tolist())


@functools.cache
def _table() -> tuple[list[float], list[float], list[float], Tensor]:
    """Grid of N, D and rms, and h `[N, D, R, Q]`; read when first asked for."""
    content = json.loads(TABLE.read_text(encoding="utf-8"))
    table = torch.tensor(content["table"], dtype=torch.float64) / 1000.0
    return content["rows"], content["widths"], content["norms"], table


def _weights(grid: list[float], at: float, cubic: bool = False) -> Tensor:
    """Weight of each node of a geometric grid; outside of it the end node has them all."""
    position = math.log(min(max(at, grid[0]), grid[-1]) / grid[0]) / math.log(grid[1] / grid[0])
    left = min(int(position), len(grid) - 2)
    t = position - left
    node_weights = (0.0, 1.0 - t, t, 0.0)
    if cubic:
        s = 1.0 - t
        node_weights = (
            -t * s * s / 2,
            s + t * s * (3 * s - 1) / 2,
            t + t * s * (3 * t - 1) / 2,
            -s * t * t / 2,
        )
    weight = torch.zeros(len(grid), dtype=torch.float64)
    for step, value in enumerate(node_weights):
        weight[min(max(left - 1 + step, 0), len(grid) - 1)] += value
    return weight
