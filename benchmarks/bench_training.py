"""Training throughput of isotrain beside the Hugging Face Trainer and a bare PyTorch loop.

RTE, MiniLM, batch 32, max_length 128, isotropy layer and monitor off. Every contender trains one
epoch on the same rows; the contenders take turns, and ratios are medians over the rounds.

    ISOTRAIN_DATA_DIR=... .venv/bin/python benchmarks/bench_training.py [--rounds 5] [--rows 384]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from timing import head, interleaved, ms, ratio, row, setting
from transformers import (
    AutoModelForSequenceClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)

from isotrain.build import Experiment, build
from isotrain.config.compose import compose_run
from isotrain.encoders.on_disk import packaged_folder
from isotrain.run import quiet
from isotrain.training.optim import parameter_groups

BATCH, LR = 32, 5e-5


def built(n_rows: int, folder: Path) -> Experiment:
    """A fresh experiment on the first rows of RTE, with nothing but training in it."""
    overrides = ["task=rte", "encoder=minilm", "source=local", "isotropy=none", "metric=[]"]
    overrides += ["trainer.max_epochs=1", "+trainer.limit_val_batches=0", f"output_dir={folder}"]
    cfg = compose_run(overrides)
    pl.seed_everything(0, verbose=False)
    experiment = build(cfg, folder, None)
    experiment.data.examples["train"] = experiment.data.examples["train"][:n_rows]
    return experiment


class Clock(pl.Callback):
    """Seconds between the first and the last training step."""

    def on_train_start(self, *_: Any) -> None:
        self.started = time.perf_counter()

    def on_train_end(self, *_: Any) -> None:
        self.seconds = time.perf_counter() - self.started


class TrainerClock(TrainerCallback):
    """The same for the Hugging Face Trainer."""

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.started = time.perf_counter()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        self.seconds = time.perf_counter() - self.started


def isotrain_seconds(n_rows: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        experiment = built(n_rows, Path(folder))
        clock = Clock()
        experiment.trainer.callbacks.append(clock)
        experiment.trainer.fit(experiment.module, datamodule=experiment.data)
    return clock.seconds


def bare_seconds(n_rows: int) -> float:
    """The same model, batches, optimizer and schedule, in a loop of eight lines."""
    with tempfile.TemporaryDirectory() as folder:
        experiment = built(n_rows, Path(folder))
        module, loader = experiment.module, experiment.data.train_dataloader()
        model = module.model
        optimizer = module.optimizer(parameter_groups(model))
        schedule = module.schedule(
            optimizer=optimizer, num_warmup_steps=1, num_training_steps=len(loader)
        )
        started = time.perf_counter()
        for batch in loader:
            loss = module.task.loss(model(batch).logits, batch.labels)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        return time.perf_counter() - started


def trainer_seconds(n_rows: int, sampling: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        experiment = built(n_rows, Path(folder))
        rows = [
            {
                "input_ids": e.input_ids[0],
                "token_type_ids": e.token_type_ids[0],
                "labels": int(e.label),
            }
            for e in experiment.data.examples["train"]
        ]
        model = AutoModelForSequenceClassification.from_pretrained(
            packaged_folder(), num_labels=2, dtype=torch.float32
        )
        arguments = TrainingArguments(
            folder,
            per_device_train_batch_size=BATCH,
            num_train_epochs=1,
            learning_rate=LR,
            weight_decay=0.01,
            train_sampling_strategy=sampling,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
        )
        clock = TrainerClock()
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=rows,  # type: ignore[arg-type]
            data_collator=DataCollatorWithPadding(experiment.data.tokenizer),
            callbacks=[clock],
        )
        trainer.train()
    return clock.seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=384)
    arguments = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    quiet()
    contenders: dict[str, Callable[[], float]] = {
        "isotrain": lambda: isotrain_seconds(arguments.rows),
        "bare PyTorch loop, same batches": lambda: bare_seconds(arguments.rows),
        "Trainer, group by length": lambda: trainer_seconds(arguments.rows, "group_by_length"),
        "Trainer, dynamic padding": lambda: trainer_seconds(arguments.rows, "random"),
    }
    times = interleaved(arguments.rounds, contenders, seconds=lambda contender: contender())
    setting(f"RTE, MiniLM, batch {BATCH}, {arguments.rows} rows", arguments.rounds)
    head("contender", "examples/s (median)", "isotrain is faster by (median of ratios, quartiles)")
    for name in contenders:
        rate = 1e3 * arguments.rows / ms(times, name)
        row(name, f"{rate:.1f}", ratio(times, name, "isotrain"))


if __name__ == "__main__":
    main()
