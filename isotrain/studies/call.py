"""One call of a sweeper: plan its runs, and launch those that are missing.

A run's folder is named by what it computes, so it is known before the launch. A finished run is
not launched, an interrupted one resumes: whatever dies, the same call goes on.
"""

import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from hydra.core.plugins import Plugins
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from isotrain.config.check import check
from isotrain.config.compose import (
    ConfigError,
    check_method,
    key_of,
    quote,
    recorded,
    run_id,
    without_hydra,
)
from isotrain.config.typos import NOT_COMPOSED, alternatives, find_typos, first_line
from isotrain.console import counted, launcher, say
from isotrain.runs.locks import take_with_retries
from isotrain.runs.stored import PlanError, stored
from isotrain.training.revision import revision

WAIT_S = 60.0  # for another call that plans, takes trials, or writes to a storage
FOLDERS = {"study": "studies", "search": "searches", "sweep": "sweeps"}  # below the output folder


class RunError(Exception):
    """A run of a sweep failed; `kind` is the type of its error. It crosses processes."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind, self.message = kind, message

    def __str__(self) -> str:
        return f"{self.kind}: {self.message}"


class Job(NamedTuple):
    """One planned run."""

    task: str
    method: str
    seed: int
    folder: Path  # of the run
    overrides: tuple[str, ...] = ()  # that a launcher gets, without Hydra's own
    is_due: bool = False  # not finished when it was planned, or to be trained again
    definition: str = ""  # hash of what its method computes with any seed

    @property
    def name(self) -> str:
        """Its name in messages."""
        return f"{self.task}-{self.method}-seed{self.seed}"

    @property
    def log(self) -> str:
        """Name of its log and of Hydra's job; another definition has another one."""
        return f"{self.name}-{self.digest}"

    @property
    def digest(self) -> str:
        """Hash of what it computes and of its data, which names its folder."""
        return self.folder.name.rpartition("-")[2]

    @property
    def is_finished(self) -> bool:
        """Whether it is on record as finished."""
        return stored(self.folder).is_finished


class Ended(NamedTuple):
    """A run that was launched."""

    job: Job
    error: Exception | None  # that it raised; None = it returned


class Call:
    """One call of a sweeper.

    Args:
        config: Hydra's configuration of the call.
        context: of the sweeper.
        task: the app's function.
        arguments: overrides of the command line, without Hydra's own.
        kind: `study`, `search` or `sweep`.
        name: names its folder.
    """

    def __init__(
        self,
        config: DictConfig,
        context: HydraContext,
        task: TaskFunction,
        arguments: Sequence[str],
        kind: str,
        name: str,
    ) -> None:
        if launcher():
            raise PlanError(
                "-m launches its runs itself, and this is one process of torchrun or srun; start "
                "it once, and give each run its processes by trainer.devices=..."
            )
        self.config, self._context, self._task = config, context, task
        self.kind, self.name = kind, name
        self.arguments = list(arguments)
        self.overrides = [text for text in arguments if key_of(text) not in ("study", "search")]
        sweep_dir = str(config.hydra.sweep.dir)
        is_given = Path(sweep_dir) != Path(str(config.output_dir))
        self.folder = Path(sweep_dir) if is_given else Path(sweep_dir) / FOLDERS[kind] / name
        sources = config.hydra.runtime.config_sources
        dirs = [source.path for source in sources if source.provider == "command-line"]
        self.config_dir = dirs[0] if dirs else None
        self._n_launched = 0
        self._revisions: dict[str, str] = {}

    @property
    def n_at_once(self) -> int:
        """Number of runs at a time."""
        launcher_config = self.config.hydra.launcher
        n = int(launcher_config.get("n_jobs") or launcher_config.get("array_parallelism") or 1)
        return n if n > 0 else max(1, (os.cpu_count() or 1) + 1 + n)  # as joblib counts

    @property
    def launcher(self) -> str:
        """The name of Hydra's launcher."""
        return str(self.config.hydra.runtime.choices["hydra/launcher"])

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """A run's configuration, as its launcher will compose it.

        Raises:
            ConfigError: every override that does not apply.
        """
        try:
            return without_hydra(self._load(overrides))
        except NOT_COMPOSED as error:
            errors = self.wrong_overrides(overrides) or [first_line(error)]
            raise ConfigError("\n".join(errors)) from error

    def wrong_overrides(self, overrides: Sequence[str]) -> list[str]:
        """Every override that does not apply, also where a key has several values."""
        return find_typos(overrides, self._load, self.config_dir)

    def plan(
        self,
        pairs: Sequence[tuple[str, str, Sequence[str]]],
        seeds: Sequence[int],
        more: Sequence[str] = (),
    ) -> list[Job]:
        """A run for each task, method and seed, in the order of the seeds.

        Args:
            pairs: task, method and overrides; those of the command line win over them.
            seeds: of every pair.
            more: overrides that every launched run gets and that are no content, such as
                `trial=3`.

        Raises:
            PlanError: every error at once, each with the methods that have it; two methods that
                would compute the same.
        """
        errors: dict[str, list[str]] = {}
        jobs_by_seed: dict[int, list[Job]] = {seed: [] for seed in seeds}
        for task, method, overrides in pairs:
            try:
                for job in self._jobs(task, method, [*overrides, *self.overrides], seeds, more):
                    jobs_by_seed[job.seed].append(job)
            except ValueError as error:
                for line in str(error).splitlines():
                    errors.setdefault(line, []).append(f"{task}-{method}")
        if errors:
            lines = [
                line if len(methods) == len(pairs) else f"{', '.join(methods[:3])}: {line}"
                for line, methods in errors.items()
            ]
            raise PlanError("\n".join(lines))
        _check_tasks(jobs_by_seed[seeds[0]])
        _check_different(jobs_by_seed[seeds[0]])
        return [job for jobs in jobs_by_seed.values() for job in jobs]

    def launch(self, jobs: Sequence[Job]) -> list[Ended]:
        """Launch the runs that have not finished, in one batch; how each of them ended."""
        due_jobs = [job for job in jobs if job.is_due]
        if not due_jobs:
            return []
        config = self.config.copy()  # its launcher's logs and jobs are those of this call
        config.hydra.sweep.dir, config.hydra.job.name = str(self.folder), self.name
        hydra_launcher = Plugins.instance().instantiate_launcher(
            config=config, hydra_context=self._context, task_function=self._task
        )
        dir_override = f"hydra.sweep.dir={quote(str(self.folder))}"
        batch = [
            [*job.overrides, dir_override, f"hydra.job.name={quote(job.log)}"] for job in due_jobs
        ]
        again = "the same command" + " without rerun=true" * ("rerun=true" in self.overrides)
        with _stopped_by_signals(f"{self.kind} {self.name}: stopped; {again} goes on"):
            returns = hydra_launcher.launch(batch, initial_job_idx=self._n_launched)
        self._n_launched += len(due_jobs)
        return [Ended(job, _error_of(ret)) for job, ret in zip(due_jobs, returns, strict=True)]

    def announce(self, jobs: Sequence[Job]) -> None:
        """Say how many runs there are, and where."""
        n_left = sum(job.is_due for job in jobs)
        is_open = self.config.hydra.launcher.get("n_jobs", 1) is None  # the launcher sees to it
        at_once = (
            "as many at a time as there is room for" if is_open else f"{self.n_at_once} at a time"
        )
        say(
            f"{self.kind} {self.name}: {counted(len(jobs), 'run')}, {len(jobs) - n_left} finished "
            f"before, {n_left} to do, {at_once}; {self.folder}"
        )

    def _load(self, overrides: Sequence[str]) -> DictConfig:
        return self._context.config_loader.load_sweep_config(self.config, list(overrides))

    def _jobs(
        self,
        task: str,
        method: str,
        overrides: Sequence[str],
        seeds: Sequence[int],
        more: Sequence[str],
    ) -> list[Job]:
        """The runs of a method, one for each seed; a ValueError names every error in it."""
        for text in overrides:
            if key_of(text) == "seed":
                raise ConfigError(f"{text}: the seeds are {list(seeds)}; change them in the file")
            if re.match(r"\W*hydra\b", text):
                raise ConfigError(f"{text}: Hydra's keys belong on the command line")
        cfg = self.compose(overrides)
        check_method(method)
        check(cfg)
        method_overrides = [] if cfg.method else [f"method={quote(method)}"]
        if cfg.threads is None:  # scores depend on it
            cfg.threads, overrides = 1, [*overrides, "threads=1"]
        labels = ["study", "search"] if self.kind == "search" else ["study"]
        labels = [f"{key}={quote(self.name)}" for key in labels]
        definition = run_id(recorded(cfg) | {"seed": None}, "").content
        jobs = []
        for seed in seeds:
            cfg.seed = seed
            identity = run_id(recorded(cfg), str(cfg.method or method))
            if identity.reads not in self._revisions:
                self._revisions[identity.reads] = revision(cfg)
            folder = Path(str(cfg.output_dir)) / identity.folder(self._revisions[identity.reads])
            job_overrides = (*overrides, f"seed={seed}", *method_overrides, *labels, *more)
            is_due = bool(cfg.rerun) or not stored(folder).is_finished
            jobs.append(Job(task, method, seed, folder, job_overrides, is_due, definition))
        return jobs


def swept(arguments: Sequence[str]) -> Mapping[str, list[str]]:
    """The keys of several values on a command line, each with an override for each value."""
    choices = ((text, alternatives(text)) for text in arguments)
    return {
        values[0].get_key_element().lstrip("+"): [str(override.input_line) for override in values]
        for text, values in choices
        if [override.input_line for override in values] != [text]
    }


def _check_tasks(jobs: Sequence[Job]) -> None:
    """Raise a PlanError if runs of one task of a table have different tasks."""
    task_folders: dict[str, dict[str, None]] = {}
    for job in jobs:
        task_folders.setdefault(job.task, {})[job.folder.parent.name] = None
    for task, names in task_folders.items():
        if len(names) > 1:
            raise PlanError(
                f"scores of {' and '.join(names)} do not compare in one table ({task}); give each "
                "task a name under tasks, or on the command line as task=..."
            )


def _check_different(jobs: Sequence[Job]) -> None:
    """Raise a PlanError if two runs of one seed would compute the same."""
    names: dict[str, str] = {}
    errors = []
    for job in jobs:
        name = f"{job.task}-{job.method}"
        twin = names.setdefault(job.digest, name)
        if twin != name:
            errors.append(f"{twin} and {name} would compute the same; change or drop one")
    if errors:
        raise PlanError("\n".join(errors))


def _error_of(returned: Any) -> Exception | None:
    try:
        with redirect_stderr(StringIO()):  # Hydra tells the overrides of a failed run there
            _ = returned.return_value  # raises what the run raised
    except Exception as error:
        return error
    return None


@contextmanager
def _stopped_by_signals(message: str) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the call with a message."""
    code = 0

    def end(number: int, _frame: Any) -> NoReturn:
        nonlocal code
        code = 128 + number  # Ray raises another SystemExit
        raise SystemExit(code)

    previous_handler = signal.signal(signal.SIGTERM, end)
    try:
        yield
    except (KeyboardInterrupt, SystemExit) as stop:
        notes = getattr(stop, "__notes__", ())  # of a launcher whose jobs do not end with it
        say("; ".join([message, *notes]))
        status = getattr(stop, "code", None)  # of a run's handler, if above 128
        status = status if isinstance(status, int) and status > 128 else 128 + signal.SIGINT
        raise SystemExit(code or status) from None
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Make the folder of a call, and hold its lock: to plan, or to take trials."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = take_with_retries(folder / "lock", WAIT_S)
    if lock is None:
        raise PlanError(f"{folder / 'lock'} is held by another call; give the command again later")
    try:
        yield
    finally:
        os.close(lock)


def safe_name(text: str) -> str:
    """A text as part of a folder's name."""
    return re.sub(r"\W+", "_", text).strip("_")
