"""Cost of the isotropy layers: ratios of interleaved runs, medians with quartiles.

    python benchmarks/bench_transforms.py [--part a|b|c] [--rounds 9] [--threads 2]

(a) cluster PCA offline against scikit-learn's loop over clusters, (b) every layer of
conf/isotropy on a batch of 32 rows, (c) the step time of MiniLM with every layer over that without
(RTE, batch 32; needs ISOTRAIN_DATA_DIR).
"""

import argparse
import itertools
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytorch_lightning as pl
import torch
from bench_metrics import line
from hydra.utils import instantiate
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits
from timing import Spread, head, interleaved, ms, ratio, row, setting, spread

from isotrain.build import build
from isotrain.config.compose import compose_run
from isotrain.config.shipped import conf_folder
from isotrain.geometry.cluster_pca import apply_cluster_pca, center_clusters, fit_cluster_pca
from isotrain.geometry.kmeans import kmeans
from isotrain.model.isotropic_model import IsotropicModel
from isotrain.runner import quiet
from isotrain.tasks.base import Task
from isotrain.training.optim import parameter_groups
from isotrain.transforms.base import RowTransform
from isotrain.types import Batch

N_CLUSTERS, N_COMPONENTS, N_ITERATIONS = 27, 12, 10
LAYERS = sorted(file.stem for file in Path(conf_folder(), "isotropy").glob("*.yaml"))
AT_TOKENS, ALL_TOKENS = "cluster_pca, site=[tokens]", "none, all tokens of the last block"


def heavy_rows(n: int, d: int) -> torch.Tensor:
    """float32 rows in 20 groups of falling size; falling spectra, Student's t of 3 degrees."""
    rng = np.random.default_rng(0)
    share = 1.0 / np.arange(1, 21)
    owner = rng.choice(20, n, p=share / share.sum())
    centres = 4.0 * rng.standard_normal((20, d))
    scales = rng.permuted(np.tile(2.0 * np.arange(1, d + 1) ** -0.7, (20, 1)), axis=1)
    tails = np.sqrt(3.0 / rng.chisquare(3, n))[:, None]
    rows = centres[owner] + rng.standard_normal((n, d)) * scales[owner] * tails
    return torch.from_numpy(rows).float()


def loop(x: np.ndarray, assignment: np.ndarray, solver: str) -> np.ndarray:
    """Per cluster: mean and leading directions of scikit-learn's PCA taken out."""
    y = np.zeros_like(x)
    for c in np.unique(assignment):
        own = assignment == c
        rows = x[own]
        k = min(N_COMPONENTS, len(rows) - 1)
        pca = PCA(k, svd_solver=solver, random_state=0).fit(rows) if k else None
        rows = rows - rows.mean(axis=0)
        y[own] = rows - rows @ pca.components_.T @ pca.components_ if pca else rows
    return y


def part_a(rounds: int, rows: int = 4096, width: int = 768) -> None:
    x = heavy_rows(rows, width)
    array = x.numpy()

    def ours(**start: object) -> torch.Tensor:
        found = kmeans(x, N_CLUSTERS, **{"n_iterations": N_ITERATIONS, **start})
        clusters = center_clusters(x, found)
        stats = fit_cluster_pca(clusters, N_COMPONENTS, rho=1.0, exact=True)
        return apply_cluster_pca(x, stats, found.assignment_N)

    def seeded() -> dict[str, object]:
        return {"generator": torch.Generator().manual_seed(0)}

    def theirs_whole(solver: str) -> np.ndarray:
        means = KMeans(N_CLUSTERS, n_init=1, max_iter=N_ITERATIONS, tol=0.0, random_state=0)
        return loop(array, means.fit_predict(array), solver)

    found = kmeans(x, N_CLUSTERS, n_iterations=N_ITERATIONS, **seeded())
    given = {"init": found.centroid_KD, "n_iterations": 0}  # centroids give the same clusters
    assignment = found.assignment_N.numpy()
    # A smaller cluster loses fewer directions in isotrain, which never deletes all of a row.
    large = torch.from_numpy(np.bincount(assignment)[assignment] > N_COMPONENTS + 1)
    expected, y = torch.from_numpy(loop(array, assignment, "full"))[large], ours(**given)[large]
    error = float((y - expected).norm() / expected.norm())
    assert error < 1e-4, f"not the same result: {error}"
    print(
        f"\nOffline, [{rows}, {width}] float32, K = {N_CLUSTERS}, R = {N_COMPONENTS}; equal to "
        f"the loop to {error:.0e} in the {int(large.sum())} rows of large enough clusters\n"
    )
    head("what", "scikit-learn, ms", "isotrain, ms", "times faster (quartiles)", "wanted")
    same_clusters = partial(loop, array, assignment)
    methods = {
        "k-means, fit and apply": (lambda: ours(**seeded()), theirs_whole),
        "fit and apply, clusters given": (lambda: ours(**given), same_clusters),
    }
    for what, (mine, theirs) in methods.items():
        solvers = {name: partial(theirs, name) for name in ("full", "auto")}
        seconds = interleaved(rounds, {"ours": mine, **solvers})
        line(f"{what}; svd_solver=full", seconds, "full", "ours", "≥ 6")
        line(f"{what}; svd_solver=auto (approximate)", seconds, "auto", "ours", "–")


def layer_of(name: str, width: int) -> RowTransform:
    return instantiate(compose_run([f"isotropy={name}"]).isotropy)(width=width)


def part_b(rounds: int, rows: int = 32, width: int = 768) -> None:
    leaf = heavy_rows(rows, width).requires_grad_()
    print(f"\nTraining mode, stats=batch, [{rows}, {width}] float32\n")
    head("isotropy layer", "forward, ms (quartiles)", "with backward, ms", "forward wanted")
    forward = {}
    for name in LAYERS:
        layer = layer_of(name, width).train()
        labels = [torch.arange(rows) % 2] * layer.reads_labels
        layer.observe(heavy_rows(rows, width), *labels)  # k-means goes on from centroids
        layer.stats = "batch"
        forward[name] = partial(layer, leaf, *labels)
    seconds = interleaved(rounds, forward)
    both = {name: lambda run=run: run().sum().backward() for name, run in forward.items()}
    longer = interleaved(rounds, both)
    for name in LAYERS:
        forward_ms = Spread(*(1e3 * s for s in spread(seconds[name])))
        row(name, forward_ms, f"{ms(longer, name):.2f}", "< 2")


def train_step(
    model: IsotropicModel, task: Task, optimizer: torch.optim.Optimizer, batches: Iterator[Batch]
) -> None:
    """One training step on the next batch."""
    batch = next(batches)
    output = model(batch)
    optimizer.zero_grad()
    task.loss(output.logits, batch.labels).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    model.remember(output)
    model.observe()


def part_c(rounds: int, batches: int = 32) -> None:
    """Every layer at its default on pooled embeddings, and one at tokens, behind full queues.

    One encoder, one head and one optimizer for all: only the layer differs. A layer at tokens
    needs the last block for all of them, and is compared with a step that computes it.
    """
    quiet()
    overrides = ["task=rte", "encoder=minilm", "source=local", "metric=[]", "isotropy=none"]
    pl.seed_everything(0, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        experiment = build(compose_run(overrides), Path(folder), None)
    module, found = experiment.module, list(experiment.data.train_dataloader())[:batches]
    shared = module.model
    optimizer = module.optimizer(parameter_groups(shared))
    parts, width = (shared.encoder, shared.pooling, shared.head), shared.encoder.width
    models = {name: IsotropicModel(*parts, {"pooled": layer_of(name, width)}) for name in LAYERS}
    for model in models.values():
        model.fast = shared.fast
    models[ALL_TOKENS] = IsotropicModel(*parts, {"pooled": layer_of("none", width)})
    models[AT_TOKENS] = IsotropicModel(*parts, {"tokens": layer_of("cluster_pca", width)})
    for batch in found:
        with torch.no_grad():
            pooled, tokens = shared(batch), models[AT_TOKENS](batch)
        for name, model in models.items():
            model.remember(tokens if name == AT_TOKENS else pooled)
            model.observe()
    for name in LAYERS:
        layer = models[name].transforms["pooled"]
        if layer.stats == "start":  # one map, fitted before training
            layer.fit(pooled.site_embeddings["pooled"].before)
    steps = {
        name: partial(train_step, model, module.task, optimizer, itertools.cycle(found))
        for name, model in models.items()
    }
    times = interleaved(rounds, steps)
    print(f"\nRTE, MiniLM, batch 32, site=[pooled] but for the last, {rounds} steps a method\n")
    head(
        "isotropy layer", "step, ms (median)", "over the same without (median of ratios, quartiles)"
    )
    for name in models:
        without = ALL_TOKENS if name == AT_TOKENS else "none"
        row(name, f"{ms(times, name):.0f}", ratio(times, name, without))


def main() -> None:
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--part", choices=["a", "b", "c"], help="one part; all by default")
    parser.add_argument("--rounds", type=int, default=9, help="5 at least; part c takes 3 times it")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    setting("Isotropy layers", arguments.rounds)
    with threadpool_limits(arguments.threads):  # of NumPy and scikit-learn
        if arguments.part in (None, "a"):
            part_a(arguments.rounds)
        if arguments.part in (None, "b"):
            part_b(10 * arguments.rounds)  # a forward takes about a millisecond
        if arguments.part in (None, "c"):
            part_c(3 * arguments.rounds)


if __name__ == "__main__":
    main()
