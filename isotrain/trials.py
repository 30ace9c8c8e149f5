"""Parts of a run against each other: what does not go together is refused before training."""

from __future__ import annotations

from itertools import chain

import torch
from omegaconf import DictConfig

from isotrain.geometry.cloud import shared
from isotrain.metrics.suite import flat, needs
from isotrain.training.data import TaskData
from isotrain.training.fine_tuning import FineTuning
from isotrain.types import Objective, RowMetric


def try_optimizer(module: FineTuning) -> None:
    """Bad values of the optimizer and the schedule, told before training begins."""
    name = "optimizer"
    try:
        trial = module.optimizer([torch.nn.Parameter(torch.zeros(1))])
        name = "schedule.name"
        module.schedule(optimizer=trial, num_warmup_steps=0, num_training_steps=1)
    except (ValueError, TypeError) as error:
        raise ValueError(f"{name}: {error}") from error


def try_metrics(metrics: dict[str, RowMetric], max_rows: int, width: int) -> None:
    """Values that no cloud of this run could be measured with, told before training begins."""
    rows = torch.randn(min(max_rows, 4096), width, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(len(rows)) % 2
    with shared(rows):
        for name, metric in metrics.items():
            try:
                of_labels = needs(metric) == "labels"
                found = metric(rows, labels=labels) if of_labels else metric(rows)
            except Exception as error:  # of a metric of the user's own, whatever it is
                problem = str(error) if isinstance(error, ValueError) else repr(error)
                raise ValueError(f"metric.{name}, tried on {len(rows)} rows: {problem}") from error
            for key, value in flat(name, found).items():
                if not isinstance(value, torch.Tensor) or value.ndim:
                    raise ValueError(
                        f"metric.{name} must give 0-d tensors, or a flat dict of them; {key} is "
                        f"{type(value).__name__} {list(getattr(value, 'shape', []))}"
                    )


def check_sizes(
    cfg: DictConfig, data: TaskData, world_size: int, max_positions: int | None
) -> None:
    """Refuse sizes that do not go together, now that the data are here."""
    examples = chain.from_iterable(data.examples.values())
    longest = max(len(ids) for example in examples for ids in example.input_ids)
    if max_positions is not None and longest > max_positions:
        raise ValueError(
            f"this encoder has {max_positions} positions, and the longest sequence has {longest} "
            f"tokens; set task.max_length={max_positions} or less"
        )
    smallest = {"data.batch_size": cfg.data.batch_size} | {
        f"{split} rows": n for split, n in data.n_rows.items() if n
    }
    for name, n in smallest.items():
        if n < world_size:
            raise ValueError(
                f"each of {world_size} processes needs a row, and {name} is {n}; lower "
                "trainer.devices"
            )
    interval, n_batches = cfg.trainer.get("val_check_interval"), len(data.train_dataloader())
    in_an_epoch = "check_val_every_n_epoch" not in cfg.trainer and not any(
        key.startswith(("limit_", "overfit", "fast_dev")) for key in cfg.trainer
    )
    if in_an_epoch and isinstance(interval, int) and interval > n_batches:
        raise ValueError(
            f"trainer.val_check_interval={interval} batches is more than the {n_batches} of an "
            "epoch; use 1.0, or count over epochs with +trainer.check_val_every_n_epoch=null"
        )


def check_labels(
    metrics: dict[str, RowMetric], objectives: dict[str, Objective], data: TaskData
) -> None:
    """Refuse what compares classes where labels are scores."""
    of_labels = [f"metric={name}" for name, m in metrics.items() if needs(m) == "labels"]
    of_labels += [
        f"objective={name}"
        for name, objective in objectives.items()
        if getattr(objective, "needs", "rows") == "classes"
    ]
    scores = {example.label for example in data.examples["dev"] if example.label % 1}
    if of_labels and scores:
        raise ValueError(
            f"{of_labels[0]} compares classes, and labels of task={data.task.name} are "
            f"scores, such as {min(scores):.3g}; leave it out"
        )
