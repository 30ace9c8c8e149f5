"""Kill a run at random points, start it again, and compare: weights and rows bit by bit.

    python benchmarks/kill_points.py --points 40
    python benchmarks/kill_points.py --points 4 --only best    # configurations with these words

Each point is one event of a run: a training batch, the moment after an optimizer step, an
evaluation batch, a logged row, a checkpoint about to replace the older one. The process is killed
there with SIGKILL, or told to stop with SIGTERM, and the same command is given again until it ends.
Compared too is what a run records of its selection: whose weights it has, after how many
evaluations, and whether patience stopped it.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from isotrain.config.compose import compose_run
from isotrain.run import folder_of, run
from isotrain.runs.files import read_records, read_result, untimed
from isotrain.training.callbacks import resume as checkpoints
from isotrain.training.loggers.jsonl import RecordLog
from isotrain.training.module import FineTuning

SHARED = (
    *("encoder=tiny", "encoder.width=16", "source=demo", "task=wic", "threads=1", "report=false"),
    *("trainer.accelerator=cpu", "data.batch_size=32", "optimizer.lr=1e-3", "cache_dir=null"),
    *("+trainer.limit_train_batches=11", "data.n_dev=128", "trainer.max_epochs=2"),
    *("data.n_test=128", "trainer.log_every_n_steps=2", "checkpoint.every_steps=3"),
)
CONFIGURATIONS = {
    "plain": ("isotropy=none", "trainer.val_check_interval=4"),
    "accumulation, queue layer": (
        *("isotropy=cluster_pca", "isotropy.n_clusters=2", "site=[tokens,pooled]"),
        *("trainer.accumulate_grad_batches=3", "trainer.val_check_interval=5"),
        *("monitor.every_steps=2", "metric=[isoscore,cosine_drift]"),
    ),
    "bi form, objective": (
        *("task.form=bi", "isotropy=mean", "objective=[cosreg]", "freezing=first_n"),
        *("freezing.n_blocks=1", "trainer.max_steps=19", "trainer.max_epochs=3"),
        *("trainer.val_check_interval=7", "+trainer.check_val_every_n_epoch=null"),
    ),
    "selection, patience": (
        *("isotropy=cluster_pca", "isotropy.n_clusters=2", "training.select=holdout"),
        *("training.patience=3", "trainer.accumulate_grad_batches=2", "schedule=constant"),
        *("trainer.val_check_interval=3", "trainer.max_epochs=3"),
    ),
    # Learns, then overshoots: the best evaluation is ahead of its neighbours by .02 and .06, so
    # that the selected step does not hang on rounding.
    "best, early stop": (
        *("task=stsb", "task.form=bi", "pooling=mean", "isotropy=none", "schedule=constant"),
        *("optimizer.lr=6e-3", "seed=1", "training.select=best", "training.patience=2"),
        *("trainer.max_epochs=6", "trainer.val_check_interval=4", "checkpoint.every_steps=5"),
    ),
}
SELECTION = ("select", "selected_step", "n_candidates", "stopped_by_patience", "steps", "scores")


def compare(configuration: str, event: int | None, number: int, root: Path) -> list[str]:
    """Differences between a run stopped at `event` and one left alone; none means bit-identical.

    `event` None runs the reference, with all its events counted in `<root>/events`.
    """
    overrides = [*SHARED, *CONFIGURATIONS[configuration]]
    name = configuration.split()[0].rstrip(",")
    reference = compose_run([*overrides, f"output_dir={root / name / 'whole'}"])
    if event is None:
        _in_a_process(lambda: _count_events(reference, root / name / "events"))
        return []
    place = root / name / f"{event}-{number}"
    cfg = compose_run([*overrides, f"output_dir={place}"])
    _in_a_process(lambda: _run_until(cfg, event, number))
    _in_a_process(lambda: _run_until(cfg, 1 + event // 3, number))  # and in the resumed run
    _in_a_process(lambda: run(cfg, "arm"))
    return _differences(folder_of(reference, "arm"), folder_of(cfg, "arm"))


def n_events(configuration: str, root: Path) -> int:
    """Events of the reference run."""
    name = configuration.split()[0].rstrip(",")
    return int((root / name / "events").read_text())


def _differences(whole: Path, stopped: Path) -> list[str]:
    found = []
    states = [torch.load(f / "last.ckpt", weights_only=True) for f in (whole, stopped)]
    one, two = (state["state_dict"] for state in states)
    found += [name for name in one if not torch.equal(one[name], two[name])]
    rows = [read_records(folder / "metrics.jsonl") for folder in (whole, stopped)]
    for a, b in zip(*rows, strict=False):
        a, b = untimed(a), untimed(b)
        if a != b:
            found.append(f"row of step {a['step']}: {sorted(set(a.items()) ^ set(b.items()))[:4]}")
    if len(rows[0]) != len(rows[1]):
        found.append(f"{len(rows[0])} rows and {len(rows[1])}")
    results = [read_result(folder) for folder in (whole, stopped)]
    found += [f"{key} of the results" for key in SELECTION if results[0][key] != results[1][key]]
    return found


def _on_events(react: Callable[[int], Any]) -> None:
    """Call `react(number)` at every event of the runs of this process."""
    count = 0

    def happen() -> None:
        nonlocal count
        count += 1
        react(count)

    def before(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def patched(*args: Any, **kwargs: Any) -> Any:
            happen()
            return original(*args, **kwargs)

        setattr(owner, name, patched)

    before(FineTuning, "training_step")
    before(FineTuning, "on_train_batch_end")
    before(FineTuning, "validation_step")
    before(FineTuning, "test_step")
    before(RecordLog, "log_metrics")
    before(checkpoints.os, "replace")


def _count_events(cfg: Any, path: Path) -> None:
    total = 0

    def note(number: int) -> None:
        nonlocal total
        total = number

    _on_events(note)
    run(cfg, "arm")
    path.write_text(str(total))


def _run_until(cfg: Any, event: int, number: int) -> None:
    def stop(count: int) -> None:
        if count == event:
            os.kill(os.getpid(), number)

    _on_events(stop)
    run(cfg, "arm")


def _in_a_process(work: Callable[[], Any]) -> int:
    """Fork (imports take seconds), run, and return the exit status."""
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    code = 1
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        work()
        code = 0
    except SystemExit:
        code = 3
    finally:
        os._exit(code)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="words that a configuration must have")
    given = parser.parse_args()
    draw = random.Random(given.seed)
    identical = 0
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        chosen = [name for name in CONFIGURATIONS if given.only in name]
        if not chosen:
            parser.error(f"--only {given.only}: there are {'; '.join(CONFIGURATIONS)}")
        for configuration in chosen:
            compare(configuration, None, 0, root)
        for point in range(given.points):
            configuration = chosen[point % len(chosen)]
            event = draw.randint(1, n_events(configuration, root))
            number = draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
            found = compare(configuration, event, number, root)
            identical += not found
            what = f"{configuration}, {signal.Signals(number).name} at event {event}"
            print(f"{what}: {found or 'identical'}", flush=True)
    print(f"{identical} of {given.points} bit-identical")
    sys.exit(identical < given.points)


if __name__ == "__main__":
    main()
