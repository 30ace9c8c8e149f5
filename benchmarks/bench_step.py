"""Step time with an isotropy layer over the step time without one.

RTE, MiniLM, batch 32, max_length 128: forward, backward, optimizer step, queue. The arms take
turns on every batch; a ratio compares the same batch, and the median of all ratios is printed.

    ISOTRAIN_DATA_DIR=... .venv/bin/python benchmarks/bench_step.py [--batches 10] [--rounds 5]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from functools import partial
from itertools import cycle
from pathlib import Path

import pytorch_lightning as pl
import torch
from timing import head, interleaved, ms, ratio, row, setting

from isotrain.build import build
from isotrain.config.compose import compose_run
from isotrain.model.isotropic_model import IsotropicModel
from isotrain.run import quiet
from isotrain.tasks.base import Task
from isotrain.training.module import FineTuning
from isotrain.training.optim import parameter_groups
from isotrain.types import Batch

K8R3 = ["isotropy.n_clusters=8", "isotropy.n_components=3"]
ARMS = {
    "none": ["isotropy=none"],
    "cluster_pca pooled, queue": ["isotropy=cluster_pca", *K8R3],
    "cluster_pca pooled, batch": ["isotropy=cluster_pca", *K8R3, "isotropy.stats=batch"],
    "cluster_pca tokens, queue": ["isotropy=cluster_pca", *K8R3, "site=[tokens]"],
    "cluster_pca tokens, batch": [
        *["isotropy=cluster_pca", *K8R3, "site=[tokens]", "isotropy.stats=batch"]
    ],
}


def built(overrides: list[str]) -> tuple[FineTuning, list[Batch]]:
    base = ["task=rte", "encoder=minilm", "source=local", "metric=[]"]
    cfg = compose_run(base + overrides)
    pl.seed_everything(0, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        experiment = build(cfg, Path(folder), None)
    return experiment.module, list(experiment.data.train_dataloader())


def step(
    model: IsotropicModel, task: Task, optimizer: torch.optim.Optimizer, batches: Iterator[Batch]
) -> None:
    batch = next(batches)
    output = model(batch)
    loss = task.loss(output.logits, batch.labels)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    model.remember(output)
    model.observe()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    quiet()
    modules = {arm: built(overrides)[0] for arm, overrides in ARMS.items()}
    module, batches = built(ARMS["none"])
    batches = batches[: arguments.batches]
    # One encoder, one head and one optimizer for all arms: only the layer differs.
    shared = module.model
    models = {
        arm: IsotropicModel(shared.encoder, shared.pooling, shared.head, m.model.transforms)
        for arm, m in modules.items()
    }
    optimizer = module.optimizer(parameter_groups(shared))
    steps = {
        arm: partial(step, model, module.task, optimizer, cycle(batches))
        for arm, model in models.items()
    }
    for one in steps.values():  # fill the queues
        for _ in batches:
            one()
    n_steps = arguments.rounds * len(batches)
    times = interleaved(n_steps, steps)
    setting("RTE, MiniLM, batch 32, K = 8, R = 3; a round is a step", n_steps)
    head("isotropy layer", "step, ms (median)", "over none (median of ratios, quartiles)")
    for arm in ARMS:
        row(arm, f"{ms(times, arm):.0f}", ratio(times, arm, "none"))


if __name__ == "__main__":
    main()
