"""A whole run, from the command to its end, over its training steps; and the same by the Trainer.

WiC, MiniLM, 2 epochs, batch 32, evaluated on dev before training and after each epoch, test scored.
A run is a process of its own with empty caches; its steps are without data loading. isotrain
also measures isotropy at every evaluation (the default monitor) and draws the page of the run.

    ISOTRAIN_DATA_DIR=... python benchmarks/bench_run.py [--rounds 5] [--rows 5428]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median

from timing import head, interleaved, row, setting, spread

from isotrain.runs.files import read_records

EPOCHS, BATCH = 2, 32
RUN = ("task=wic", "encoder=minilm", "source=local", f"trainer.max_epochs={EPOCHS}", "threads=2")


def isotrain_run(n_rows: int) -> tuple[float, float]:
    """Seconds of a run by the command, and those of its training steps by its records."""
    with tempfile.TemporaryDirectory() as folder:
        own = (f"output_dir={folder}", f"data.n_train={n_rows}", f"data.batch_size={BATCH}")
        whole = seconds_of("-m", "isotrain", "train", *RUN, *own)
        (records,) = Path(folder).rglob("metrics.jsonl")
        rates = [r for r in read_records(records) if "speed/examples_per_second" in r]
    # A record speaks for the steps since the one before it.
    steps = [b - a for a, b in pairwise([-1, *(r["step"] for r in rates)])]
    per_step = [BATCH / r["speed/examples_per_second"] for r in rates]
    mean = sum(n * s for n, s in zip(steps, per_step, strict=True)) / sum(steps)
    return whole, mean * EPOCHS * n_rows / BATCH


def trainer_run(n_rows: int) -> tuple[float, float]:
    """The same by the Trainer of transformers."""
    with tempfile.TemporaryDirectory() as folder:
        whole = seconds_of(__file__, "--trainer", folder, "--rows", str(n_rows))
        return whole, json.loads((Path(folder) / "steps.json").read_text())


def seconds_of(*command: str) -> float:
    """How long a Python process takes."""
    began = time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "false"}
    subprocess.run([sys.executable, *command], check=True, capture_output=True, env=environment)
    return time.perf_counter() - began


def train_by_trainer(folder: str, n_rows: int) -> None:
    """The script that one would write with the Trainer."""
    import numpy as np
    import torch
    from datasets import load_dataset
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainerCallback,
        TrainingArguments,
    )

    from isotrain.encoders.on_disk import packaged_folder

    class Clock(TrainerCallback):
        seconds = 0.0

        def on_step_begin(self, *_: object, **__: object) -> None:
            self.began = time.perf_counter()

        def on_step_end(self, *_: object, **__: object) -> None:
            self.seconds += time.perf_counter() - self.began

    root = Path(os.environ["ISOTRAIN_DATA_DIR"]) / "wic"
    files = {split: str(root / f"{split}.jsonl") for split in ("train", "dev", "test")}
    weights = str(packaged_folder())
    tokenizer = AutoTokenizer.from_pretrained(weights)

    def encode(rows: dict[str, list[str]]) -> dict[str, list[object]]:
        first = [f"{w}: {s}" for w, s in zip(rows["word"], rows["sentence1"], strict=True)]
        encoded = tokenizer(first, rows["sentence2"], truncation=True, max_length=128)
        return {**encoded, "labels": [int(label) for label in rows["label"]]}

    data = load_dataset("json", data_files=files, cache_dir=folder)
    columns = data["train"].column_names
    data = data.map(encode, batched=True, remove_columns=columns)
    clock = Clock()
    trainer = Trainer(
        model=AutoModelForSequenceClassification.from_pretrained(
            weights, num_labels=2, dtype=torch.float32
        ),
        args=TrainingArguments(
            output_dir=folder,
            per_device_train_batch_size=BATCH,
            per_device_eval_batch_size=64,
            num_train_epochs=EPOCHS,
            learning_rate=5e-5,
            weight_decay=0.01,
            train_sampling_strategy="group_by_length",
            eval_strategy="epoch",
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
        ),
        train_dataset=data["train"].select(range(n_rows)),
        eval_dataset=data["dev"],
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=lambda p: {
            "accuracy": float(np.mean(np.argmax(p.predictions, -1) == p.label_ids))
        },
        callbacks=[clock],
    )
    trainer.evaluate()
    trainer.train()
    trainer.predict(data["test"])
    trainer.save_model(folder)
    (Path(folder) / "steps.json").write_text(json.dumps(clock.seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=5428)
    parser.add_argument("--trainer", metavar="FOLDER", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.trainer:
        train_by_trainer(given.trainer, given.rows)
        return
    contenders = {
        "isotrain": partial(isotrain_run, given.rows),
        "Trainer, by length": partial(trainer_run, given.rows),
    }
    steps: dict[str, list[float]] = {name: [] for name in contenders}

    def measured(name: str) -> float:
        whole, of_steps = contenders[name]()
        steps[name].append(of_steps)
        return whole

    methods = {name: partial(measured, name) for name in contenders}
    times = interleaved(given.rounds, methods, seconds=lambda method: method())  # type: ignore[arg-type, return-value]
    setting(f"WiC, {given.rows} rows, {EPOCHS} epochs, processes of 2 threads", given.rounds)
    head("contender", "whole run, s", "training steps, s", "run / steps", "run / isotrain's run")
    for name, whole in times.items():
        own = steps[name][1:]  # the first round warms up
        over = spread([a / b for a, b in zip(whole, own, strict=True)])
        of_ours = spread([a / b for a, b in zip(whole, times["isotrain"], strict=True)])
        row(name, f"{median(whole):.1f}", f"{median(own):.1f}", over, of_ours)


if __name__ == "__main__":
    main()
