"""Training throughput: isotrain, a bare PyTorch loop, and the Trainers of two libraries.

MiniLM, batch 32, max_length 128, isotropy layer, monitor and evaluations off. Each contender trains
on the same first examples; they take turns, and ratios are medians over the rounds. Measured is the
last epoch, which is the second where blocks are frozen (the first one computes their states).

The bare loop is float32, with batches of similar length and fused AdamW, and with the modules of
torch and transformers: what one would write by hand. `exact` is isotrain with speed=exact.

    ISOTRAIN_DATA_DIR=... python benchmarks/bench_training.py --work rte wic stsb
    ISOTRAIN_DATA_DIR=... python benchmarks/bench_training.py --work rte --precision bf16-mixed
    ISOTRAIN_DATA_DIR=... python benchmarks/bench_training.py --work random first_n head_only
    python benchmarks/bench_training.py --python none cluster_pca --rows 2400

`--python` compares CPU time per step of isotrain and the bare loop with a tiny encoder, generated
data and these layers. Both have the same model and shortcuts, so the difference is what callbacks,
records and Lightning take.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytorch_lightning as pl
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
from sentence_transformers.sentence_transformer import modules
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss
from sentence_transformers.sentence_transformer.training_args import (
    SentenceTransformerTrainingArguments,
)
from timing import head, interleaved, ms, ratio, row, setting, spread
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
from isotrain.runner import quiet
from isotrain.training.loggers.jsonl import open_loggers
from isotrain.training.optim import parameter_groups

BATCH, LR = 32, 5e-5
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def synchronize() -> None:
    """Wait until a GPU has done what it was given."""
    if DEVICE == "cuda":
        torch.cuda.synchronize()


class Work(NamedTuple):
    """What is trained, for how many epochs, and what the bare loop does otherwise."""

    overrides: tuple[str, ...]
    n_epochs: int = 1
    bare: tuple[str, ...] = ()


WORKS = {
    "rte": Work(("task=rte",)),
    "wic": Work(("task=wic",)),
    "stsb": Work(("task=stsb", "task.form=bi", "pooling=mean")),
    "random": Work(("task=rte", "data.batching=random"), bare=("data.batching=length",)),
    "first_n": Work(("task=rte", "freezing=first_n"), 2, ("freezing=none",)),
    "head_only": Work(("task=rte", "freezing=head_only"), 2, ("freezing=none",)),
}


TINY = (
    *("task=wic", "encoder=tiny", "encoder.width=32", "source=demo", "trainer.max_epochs=1"),
    *("data.batch_size=16", "trainer.accelerator=cpu"),
)


def built(overrides: tuple[str, ...], n_rows: int, folder: Path) -> Experiment:
    """A fresh experiment on the first examples, with nothing but training in it."""
    common = ["encoder=minilm", "source=local", "isotropy=none", "metric=[]"]
    common += ["+trainer.limit_val_batches=0", f"output_dir={folder}", "checkpoint.every_steps=0"]
    words = [*common, f"data.n_train={n_rows}", *overrides]
    cfg = compose_run(list({word.partition("=")[0]: word for word in words}.values()))
    pl.seed_everything(0, verbose=False)
    return build(cfg, folder, None)


class Clock(pl.Callback):
    """Seconds of the last epoch's training steps."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self.now = now

    def on_train_epoch_start(self, *_: Any) -> None:
        synchronize()
        self.started = self.now()

    def on_train_epoch_end(self, *_: Any) -> None:
        synchronize()
        self.seconds = self.now() - self.started


class TrainerClock(TrainerCallback):
    """The same for the Trainers."""

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        self.started = time.perf_counter()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        synchronize()
        self.seconds = time.perf_counter() - self.started


def isotrain_seconds(work: Work, n_rows: int, *more: str) -> float:
    epochs = f"trainer.max_epochs={work.n_epochs}"
    with tempfile.TemporaryDirectory() as folder:
        experiment = built((*work.overrides, epochs, *more), n_rows, Path(folder))
        clock = Clock()
        experiment.trainer.callbacks.append(clock)
        experiment.trainer.fit(experiment.module, datamodule=experiment.data)
    return clock.seconds


def bare_seconds(work: Work, n_rows: int) -> float:
    """The same model, batches, optimizer and schedule, in a loop of eight lines."""
    with tempfile.TemporaryDirectory() as folder:
        overrides = {o.partition("=")[0]: o for o in (*work.overrides, *work.bare)}
        experiment = built((*overrides.values(), "speed=exact"), n_rows, Path(folder))
        module, loader = experiment.module, experiment.data.train_dataloader()
        model = module.model.to(DEVICE)
        optimizer = module.optimizer(parameter_groups(model))
        schedule = module.schedule(
            optimizer=optimizer, num_warmup_steps=1, num_training_steps=len(loader)
        )
        started = time.perf_counter()
        for batch in loader:
            batch = batch.to(DEVICE, non_blocking=True)
            loss = module.task.loss(model(batch).logits, batch.labels)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
        synchronize()
        return time.perf_counter() - started


def python_ms(layer: str, n_rows: int, is_bare: bool) -> float:
    """CPU time per step of isotrain with a record every ten steps, or of the bare loop."""
    with tempfile.TemporaryDirectory() as folder:
        experiment = built((*TINY, f"isotropy={layer}"), n_rows, Path(folder))
        module, model, data = experiment.module, experiment.module.model, experiment.data
        if not is_bare:
            open_loggers(experiment.trainer, {}, Path(folder), {"seed": 0}, 0)
            clock = Clock(time.process_time)
            experiment.trainer.callbacks.append(clock)
            experiment.trainer.fit(module, datamodule=data)
            return 1e3 * clock.seconds / experiment.trainer.global_step
        loader, optimizer = data.train_dataloader(), module.optimizer(parameter_groups(model))
        schedule = module.schedule(
            optimizer=optimizer, num_warmup_steps=1, num_training_steps=len(loader)
        )
        started = time.process_time()
        for batch in loader:
            output = model(batch)
            loss = module.task.loss(output.logits, batch.labels)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            model.remember(output)
            model.observe()
        return 1e3 * (time.process_time() - started) / len(loader)


def print_python(layers: Sequence[str], n_rows: int, rounds: int) -> None:
    """Print CPU milliseconds per step and their difference, round by round."""
    torch.set_num_threads(1)
    setting(f"CPU time per step, tiny encoder, {n_rows} rows", rounds)
    head("layer", "bare loop, ms (quartiles)", "isotrain, ms", "difference, ms")
    for layer in layers:
        contenders = {
            name: partial(python_ms, layer, n_rows, name == "bare") for name in ("bare", "isotrain")
        }
        times = interleaved(rounds, contenders, seconds=lambda contender: contender())
        more = [b - a for a, b in zip(times["bare"], times["isotrain"], strict=True)]
        row(layer, spread(times["bare"]), spread(times["isotrain"]), spread(more))


def arguments_of(folder: str, precision: str, sampling: str) -> dict[str, Any]:
    """Arguments of either Trainer."""
    return {
        "output_dir": folder,
        "per_device_train_batch_size": BATCH,
        "num_train_epochs": 1,
        "learning_rate": LR,
        "weight_decay": 0.01,
        "train_sampling_strategy": sampling,
        "save_strategy": "no",
        "logging_strategy": "no",
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": DEVICE == "cpu",
        "bf16": precision.startswith("bf16"),
    }


def trainer_seconds(work: Work, n_rows: int, precision: str, sampling: str) -> float:
    with tempfile.TemporaryDirectory() as folder:
        experiment = built(work.overrides, n_rows, Path(folder))
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
        clock = TrainerClock()
        trainer = Trainer(
            model=model,
            args=TrainingArguments(**arguments_of(folder, precision, sampling)),
            train_dataset=rows,  # type: ignore[arg-type]
            data_collator=DataCollatorWithPadding(experiment.data.tokenizer),
            callbacks=[clock],
        )
        trainer.train()
    return clock.seconds


def sentence_seconds(work: Work, n_rows: int, precision: str) -> float:
    """The Trainer of sentence-transformers, which tokenises in its steps."""
    with tempfile.TemporaryDirectory() as folder:
        experiment = built(work.overrides, n_rows, Path(folder))
        decode = partial(experiment.data.tokenizer.decode, skip_special_tokens=True)
        examples = experiment.data.examples["train"]
        rows = {
            **{f"sentence{i + 1}": [decode(e.input_ids[i]) for e in examples] for i in (0, 1)},
            "score": [float(e.label) / 5 for e in examples],
        }
        transformer = modules.Transformer(str(packaged_folder()), max_seq_length=128)
        pooling = modules.Pooling(transformer.get_embedding_dimension(), "mean")
        model = SentenceTransformer(modules=[transformer, pooling], device=DEVICE)
        given = arguments_of(folder, precision, "random")
        clock = TrainerClock()
        trainer = SentenceTransformerTrainer(
            model=model,
            args=SentenceTransformerTrainingArguments(**given),
            train_dataset=Dataset.from_dict(rows),
            loss=CosineSimilarityLoss(model),
            callbacks=[clock],
        )
        trainer.train()
    return clock.seconds


def contenders_of(name: str, n_rows: int, precision: str) -> dict[str, Callable[[], float]]:
    """What is measured beside the bare loop, by name."""
    work = WORKS[name]
    own = f"trainer.precision={precision}"
    found: dict[str, Callable[[], float]] = {
        "bare loop": partial(bare_seconds, work, n_rows),
        "isotrain": partial(isotrain_seconds, work, n_rows, own),
        "isotrain, speed=exact": partial(isotrain_seconds, work, n_rows, own, "speed=exact"),
    }
    if name in ("first_n", "head_only"):
        whole = Work(("task=rte",))
        found["isotrain, nothing frozen"] = partial(isotrain_seconds, whole, n_rows, own)
    if name == "random":
        found["isotrain, by length"] = partial(isotrain_seconds, WORKS["rte"], n_rows, own)
        found["Trainer"] = partial(trainer_seconds, work, n_rows, precision, "random")
    if name in ("rte", "wic"):
        for sampling, said in (("group_by_length", "by length"), ("random", "random")):
            found[f"Trainer, {said}"] = partial(trainer_seconds, work, n_rows, precision, sampling)
    if name == "stsb":
        said = "sentence-transformers Trainer"
        found[said] = partial(sentence_seconds, work, n_rows, precision)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", nargs="+", choices=list(WORKS), default=["rte"])
    parser.add_argument("--precision", default="32-true")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=384)
    parser.add_argument("--python", nargs="+", metavar="LAYER", help="CPU time with these layers")
    given = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    quiet()
    if given.python:
        print_python(given.python, given.rows, given.rounds)
        return
    for name in given.work:
        contenders = contenders_of(name, given.rows, given.precision)
        times = interleaved(given.rounds, contenders, seconds=lambda contender: contender())
        setting(f"{name}, batch {BATCH}, {given.rows} rows, {given.precision}", given.rounds)
        head("contender", "examples/s (median)", "times as fast as the bare loop (quartiles)")
        for contender in contenders:
            rate = 1e3 * given.rows / ms(times, contender)
            row(contender, f"{rate:.1f}", ratio(times, "bare loop", contender))
        if name == "random":
            faster = ratio(times, "isotrain, by length", "isotrain")
            print(f"\nrandom over by length: {faster}")
        print(flush=True)


if __name__ == "__main__":
    main()
