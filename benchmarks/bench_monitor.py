"""What watching costs: an epoch with four validations, one validation of many rows, and memory.

    ISOTRAIN_DATA_DIR=... .venv/bin/python benchmarks/bench_monitor.py [--part a|b|c] [--rounds 7]

Real RTE and WiC, MiniLM, the monitor's defaults. A monitor works in validations alone (unless
`monitor.every_steps` asks for training rows), so part a trains one epoch without it, then
validates with and without it in turns, and puts together (train + 4·with) / (train + 4·without)
for each round; so too for two metrics without snapshots. Part b is one validation of 4,096 examples
with 4,096 rows of every cloud and the headline metrics. Part c holds the memory of the kept rows
against the documented budget, for 1,000 and 100,000 examples.
"""

from __future__ import annotations

import argparse
import gc
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median, quantiles

import pytorch_lightning as pl
import torch

from isotrain.build import Experiment, build
from isotrain.config.compose import compose_run
from isotrain.run import quiet
from isotrain.training.monitor.sampling import CloudSampler
from isotrain.types import Batch, ModelOutput

BASE = ("encoder=minilm", "source=local", "isotropy=none", "trainer.max_epochs=1")
LIGHT = ("metric=[isoscore_corrected,mean_cosine]", "monitor.map_rows=0")
HEADLINE = "metric=[isoscore_corrected,mean_cosine,isoscore,partition,partition_null]"


def built(task: str, folder: Path, *overrides: str) -> Experiment:
    """A run of a task with some overrides."""
    cfg = compose_run([f"task={task}", *BASE, f"output_dir={folder}", *overrides])
    pl.seed_everything(0, verbose=False)
    return build(cfg, Path(tempfile.mkdtemp(dir=folder)), None)


def validation_s(experiment: Experiment) -> float:
    """Seconds of one validation."""
    started = time.perf_counter()
    experiment.trainer.validate(experiment.module, datamodule=experiment.data, verbose=False)
    return time.perf_counter() - started


def in_turns(all_of_them: Sequence[Experiment], rounds: int) -> list[list[float]]:
    """Seconds of a validation of each, in turns, after one of each unmeasured."""
    for experiment in all_of_them:
        validation_s(experiment)
    found = []
    for number in range(rounds):
        order = all_of_them if number % 2 == 0 else all_of_them[::-1]
        seconds = {id(e): validation_s(e) for e in order}
        found.append([seconds[id(e)] for e in all_of_them])
    return found


def told(ratios: Sequence[float]) -> str:
    """Median and quartiles."""
    low, _, high = quantiles(ratios, n=4)
    return f"{median(ratios):.3f} ({low:.3f} to {high:.3f}, n = {len(ratios)})"


def epoch(folder: Path, rounds: int) -> None:
    """Part a."""
    for task in ("rte", "wic"):
        plain = built(task, folder, "metric=[]", "+trainer.limit_val_batches=0")
        started = time.perf_counter()
        plain.trainer.fit(plain.module, datamodule=plain.data)
        train = time.perf_counter() - started
        on, light = built(task, folder), built(task, folder, *LIGHT)
        rows = in_turns((on, light, built(task, folder, "metric=[]")), rounds)
        off_s = median(off for *_, off in rows)
        print(f"{task}: epoch {train:.1f} s of training, validation {off_s:.2f} s")
        for name, column in (("default", 0), (" ".join(LIGHT), 1)):
            ratios = [(train + 4 * row[column]) / (train + 4 * row[-1]) for row in rows]
            cost = median(row[column] - row[-1] for row in rows)
            print(
                f"  {name}: {cost * 1e3:.0f} ms a validation; epoch with 4 validations, on over "
                f"off: {told(ratios)}"
            )


def many_rows(folder: Path, rounds: int) -> None:
    """Part b."""
    pair = [
        built("wic", folder, metrics, "monitor.max_rows=4096", "monitor.map_rows=0")
        for metrics in (HEADLINE, "metric=[]")
    ]
    for experiment in pair:
        experiment.data.examples["dev"] = experiment.data.examples["train"][:4096]
    pairs = in_turns(pair, rounds)
    print(
        f"validation of 4,096 rows, every layer and view, headline metrics: {pairs[0][1]:.1f} s "
        f"without; on over off: {told([a / b for a, b in pairs])}"
    )


def memory() -> None:
    """Part c: D = 768, 12 blocks, three views, one site; rows as an evaluation offers them."""
    width, n_layers, max_rows, n_tokens, length = 768, 13, 1024, 30522, 4
    budget = max_rows * width * 4 * (3 * n_layers + 2)
    for n in (1_000, 100_000):
        rows = CloudSampler(max_rows, ("cls", "tokens", "mean"), ("pooled",))
        for first in range(0, n, 100):
            ids = torch.randint(n_tokens, (100, length))
            ones = torch.ones_like(ids)
            index = torch.arange(first, first + 100)
            batch = Batch(ids, ones, ids * 0, ids * 0, index % 2, index)
            state = torch.randn(100, length, width)
            states = tuple(state for _ in range(n_layers))
            rows.offer(batch, ModelOutput(states, state[:, :1], state[:, 0, :2]))
        gc.collect()
        share = rows.n_bytes / budget
        print(f"{n:,} examples: {rows.n_bytes / 1e6:.1f} MB kept, {share:.3f} of the budget")


def main() -> None:
    """Print the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--part", choices=["a", "b", "c"], action="append")
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    parts = given.part or ["a", "b", "c"]
    quiet()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as folder:
        if "a" in parts:
            epoch(Path(folder), given.rounds)
        if "b" in parts:
            many_rows(Path(folder), given.rounds)
    if "c" in parts:
        memory()


if __name__ == "__main__":
    main()
