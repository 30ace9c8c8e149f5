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
import time
from pathlib import Path
from statistics import median

import pytorch_lightning as pl
import torch

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


def step(module: FineTuning, optimizer: torch.optim.Optimizer, batch: Batch) -> float:
    started = time.perf_counter()
    loss = module.task.loss(module.model(batch).logits, batch.labels)
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
    optimizer.step()
    return time.perf_counter() - started


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
    plans, optimizers, n_bytes = {}, {}, {}
    for arm, overrides in ARMS.items():
        plans[arm] = built(overrides, arguments.source).plan[0]
        set_trainable(module.model.encoder, plans[arm])
        optimizers[arm] = module.new_optimizer()
        n_bytes[arm] = saved_bytes(module, batches[0])
        step(module, optimizers[arm], batches[0])  # warm up
    seconds: dict[str, list[float]] = {arm: [] for arm in ARMS}
    arms = list(ARMS)
    for _ in range(arguments.rounds):
        for batch in batches:
            for arm in arms:
                set_trainable(module.model.encoder, plans[arm])
                seconds[arm].append(step(module, optimizers[arm], batch))
            arms = arms[1:] + arms[:1]  # no arm always follows the same one
    print(
        f"RTE ({arguments.source}), MiniLM, batch 32, {len(seconds['none'])} steps an arm, "
        f"{torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    print("| freezing | step, ms (median) | over none (median of ratios, quartiles) | saved, MB |")
    print("| --- | --- | --- | --- |")
    for arm, values in seconds.items():
        ratios = sorted(a / b for a, b in zip(values, seconds["none"], strict=True))
        low, high = ratios[len(ratios) // 4], ratios[3 * len(ratios) // 4]
        print(
            f"| {arm} | {1e3 * median(values):.0f} | {median(ratios):.3f} "
            f"({low:.3f} to {high:.3f}) | {n_bytes[arm] / 1e6:.1f} |"
        )


if __name__ == "__main__":
    main()
