"""Step time and memory kept for backward where the bottom of the encoder is frozen.

MiniLM on RTE, batch 32, max_length 128: forward, backward, clip, optimizer step. The freezings take
turns on every batch; a ratio compares the same batch, and the median of all ratios is printed.
Bytes are those of the tensors that the forward pass saves for backward, parameters left out, on the
first batch.

    .venv/bin/python benchmarks/bench_freezing.py [--source local] [--batches 4] [--rounds 5]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path

import pytorch_lightning as pl
import torch
from timing import head, interleaved, ms, ratio, row, setting

from isotrain.build import Experiment, build
from isotrain.config.compose import compose_run
from isotrain.encoders.freezing import set_trainable
from isotrain.run import quiet
from isotrain.training.module import FineTuning
from isotrain.types import Batch

ARMS = {"none": ["freezing=none"], "embeddings": ["freezing=embeddings"]} | {
    f"first_n {n}": ["freezing=first_n", f"freezing.n_blocks={n}"] for n in range(1, 7)
}


def built(overrides: list[str], source: str) -> Experiment:
    base = ["task=rte", "encoder=minilm", f"source={source}", "metric=[]"]
    pl.seed_everything(0, verbose=False)
    with tempfile.TemporaryDirectory() as folder:
        return build(compose_run(base + overrides), Path(folder), None)


def step(module: FineTuning, optimizer: torch.optim.Optimizer, batch: Batch) -> None:
    loss = module.task.loss(module.model(batch).logits, batch.labels)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimizer.step()


def saved_bytes(module: FineTuning, batch: Batch) -> int:
    """Of distinct storages that backward keeps alive; weights are there anyhow."""
    weights = {p.untyped_storage().data_ptr() for p in module.parameters()}
    sizes: dict[int, int] = {}
    kept = []  # so that no two tensors share an address one after the other

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            sizes[storage.data_ptr()] = storage.nbytes()
            kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        module.task.loss(module.model(batch).logits, batch.labels)
    return sum(sizes.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", choices=("demo", "local"), default="demo")
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    quiet()
    # One model for all arms: only what trains differs, and an optimizer for each.
    experiment = built(ARMS["none"], arguments.source)
    module, batches = experiment.module, [*experiment.data.first_batches(arguments.batches)]
    steps: dict[str, Callable[[], object]] = {}
    n_bytes = {}

    def train(
        names: frozenset[str], optimizer: torch.optim.Optimizer, turns: Iterator[Batch]
    ) -> None:
        set_trainable(module.model.encoder, names)
        step(module, optimizer, next(turns))

    for arm, overrides in ARMS.items():
        plan = built(overrides, arguments.source).plan[0]
        set_trainable(module.model.encoder, plan)
        steps[arm] = partial(train, plan, module.new_optimizer(), cycle(batches))
        n_bytes[arm] = saved_bytes(module, batches[0])
    n_steps = arguments.rounds * len(batches)
    times = interleaved(n_steps, steps)
    setting(f"RTE ({arguments.source}), MiniLM, batch 32; a round is a step", n_steps)
    head("freezing", "step, ms", "over none (median of ratios, quartiles)", "saved, MB")
    for arm in ARMS:
        over = ratio(times, arm, "none")
        row(arm, f"{ms(times, arm):.0f}", over, f"{n_bytes[arm] / 1e6:.1f}")


if __name__ == "__main__":
    main()
