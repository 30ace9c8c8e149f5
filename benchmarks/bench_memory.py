"""Whether a run's memory stays flat: resident size between step 200 and step 1,000.

    python benchmarks/bench_memory.py

A tiny encoder on generated data with the monitor, the layer (queue) at two sites, token batches of
changing length, an evaluation every 50 steps and a checkpoint every 100.
"""

import tempfile
from typing import Any

import psutil
import pytorch_lightning as pl

from isotrain import runner as run_module
from isotrain.config.compose import compose_run
from isotrain.training.callbacks import resume as checkpoints

OVERRIDES = (
    *("encoder=tiny", "source=demo", "task=wic", "threads=1", "trainer.accelerator=cpu"),
    *("isotropy=cluster_pca", "site=[tokens,pooled]", "trainer.max_epochs=20", "cache_dir=null"),
    *("trainer.max_steps=1000", "trainer.val_check_interval=50", "data.n_dev=128"),
    *("checkpoint.every_steps=100", "+trainer.check_val_every_n_epoch=null"),
)


def main() -> None:
    sizes: dict[int, float] = {}
    process = psutil.Process()
    original = checkpoints.Checkpoints.on_train_batch_start

    def watched(self: Any, trainer: pl.Trainer, *arguments: Any) -> None:
        original(self, trainer, *arguments)
        if trainer.global_step % 100 == 0:
            sizes.setdefault(trainer.global_step, process.memory_info().rss / 2**20)

    def at_the_end(self: Any, trainer: pl.Trainer, *arguments: Any) -> None:
        ended(self, trainer, *arguments)
        sizes[trainer.global_step] = process.memory_info().rss / 2**20

    ended = checkpoints.Checkpoints.on_train_end
    checkpoints.Checkpoints.on_train_batch_start = watched  # type: ignore[method-assign]
    checkpoints.Checkpoints.on_train_end = at_the_end  # type: ignore[method-assign]
    with tempfile.TemporaryDirectory() as folder:
        run_module.run(compose_run([*OVERRIDES, f"output_dir={folder}"]), "cluster_pca")
    print("| step | resident MB |\n| --- | --- |")
    for step, size in sizes.items():
        print(f"| {step} | {size:.0f} |")
    late = [size for step, size in sizes.items() if step >= 200]
    print(f"between step 200 and 1,000: {max(late) - min(late):.0f} MB apart")


if __name__ == "__main__":
    main()
