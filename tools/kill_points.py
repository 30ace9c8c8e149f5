"""Kill a run at random points, start it again, and compare: weights and rows bit by bit.

    python tools/kill_points.py --points 40
    python tools/kill_points.py --points 4 --only best    # configurations with these words

Each point is one event of a run: a training batch, the moment after an optimizer step, an
evaluation batch, the moments before and after a file is replaced, deleted or appended to. The
process is killed there with SIGKILL, or told to stop with SIGTERM, and the same command is given
again until it ends. Compared too is what a run records of its selection: whose weights it has,
after how many evaluations, and whether it stopped early.
"""

import argparse
import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from isotrain.config.compose import compose_run
from isotrain.runner import folder_of, run
from isotrain.runs.files import RecordFile, read_records, read_result
from isotrain.training.module import FineTuning

SHARED = (
    *("encoder=tiny", "encoder.width=16", "source=demo", "task=wic", "threads=1", "report=false"),
    *("trainer.accelerator=cpu", "data.batch_size=32", "optimizer.lr=1e-3", "cache_dir=null"),
    *("+trainer.limit_train_batches=11", "data.n_dev=128", "trainer.max_epochs=2"),
    *("data.n_test=128", "trainer.log_every_n_steps=2", "checkpoint.every_steps=3"),
    "checkpoint.every_s=0",
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
    "selection, early stopping": (
        *("isotropy=cluster_pca", "isotropy.n_clusters=2", "training.select=holdout"),
        *(
            "callbacks=[early_stopping]",
            "callbacks.early_stopping.patience=3",
            "trainer.accumulate_grad_batches=2",
            "schedule=constant",
        ),
        *("trainer.val_check_interval=3", "trainer.max_epochs=3"),
    ),
    "queue, istar, best": (
        *("isotropy=cluster_pca", "isotropy.stats=queue", "isotropy.n_clusters=2"),
        *("objective=[istar]", "trainer.max_steps=12", "trainer.accumulate_grad_batches=2"),
        *("checkpoint.every_steps=4", "training.select=best", "trainer.val_check_interval=5"),
        *("data.batch_size=8", "data.n_train=96", "trainer.max_epochs=3", "metric=[isoscore]"),
    ),
    # Learns, then overshoots: the best evaluation is ahead of its neighbours by .02 and .06, so
    # that the selected step does not hang on rounding.
    "best, early stop": (
        *("task=stsb", "task.form=bi", "pooling=mean", "isotropy=none", "schedule=constant"),
        *(
            "optimizer.lr=6e-3",
            "seed=1",
            "training.select=best",
            "callbacks=[early_stopping]",
            "callbacks.early_stopping.patience=2",
        ),
        *("trainer.max_epochs=6", "trainer.val_check_interval=4", "checkpoint.every_steps=5"),
    ),
}
FILES = ("replace", "rename", "unlink", "truncate", "append")  # events of the folder's files
SELECTION = ("select", "selected_step", "n_candidates", "stopped_early", "steps", "scores")


def compare(
    configuration: str,
    event: int | None,
    number: int,
    root: Path,
    harm: Callable[[Path], Any] | None = None,
) -> list[str]:
    """Differences between a run stopped at `event` and one left alone; none means bit-identical.

    It is stopped a second time on its way to the end, and may never find its files damaged. With
    `harm(run folder)` it is a run stopped earlier, harmed, and stopped at `event` of a new start.
    `event` None runs the reference, with the names of its events in `<root>/events`.
    """
    overrides = [*SHARED, *CONFIGURATIONS[configuration]]
    root = below(root, configuration)
    reference = compose_run([*overrides, f"output_dir={root / 'whole'}"])
    if event is None:
        in_a_process(lambda: _note_events(reference, root / "events"), root / "whole.log")
        return []
    place = root / f"{event}-{number}{'-harmed' if harm else ''}"
    cfg, log = compose_run([*overrides, f"output_dir={place}"]), place.with_suffix(".log")
    whole, stopped = folder_of(reference), folder_of(cfg)
    shutil.rmtree(place, ignore_errors=True)
    log.unlink(missing_ok=True)
    if harm is not None:
        middle = len((root / "events").read_text().split()) // 2
        in_a_process(lambda: run_until(cfg, middle, signal.SIGKILL), log)
        harm(stopped)
    in_a_process(lambda: run_until(cfg, event, number), log)
    in_a_process(lambda: run_until(cfg, 1 + event // 3, number), log)  # and in the resumed run
    in_a_process(lambda: run(cfg), log)
    found = differences(whole, stopped)
    damaged = log.read_text(errors="replace").count(" is damaged (")
    return found + (["a kill was called damage"] if damaged > (harm is not None) else [])


def events_of(configuration: str, root: Path) -> list[str]:
    """The names of the events of the reference run."""
    return (below(root, configuration) / "events").read_text().split()


def below(root: Path, configuration: str) -> Path:
    """The folder of a configuration's runs."""
    return root / configuration.split()[0].rstrip(",")


def differences(whole: Path, stopped: Path) -> list[str]:
    """Between two finished runs: what they record, weights, rows."""
    results = [read_result(folder) for folder in (whole, stopped)]
    if results[1].get("status") != "finished":
        return [f"not finished: {results[1].get('status')}, {results[1].get('error')}"]
    found = [f"{key} of the results" for key in SELECTION if results[0][key] != results[1][key]]
    one, two = (load_file(folder / "weights.safetensors") for folder in (whole, stopped))
    found += [name for name in one if not torch.equal(one[name], two[name])]
    rows = [[untimed(x) for x in read_records(f / "metrics.jsonl")] for f in (whole, stopped)]
    for a, b in zip(*rows, strict=False):
        if a != b:
            found.append(f"row of step {a['step']}: {sorted(set(a.items()) ^ set(b.items()))[:4]}")
    if len(rows[0]) != len(rows[1]):
        found.append(f"{len(rows[0])} rows and {len(rows[1])}")
    return found


def untimed(record: dict[str, Any]) -> dict[str, Any]:
    """A record without times and rates, which no two runs share."""
    return {k: v for k, v in record.items() if k != "time_s" and not k.endswith("_per_second")}


def on_events(react: Callable[[str], Any]) -> None:
    """Call `react(name)` at every event of the runs of this process."""

    def wrap(owner: Any, name: str, is_file: bool = False) -> None:
        original = getattr(owner, name)

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            react(name)
            result = original(*args, **kwargs)
            if is_file:  # the gap before what is written next
                react(name)
            return result

        setattr(owner, name, wrapped)

    for name in ("training_step", "on_train_batch_end", "validation_step", "test_step"):
        wrap(FineTuning, name)
    wrap(RecordFile, "append", is_file=True)
    for name in FILES[:-1]:
        wrap(os, name, is_file=True)


def run_until(cfg: Any, event: int, number: int) -> None:
    """Run, with a signal at an event."""
    events = itertools.count(1)
    on_events(lambda _: os.kill(os.getpid(), number) if next(events) == event else None)
    run(cfg)


def _note_events(cfg: Any, path: Path) -> None:
    names: list[str] = []
    on_events(names.append)
    run(cfg)
    path.write_text("\n".join(names))


def in_a_process(work: Callable[[], Any], log: Path) -> int:
    """Fork (imports take seconds), run, append what it prints to a log; the exit status."""
    log.parent.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if child:
        return os.waitpid(child, 0)[1]
    code = 1
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 1)
        work()
        code = 0
    except SystemExit:
        code = 3
    finally:
        sys.stdout.flush()
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
            event = draw.randint(1, len(events_of(configuration, root)))
            number = draw.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
            found = compare(configuration, event, number, root)
            identical += not found
            what = f"{configuration}, {signal.Signals(number).name} at event {event}"
            print(f"{what}: {found or 'identical'}", flush=True)
    print(f"{identical} of {given.points} bit-identical")
    sys.exit(identical < given.points)


if __name__ == "__main__":
    main()
