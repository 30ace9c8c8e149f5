"""Cost of the metrics: ratios of interleaved runs, medians, against what they are measured by.

    python benchmarks/bench_metrics.py [--rounds 9] [--threads 2]

IsoScore against the published package, the moment suite against its eigenproblems, partition
isotropy against the published notebook's loop, LID against scikit-dimension, and the growth of the
moment metrics with N. Gaussian rows with a falling spectrum and a mean.
"""

import argparse
import subprocess
import sys

import numpy as np
import torch
from IsoScore.IsoScore import IsoScore
from skdim.id import MLE
from threadpoolctl import threadpool_limits
from timing import Times, head, interleaved, ms, peak_mb, ratio, row, setting

from isotrain.metrics.isoscore import isoscore
from isotrain.metrics.lid import lid
from isotrain.metrics.mean_cosine import mean_cosine
from isotrain.metrics.partition import partition
from isotrain.metrics.suite import find, suite

OF_MOMENTS = (
    *("isoscore", "isoscore_corrected", "mean_cosine", "participation_ratio", "effective_rank"),
    *("rankme", "spectral_entropy", "stable_rank", "explained_variance", "condition"),
    *("alpha_req", "outlier_dims"),
)


def cloud(n: int, d: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(n)
    return torch.randn(n, d, generator=generator) * torch.linspace(0.3, 1.0, d) + 0.2


def line(what: str, times: Times, base: str, method: str, wanted: str) -> None:
    """How many times faster `method` is than `base`, in the median of rounds."""
    both = (f"{ms(times, name):,.1f}" for name in (base, method))
    row(what, *both, ratio(times, base, method), wanted)


def two_eigenproblems_and_a_covariance(x: torch.Tensor) -> None:
    mean = x.double().mean(dim=0)
    centred = x.double() - mean
    covariance = centred.T @ centred / (len(x) - 1)
    torch.linalg.eigvalsh(covariance)
    torch.linalg.eigvalsh(covariance + torch.outer(mean, mean))


def notebook_partition(x: np.ndarray) -> float:
    """The published form: the general eigensolver, one column at a time, not in log space."""
    _, vectors = np.linalg.eig(x.T @ x)
    sums = [np.exp(x @ vectors[:, j].real).sum() for j in range(vectors.shape[1])]
    return float(min(sums) / max(sums))


def lid_memory(x: torch.Tensor) -> float:
    """Peak GiB beyond what was allocated before the call."""
    lid(x[:200])  # libraries and threads are loaded
    before, peak = peak_mb(lambda: lid(x, max_queries=4000))
    return (peak - before) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only-lid-memory", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.only_lid_memory:
        print(lid_memory(cloud(20_000, 384)))
        return
    with threadpool_limits(arguments.threads):  # of NumPy, scikit-learn and scikit-dimension
        tables(arguments)


def tables(arguments: argparse.Namespace) -> None:
    n = arguments.rounds
    columns = ("what", "theirs, ms", "ours, ms", "theirs / ours (quartiles)", "wanted")
    setting("Gaussian rows", n)
    head(*columns)
    for rows, wanted in ((4096, "≥ 2.5"), (32, "≥ 20")):
        x = cloud(rows, 768)
        methods = {
            "package": lambda x=x: IsoScore(x.numpy()),
            "double": lambda x=x: isoscore(x),
        }
        seconds = interleaved(n, methods)
        name = f"isoscore [{rows}, 768] float32, against IsoScore 2.0.1"
        line(name, seconds, "package", "double", wanted)

    x = cloud(4096, 768)
    x64 = x.double().numpy()
    methods = {
        "notebook": lambda: notebook_partition(x64),
        "double": lambda: partition(x),
    }
    seconds = interleaved(n, methods)
    name = "partition [4096, 768], against the notebook's form in float64"
    line(name, seconds, "notebook", "double", "≥ 1.8")

    methods = {
        "parts": lambda: two_eigenproblems_and_a_covariance(x),
        "suite": lambda: suite(x, OF_MOMENTS),
        "single": lambda: [find(name)(x) for name in OF_MOMENTS],
    }
    seconds = interleaved(n, methods)
    name = f"{len(OF_MOMENTS)} moment metrics [4096, 768], against 2 eigenproblems + covariance"
    line(f"{name}: suite", seconds, "parts", "suite", "≥ 0.77 (cost ≤ 1.3)")
    line(f"{name}: one by one", seconds, "parts", "single", "–")

    print()
    head("rows of 768", "moment suite, ms", "per 1,000 rows", "mean_cosine, ms")
    for rows in (12_500, 25_000, 50_000, 100_000):
        x = cloud(rows, 768)
        methods = {"suite": lambda x=x: suite(x, OF_MOMENTS), "cosine": lambda x=x: mean_cosine(x)}
        took = interleaved(5, methods)
        whole, cosine = ms(took, "suite"), ms(took, "cosine")
        row(f"{rows:,}", f"{whole:,.0f}", f"{1e3 * whole / rows:.2f}", f"{cosine:.0f}")

    x = cloud(20_000, 384)
    points = x.double().numpy()

    methods = {
        "theirs": lambda: MLE().fit(points, n_neighbors=100),
        "ours": lambda: lid(x, max_queries=4000),
        "whole": lambda: lid(x),
    }
    seconds = interleaved(max(5, n // 2), methods)
    print()
    head(*columns)
    name = "lid [20000, 384], against scikit-dimension with every row"
    line(f"{name}: 4,000 queries", seconds, "theirs", "ours", "≥ 4")
    line(f"{name}: every row", seconds, "theirs", "whole", "–")
    command = [sys.executable, __file__, "--only-lid-memory", f"--threads={arguments.threads}"]
    peak = float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    print(f"\nlid with 4,000 queries: {peak:.2f} GiB above what was there (wanted: under 1)")


if __name__ == "__main__":
    main()
