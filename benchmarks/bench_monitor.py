"""What watching costs: an epoch with validations, one validation of many rows, and memory.

    ISOTRAIN_DATA_DIR=... .venv/bin/python benchmarks/bench_monitor.py [--part a|b|c] [--rounds 7]

Real RTE and WiC, MiniLM, the monitor's defaults. A monitor works in validations alone (unless
`monitor.every_steps` asks for training rows), so part a trains one epoch without it, then
validates with and without it in turns, and puts together (train + n·with) / (train + n·without)
for each round, n = 1 and 4; so too for two metrics without snapshots. Part b is one validation of
4,096 examples with 4,096 rows of every cloud and the headline metrics. Part c holds the memory of
the kept rows against the documented budget, for 1,000 and 100,000 examples.
"""

import argparse
import gc
import tempfile
from functools import partial
from pathlib import Path
from statistics import median

import pytorch_lightning as pl
import torch
from timing import interleaved, ratio, seconds_of, spread

from isotrain.build import Experiment, build
from isotrain.config.compose import compose_run
from isotrain.runner import quiet
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


def validate(experiment: Experiment) -> None:
    """One validation."""
    experiment.trainer.validate(experiment.module, datamodule=experiment.data, verbose=False)


def epoch(folder: Path, rounds: int) -> None:
    """Part a."""
    for task in ("rte", "wic"):
        plain = built(task, folder, "metric=[]", "+trainer.limit_val_batches=0")
        train = seconds_of(lambda run=plain: run.trainer.fit(run.module, datamodule=run.data))
        methods = {"default": (), " ".join(LIGHT): LIGHT, "off": ("metric=[]",)}
        times = interleaved(
            rounds,
            {name: partial(validate, built(task, folder, *own)) for name, own in methods.items()},
        )
        off = times.pop("off")
        print(f"{task}: epoch {train:.1f} s of training, validation {median(off):.2f} s")
        for name, on in times.items():
            pairs = list(zip(on, off, strict=True))
            cost = 1e3 * median(a - b for a, b in pairs)
            print(f"  {name}: {cost:.0f} ms a validation; epoch, on over off:")
            for n in (1, 4):
                over = spread([(train + n * a) / (train + n * b) for a, b in pairs])
                print(f"    with {n}: {over}")


def many_rows(folder: Path, rounds: int) -> None:
    """Part b."""
    methods = {}
    for name, metrics in (("on", HEADLINE), ("off", "metric=[]")):
        run = built("wic", folder, metrics, "monitor.max_rows=4096", "monitor.map_rows=0")
        run.data.examples["dev"] = run.data.examples["train"][:4096]
        methods[name] = partial(validate, run)
    times = interleaved(rounds, methods)
    print(
        "validation of 4,096 rows, every layer and view, headline metrics: "
        f"{median(times['off']):.1f} s without; on over off: {ratio(times, 'on', 'off')}"
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
        kept = (*rows._views.values(), *rows._sites.values())
        size = sum(x.untyped_storage().nbytes() for one in kept for x in one._columns)
        print(f"{n:,} examples: {size / 1e6:.1f} MB kept, {size / budget:.3f} of the budget")


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
