"""A search: Optuna draws trials from a space, a sweeper's call runs them, seed by seed."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from os.path import relpath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from isotrain.config.compose import key_of, quote
from isotrain.config.schema import n_processes
from isotrain.config.shipped import plan_name
from isotrain.console import counted, say
from isotrain.runs.files import write_json
from isotrain.runs.numbers import score_number
from isotrain.runs.secrets import redacted
from isotrain.runs.stored import PlanError, stored
from isotrain.studies.call import Call, Job, alone, safe_name
from isotrain.studies.definition import Margin, Overrides, Seed, Seeds, parsed, read_yaml
from isotrain.studies.record import SEARCH_FILE, read_record
from isotrain.studies.space import Parameter, corners, parameters
from isotrain.studies.trials import (
    DATABASE,
    RUNS,
    SCORES,
    at_work,
    failure,
    is_in_folder,
    opened,
    optuna_part,
    storage_url,
    take_trials,
    tell,
)
from isotrain.training.revision import task_of

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

HOPELESS = 3  # a call stops after this many failed trials and no others
IDENTITY = "identity"  # attribute of the storage: what all trials share


class Search(BaseModel):
    """A search; fields are the keys of the yaml file."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Annotated[str, Field(pattern=r"^[\w+-][\w.+-]*$")]  # of its folder
    space: dict[Any, Any]  # see `isotrain.studies.space`
    n_trials: Annotated[int, Field(ge=1, le=10**6, strict=True)]  # in total, however they end
    overrides: Overrides = ()  # of every run
    seeds: Seeds = (0,)  # a trial's score is the mean over these
    sampler: str = "TPESampler"  # a class of optuna.samplers
    sampler_options: dict[str, Any] = {}
    pruner: str = "MedianPruner"  # a class of optuna.pruners; steps are numbers of evaluations
    pruner_options: dict[str, Any] = {}
    margin: Margin | None = None  # of the study that confirms the best trial
    seed: Seed = 0  # of the sampler
    storage: str | None = None  # URL, or journal:PATH; None = study.db in the search's folder

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of its space."""
        return parameters(self.space)

    def sampler_of(self, number: int) -> Any:
        """The sampler of a trial."""
        seed = random.Random(f"{self.seed}/{number}").getrandbits(32)
        return optuna_part("sampler", self.sampler, self.sampler_options, seed)

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.sampler_of(0)
        optuna_part("pruner", self.pruner, self.pruner_options)
        if self.storage != redacted(self.storage):
            raise ValueError("storage must hold no login; write ${oc.env:NAME} for a variable")
        fixed_keys = {"seed", *map(key_of, self.overrides)}
        if clash := [p.key for p in self.parameters if p.key in fixed_keys]:
            raise ValueError(f"space.{clash[0]} has its values elsewhere in the file; leave it out")
        return self


class Record(BaseModel):
    """Content of `search.json`: what `status` and `report` read beside the storage."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    folder: Path = Field(exclude=True)
    search: Search
    task: str
    objective: str  # the dev score that the task monitors
    direction: str  # max | min
    overrides: Overrides  # of the command line
    config_dir: str | None
    baseline: str | None  # hash of what the overrides alone compute; None = they cannot run

    @property
    def url(self) -> str:
        """Address of the storage."""
        return storage_url(self.search.storage, self.folder)

    def write(self) -> None:
        """Write it into its folder."""
        write_json(self.folder / SEARCH_FILE, redacted(self.model_dump(mode="json")))


class _Running(NamedTuple):
    trial: Trial
    jobs: list[Job]  # by seed
    scores: list[float]  # of the seeds so far


def load_search(name_or_path: str) -> Search:
    """Load a search by its name in `conf/searches`, or by the path of a yaml file.

    Raises:
        PlanError: an unknown name, an unreadable file, or errors in it.

    >>> load_search("smoke_search").sampler
    'TPESampler'
    """
    defaults = {"name": plan_name(name_or_path)}
    return parsed(
        Search, defaults | read_yaml("searches", name_or_path)[1], f"search {defaults['name']}"
    )


def read_search(folder: Path) -> Record:
    """The search that was started in a folder.

    Raises:
        PlanError: there is none, or its record is damaged or cannot be read now.
    """
    record = read_record(Record, folder, SEARCH_FILE)
    if record is None:
        raise PlanError(f"no search was started in {folder}: it has no {SEARCH_FILE}")
    return record


def trials_of(folder: Path, storage: str | None = None) -> tuple[Record, list[FrozenTrial]]:
    """What is on record of a search, and its trials.

    A record may be somebody else's, so a storage elsewhere than in the folder is opened only where
    it is also `storage`: that of the search's file.

    Raises:
        PlanError: no search was started there, or its trials cannot be read.
    """
    record = read_search(folder)
    location = record.search.storage
    if is_in_folder(location):
        file = folder / (DATABASE if location is None else location.partition(":")[2])
        if not file.is_file() or file.is_symlink():
            raise PlanError(f"{file} is missing, or is a link: no trials of a search")
    elif location != storage:
        raise PlanError(
            f"the trials of {folder} are not in it, but in {location}; give the yaml file of the "
            "search, whose storage is trusted; its folder, or a link to it, is runs/searches/NAME"
        )
    with opened(record.url, record.search.name) as study:
        try:
            return record, study.get_trials()
        except Exception as error:  # damaged trials may raise anything
            fix = "give the command again, or restore the file"
            raise failure(record.url, "read", error, fix) from error


def runs_of(folder: Path, storage: str | None = None) -> list[Path]:
    """The folders of the runs that trials of a search have started; see `trials_of`."""
    _, trials = trials_of(folder, storage)
    return [folder / name for trial in trials for name in trial.user_attrs.get(RUNS, ())]


def run_search(call: Call, search: Search, only_list: bool = False) -> int:
    """Exit code: 0 if no trial of this call failed, else 1; `only_list` checks alone.

    Trials are taken `call.n_at_once` at a time, until the search has `n_trials`. Each is run with
    one seed after the other; one that is pruned, or has no score, has no further runs. A call stops
    after `HOPELESS` failed trials and no others.

    Raises:
        PlanError: invalid values or parts, trials of another search, or a storage failure.
    """
    record, identity = _plan_search(call, search)
    if only_list:
        say(f"{counted(search.n_trials, 'trial')} of search {search.name}, by {search.sampler}")
        return 0
    with alone(call.folder), opened(record.url, search.name, record.direction) as study:
        stored_identity = study.user_attrs.get(IDENTITY, identity)
        if differing_keys := [key for key in identity if stored_identity.get(key) != identity[key]]:
            raise PlanError(
                f"{call.folder} has {counted(len(study.trials), 'trial')} of another search "
                f"({', '.join(differing_keys)} differ), whose scores do not compare; put that "
                "back, or give the search another name"
            )
        study.set_user_attr(IDENTITY, identity)
        record.write()
    n_failed = n_good = 0
    with at_work(call.folder) as lock_name, opened(record.url, search.name) as study:
        n_ended = sum(trial.state.is_finished() for trial in study.trials)
        say(
            f"search {search.name}: {counted(search.n_trials, 'trial')}, {n_ended} ended before, "
            f"{call.n_at_once} at a time; {call.folder}"
        )
        while n_good or n_failed < HOPELESS:
            batch = take_trials(study, search, call.folder, lock_name, call.n_at_once)
            if not batch:
                return int(n_failed > 0)
            endings = _run_trials(call, record, study, batch)
            n_failed += endings.count("failed")
            n_good += len(endings) - endings.count("failed")
    say(f"stopped: {n_failed} trials failed and no other ended; correct the cause, raise n_trials")
    return 1


def _plan_search(call: Call, search: Search) -> tuple[Record, dict[str, Any]]:
    """What is recorded, and what all trials share, after a plan of every corner."""
    if clash := {p.key for p in search.parameters} & set(map(key_of, call.overrides)):
        raise PlanError(f"{', '.join(sorted(clash))}: the space has its values; leave it out")
    points = [[*search.overrides, *point] for point in corners(search.parameters)]
    names = [safe_name("_".join(o for o in point if o not in points[0]))[:100] for point in points]
    pairs = [
        (search.name, name or "first", point) for name, point in zip(names, points, strict=True)
    ]
    jobs = call.plan(pairs, search.seeds[:1])
    task, *rest = sorted({job.folder.parent.name for job in jobs})
    if rest:
        raise PlanError(f"a search ranks scores of one task, got {task}, {rest[0]}; leave one")
    cfg = call.compose([*points[0], *call.overrides])
    task_part = task_of(cfg)
    objective = f"val/{task_part.monitor}"
    trainer = cfg.get("trainer") or {}
    is_distributed = n_processes(trainer) > 1 or (trainer.get("num_nodes") or 1) > 1
    if search.pruner != "NopPruner" and is_distributed:
        raise PlanError("a run of several processes is not pruned; write pruner: NopPruner")
    if call.launcher in ("submitit_slurm", "ray") and search.storage is None:
        raise PlanError(
            f"runs of {call.launcher} report to the trials from their nodes, and SQLite's file is "
            "not safe on a network file system; write storage: journal:trials.log"
        )
    identity = {
        "space": [[p.key, str(p.distribution), p.when] for p in search.parameters],
        "seeds": search.seeds,
        "objective": [objective, task_part.mode],
        "configuration or data": [job.digest for job in jobs],
    }
    if not is_in_folder(search.storage):  # calls know of each other by locks in the folder
        identity["folder"] = str(call.folder.absolute())
    record = Record(
        folder=call.folder,
        search=search,
        task=task,
        objective=objective,
        direction=task_part.mode,
        overrides=tuple(call.overrides),
        config_dir=call.config_dir,
        baseline=_baseline(call, search),
    )
    return record, json.loads(json.dumps(identity))


def _baseline(call: Call, search: Search) -> str | None:
    try:
        (job,) = call.plan([(search.name, "baseline", search.overrides)], search.seeds[:1])
    except PlanError:  # a run needs values of the space
        return None
    return job.digest


def _run_trials(
    call: Call, record: Record, study: Study, trials: Sequence[tuple[Trial, list[str]]]
) -> list[str]:
    """Run trials at the same time, seed by seed; how each ended."""
    search, kinds, alive = record.search, [], []

    def end(trial: Trial, kind: str, score: float | None = None, why: str = "") -> None:
        kinds.append(kind)
        tell(study, trial, kind, score, why)
        value = (
            "" if score is None else f"{record.objective} {score_number(score, record.objective)}"
        )
        say(": ".join(filter(None, (f"{kind} trial {trial.number}", value, why))))

    for trial, values in trials:
        say(f"start trial {trial.number}: {' '.join(values)}")
        texts = [f"method={quote(search.name)}", *search.overrides, *values]  # equal ones share
        pair = record.task, f"trial-{trial.number}", texts
        try:
            jobs = call.plan([pair], search.seeds, [f"trial={trial.number}"])
        except PlanError as error:
            end(trial, "failed", why=f"cannot run: {_one_line(error)}")
            continue
        trial.set_user_attr(RUNS, [relpath(job.folder, call.folder) for job in jobs])
        alive.append(_Running(trial, jobs, []))
    for k in range(len(search.seeds)):
        unique_jobs = {r.jobs[k].folder: r.jobs[k] for r in alive}  # equal values are one run
        errors = {run.job.folder: run.error for run in call.launch(list(unique_jobs.values()))}
        for running in list(alive):
            job = running.jobs[k]
            kind, outcome = _outcome(record, job, errors.get(job.folder))
            if kind == "complete":
                running.scores.append(float(outcome))
            else:
                alive.remove(running)
                end(running.trial, kind, why=redacted(f"seed {job.seed}: {outcome}"))
    for running in alive:
        running.trial.set_user_attr(SCORES, running.scores)
        end(running.trial, "complete", math.fsum(running.scores) / len(running.scores))
    return kinds


def _outcome(record: Record, job: Job, error: Exception | None) -> tuple[str, float | str]:
    """How a run ended: `complete` and its score, or a kind of end and the reason."""
    if error is not None:
        kinds = {"PrunedError": "pruned", "NonFiniteError": "diverged"}
        kind = kinds.get(getattr(error, "kind", ""), "failed")
        return kind, record.search.pruner if kind == "pruned" else _one_line(error)
    result = stored(job.folder).result
    score = result.get("scores", {}).get(record.objective)
    if score is None:
        keys = [key for key in result.get("scores", {}) if key.startswith("val/")]
        return "failed", f"no {record.objective} in its scores: {', '.join(keys) or 'none'}"
    if reason := result.get("degenerate_reason"):
        return "degenerate", str(reason)
    if not math.isfinite(score):
        return "undefined", f"{record.objective} is not finite"
    return "complete", float(score)


def _one_line(error: Exception) -> str:
    return "; ".join(line.strip() for line in str(error).splitlines())
