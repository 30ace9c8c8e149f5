"""Trials of a search in Optuna's storage: open, take and end them, and prune their runs.

A trial is RUNNING from the moment a call takes it. Each call holds a lock while it runs, and its
trials name the lock; a trial whose call is dead is taken by the next one, number and values kept.
"""

import json
import os
import re
import secrets
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from inspect import signature
from pathlib import Path
from socket import gethostname
from typing import Any

import optuna
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf
from optuna.exceptions import StorageInternalError
from optuna.storages import JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from isotrain.console import nearest
from isotrain.runs.locks import is_locked, sign, take, take_with_retries
from isotrain.runs.secrets import redacted
from isotrain.runs.stored import PlanError
from isotrain.studies.call import WAIT_S, alone
from isotrain.studies.space import suggest

DATABASE, CALLS = "study.db", "calls"  # in the folder; CALLS has a lock of each call
CALL, END, WHY, SCORES, RUNS = "call", "end", "why", "scores", "runs"  # attributes of a trial
BAD_ENDINGS = ("degenerate", "diverged", "undefined")  # caused by the values
STATES = {"complete": TrialState.COMPLETE, "failed": TrialState.FAIL}  # others are pruned


def is_in_folder(storage: str | None) -> bool:
    """Whether a storage is a file in the search's folder."""
    return storage is None or re.fullmatch(r"journal:\w[\w.-]*", storage) is not None


def storage_url(storage: str | None, folder: Path) -> str:
    """Address of a storage; a relative path starts at the search's folder.

    >>> storage_url("journal:trials.log", Path("/runs/searches/few"))
    'journal:/runs/searches/few/trials.log'
    """
    if storage is None:
        return f"sqlite:///{folder.absolute() / DATABASE}"
    storage = str(OmegaConf.create([storage])[0])  # ${oc.env:NAME} may hold a password
    kind, _, path = storage.partition(":")
    return f"journal:{folder.absolute() / path}" if kind == "journal" else storage


@contextmanager
def opened(url: str, name: str, direction: str | None = None) -> Iterator[Study]:
    """Open the trials of a search; with `direction` (max | min) they are made if missing.

    Raises:
        PlanError: the storage cannot be opened, read or written.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = None
    try:
        storage = _storage(url)
        if direction:
            aim = StudyDirection.MAXIMIZE if direction == "max" else StudyDirection.MINIMIZE
            optuna.create_study(
                storage=storage, study_name=name, direction=aim, load_if_exists=True
            )
        study = optuna.load_study(storage=storage, study_name=name)
    except Exception as error:  # a damaged file may raise anything
        raise failure(url, "opened", error, "move it away, or correct storage") from error
    try:
        yield study
    except StorageInternalError as error:
        raise failure(url, "read or written", error, "the same command goes on") from error
    finally:
        if isinstance(storage, RDBStorage):
            storage.remove_session()
            storage.engine.dispose()


def _storage(url: str) -> JournalStorage | RDBStorage:
    if url.startswith("journal:"):
        return JournalStorage(Journal(url.removeprefix("journal:")))
    options = {"connect_args": {"timeout": WAIT_S}} if url.startswith("sqlite:") else None
    return RDBStorage(url.replace("{", "{{").replace("}", "}}"), engine_kwargs=options)


class Journal(JournalFileBackend):
    """Optuna's journal, under a lock that ends with the process that holds it.

    Optuna's own lock outlives a killed process: others wait for 30 s, and two of them may then
    take it at the same time. A line that was cut off, by a full disk, is removed by the next one.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self._path = Path(path).resolve()

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Write a line for each entry."""
        lock = take_with_retries(self._path, WAIT_S)
        if lock is None:
            raise StorageInternalError(f"another process has locked it for {WAIT_S:g} s")
        with os.fdopen(lock, "r+b") as file:
            end = file.seek(0, os.SEEK_END)
            if end and os.pread(lock, 1, end - 1) != b"\n":
                end = self._path.read_bytes().rfind(b"\n") + 1
                file.seek(end)
                file.truncate()
            file.write("".join(json.dumps(log) + "\n" for log in logs).encode())
            file.flush()
            os.fsync(lock)


def failure(url: str, action: str, error: Exception, fix: str) -> PlanError:
    """The error that names a storage, what cannot be done with it, and what to do."""
    reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
    return PlanError(redacted(f"the trials in {url} cannot be {action} ({reason}); {fix}"))


def optuna_part(kind: str, name: str, options: Mapping[str, Any], seed: int = 0) -> Any:
    """A `sampler` or `pruner` of Optuna, by the name of its class.

    Raises:
        ValueError: no such class, or options that it rejects.
    """
    module = getattr(optuna, f"{kind}s")
    names = [n for n in module.__all__ if n.lower().endswith(kind) and not n.startswith("Base")]
    if name not in names:
        raise ValueError(f"{kind}: no {name}; {nearest(name, names, 'there are')}")
    part_class = getattr(module, name)
    seed_option = {"seed": seed} if "seed" in signature(part_class).parameters else {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Optuna calls some of them experimental
            return part_class(**seed_option, **options)
    except Exception as error:  # whatever a class of Optuna raises
        raise ValueError(f"{kind}_options of {name}: {error}, got {dict(options)}") from error


@contextmanager
def at_work(folder: Path) -> Iterator[str]:
    """Hold the lock of a call; its name."""
    path = folder / CALLS / f"{gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = take(path)
    assert lock is not None  # nobody else knows the name
    sign(lock)
    try:
        yield path.name
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)


def is_left(trial: FrozenTrial, folder: Path) -> bool:
    """Whether the call that ran a trial is dead."""
    lock = folder / CALLS / Path(str(trial.user_attrs.get(CALL))).name
    return trial.state == TrialState.RUNNING and not (lock.is_file() and is_locked(lock))


def take_trials(
    study: Study, search: Any, folder: Path, call: str, n: int
) -> list[tuple[Trial, list[str]]]:
    """Up to n trials for a call, and their overrides: those that dead calls left, then new ones.

    Each trial has a sampler by its number: an interrupted search has the same trials.
    """
    batch = []
    with alone(folder):
        trials = study.get_trials(deepcopy=False)
        orphans: list[Any] = [trial for trial in trials if is_left(trial, folder)]
        new_numbers = range(len(trials), search.n_trials)
        for candidate in [*orphans, *new_numbers][:n]:
            is_new = isinstance(candidate, int)
            study.sampler = search.sampler_of(candidate if is_new else candidate.number)
            try:
                trial = study.ask() if is_new else Trial(study, candidate._trial_id)
                trial.set_user_attr(CALL, call)
                batch.append((trial, suggest(trial, search.parameters)))
            except (StorageInternalError, KeyboardInterrupt):
                raise
            except Exception as error:  # of options that only drawing reads
                raise PlanError(
                    f"{search.sampler} cannot draw a trial: {error!r}; correct its options"
                ) from error
    return batch


def tell(study: Study, trial: Trial, kind: str, score: float | None = None, why: str = "") -> None:
    """Record how a trial ended: `complete` with a score, or otherwise with a reason.

    Bad values violate a constraint: the sampler ranks them below all others.
    """
    if why:
        trial.set_user_attr(WHY, why)
    trial.set_user_attr(END, kind)
    if kind in BAD_ENDINGS:
        trial.set_constraint("can be ranked", 1.0)
    with suppress(RuntimeError):  # of a sampler that would stop Optuna's own loop: its grid is done
        study.tell(trial, score, STATES.get(kind, TrialState.PRUNED))


def ending(trial: FrozenTrial) -> str:
    """How a trial ended, or its state, in one word."""
    state = "failed" if trial.state == TrialState.FAIL else trial.state.name.lower()
    return str(trial.user_attrs.get(END, state)) if trial.state.is_finished() else state


def callback_of(cfg: DictConfig) -> Any:
    """The callback that prunes this run of a trial; None where there is nothing to prune.

    The run of the first seed alone is pruned. The search is read from `hydra.sweep.dir`.
    """
    if cfg.search is None or cfg.trial is None or not HydraConfig.initialized():
        return None
    from isotrain.studies.search import read_search
    from isotrain.training.callbacks.pruning import Pruning

    record = read_search(Path(str(HydraConfig.get().sweep.dir)))
    if cfg.seed != record.search.seeds[0]:
        return None
    name, storage = record.search.name, _storage(record.url)
    pruner = optuna_part("pruner", record.search.pruner, record.search.pruner_options)
    study = optuna.load_study(study_name=name, storage=storage, pruner=pruner)
    trial_id = storage.get_trial_id_from_study_id_trial_number(
        storage.get_study_id_from_name(name), cfg.trial
    )
    return Pruning(Trial(study, trial_id), record.objective)
