"""The app's function: one run, alone or as one of a sweep."""

import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from signal import SIGINT
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig

from isotrain.config.check import check
from isotrain.config.compose import with_names
from isotrain.console import FAILED, UserError, guarded, print_error, reject, spinner
from isotrain.launch.devices import claim
from isotrain.launch.ranks import RanksError, needs_ranks, run_in_ranks
from isotrain.launch.workers import end_with_caller
from isotrain.runs.files import read_result
from isotrain.runs.numbers import score_number
from isotrain.runs.record import LAUNCHER, StorageError
from isotrain.runs.secrets import redacted
from isotrain.studies.call import RunError
from isotrain.studies.status import FAILED_LINE

PRUNED = "PrunedError"  # of isotrain.training.callbacks.pruning, which imports Lightning
PLACE = "a run's folder is <output_dir>/<task>/<method>-<hash>; use output_dir=... or method=..."
LOADING = "importing torch, Lightning and transformers"


@guarded()
def train(cfg: DictConfig) -> float | None:
    """Train the run that Hydra composed; its monitored score.

    A run that is alone ends the process with its exit code if that is not 0. One of a sweep writes
    its output to `logs/<name>.log` in the folder of the sweep, and one line to the terminal.

    Raises:
        RunError: in a sweep, the run failed.
        SystemExit: a signal stopped it, or its exit code.
    """
    hydra = HydraConfig.get()
    cfg = with_names(cfg, hydra.runtime.choices)
    dirs = [s.path for s in hydra.runtime.config_sources if s.provider == "command-line"]
    overrides = [*(f"--config-dir={path}" for path in dirs), *hydra.overrides.task]
    if hydra.mode != RunMode.MULTIRUN:
        if hydra.run.dir != ".":
            sys.exit(reject(f"hydra.run.dir={hydra.run.dir}: {PLACE}"))
        sys.exit(run_alone(cfg, overrides))
    if cfg.study is None and cfg.search is None:  # of a sweeper that is not ours
        return _run(cfg, overrides)
    os.environ[LAUNCHER] = str(hydra.runtime.choices["hydra/launcher"])
    log = Path(str(hydra.sweep.dir)) / "logs" / f"{hydra.job.name}.log"
    return _run_in_sweep(cfg, overrides, log)


def run_alone(cfg: DictConfig, overrides: Sequence[str]) -> int:
    """Exit code of one run: 0, 1 if it failed, 2 if it cannot run, 128 + signal."""
    if name := cfg.study or cfg.search:
        return reject(f"{name} has several runs; start them with: isotrain run {name}")
    return exit_code(lambda: _run(cfg, overrides))


def exit_code(work: Callable[[], object]) -> int:
    """Exit code of a run, whose errors are printed; other errors are raised."""
    from isotrain.training.callbacks.non_finite import NonFiniteError
    from isotrain.training.failures import LostRankError, MemoryLimitError

    try:
        work()
    except (UserError, PermissionError) as error:
        return reject(str(error))
    except KeyboardInterrupt:  # before training could listen, or the second one
        return 128 + SIGINT
    except (NonFiniteError, MemoryLimitError, LostRankError, StorageError, RanksError) as error:
        print_error("the run stopped", [str(error)])
        return FAILED
    return 0


def _run_in_sweep(cfg: DictConfig, overrides: Sequence[str], log: Path) -> float | None:
    terminal, began_at = sys.stdout, time.monotonic()
    name = log.stem.rpartition("-")[0]  # without its hash
    log.parent.mkdir(parents=True, exist_ok=True)

    def tell(text: str) -> None:
        print(f"{text} ({time.monotonic() - began_at:.0f} s)", file=terminal, flush=True)

    with (
        log.open("a", encoding="utf-8") as stream,
        redirect_stdout(stream),
        redirect_stderr(stream),
        guarded(),
    ):
        try:
            score = _run(cfg, overrides)
        except (SystemExit, KeyboardInterrupt, Exception) as error:
            if is_stop(error):
                tell(f"stopped {name}")
                raise
            failure = RunError(type(error).__name__, str(redacted(str(error))))
            if failure.kind != PRUNED:
                traceback.print_exc()
                print(f"{FAILED_LINE}{failure}", file=sys.stderr)
            tell(f"pruned {name}" if failure.kind == PRUNED else f"failed {name}: {failure}; {log}")
            raise failure from None
    score_text = f": {score_number(score, _monitored(cfg))} on dev" if score is not None else ""
    tell(f"done {name}{score_text}")
    return score


def is_stop(error: BaseException) -> bool:
    """Whether a signal ended a run, which ends a sweep, too."""
    if type(error).__name__ == PRUNED:
        return False
    causes = type(error), type(error.__context__)  # Lightning turns Ctrl-C into SystemExit
    code = error.code if isinstance(error, SystemExit) else None
    return KeyboardInterrupt in causes or (isinstance(code, int) and code > 128)


def _run(cfg: DictConfig, overrides: Sequence[str]) -> float | None:
    """Train or read a run in this process, or in processes of its own; its monitored score."""
    if needs_ranks(cfg):
        check(cfg)  # once, and not by each process
        run_in_ranks(cfg, overrides)
        from isotrain.runner import folder_of

        scores = read_result(folder_of(cfg))["scores"]
    else:
        if HydraConfig.get().mode == RunMode.MULTIRUN:
            end_with_caller()
            claim(cfg)  # before CUDA starts
        with spinner(LOADING):
            from isotrain.pages.show import show_run
            from isotrain.runner import run
        scores = run(cfg, overrides, show=show_run, callbacks=_pruning(cfg))
    score: float | None = scores.get(_monitored(cfg))
    return score


def _monitored(cfg: DictConfig) -> str:
    """The key of the score on dev that a run's task monitors."""
    from isotrain.training.revision import task_of

    return f"val/{task_of(cfg).monitor}"


def _pruning(cfg: DictConfig) -> list[Any]:
    """The callback that prunes the run of a trial; none for other runs, which need no Optuna."""
    if cfg.trial is None:
        return []
    from isotrain.studies.trials import callback_of

    return list(filter(None, [callback_of(cfg)]))
