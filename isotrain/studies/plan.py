"""Plan the runs of a study: compose configurations, validate them together, assign folders."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from omegaconf import DictConfig

from isotrain.config.command import check_command
from isotrain.config.compose import RunId, key_of, recorded, run_id, written
from isotrain.config.sweep import mistakes_of_one_of_several
from isotrain.jobs.archive import Job, seeded
from isotrain.jobs.stored import PlanError
from isotrain.studies.definition import Study
from isotrain.training.requirements import Late, file_mistakes, late_mistakes_apart

Place = TypeVar("Place")
SHARED = ("threads=1",)  # scores depend on the number of threads: fixed unless overridden


def plan_jobs(
    study: Study, overrides: Sequence[str] = (), config_dir: str | None = None
) -> list[Job]:
    """Every run of a study, by task, method and seed; nothing is written.

    A run is configured by `threads=1`, the study's overrides, those of its task, those of its
    method, and `overrides`; later ones win. `config_dir` holds user groups. If W&B logs and no
    group is given, runs are grouped by the study's name.

    Raises:
        PlanError: the errors of all runs at once, each with the task and method that has it; two
            runs that would compute the same; runs with different output folders.

    >>> from isotrain.studies.definition import load_study
    >>> [job.name for job in plan_jobs(load_study("smoke"))][:2]
    ['rte-none-seed0', 'rte-none-seed1']
    """
    pairs = [(task, method) for task in study.tasks for method in study.methods]
    found: dict[str, list[tuple[str, str]]] = {}
    configs: dict[tuple[str, str], tuple[DictConfig, list[str]]] = {}
    for task, method in pairs:
        own = [*SHARED, *study.overrides, *study.tasks[task], *study.methods[method], *overrides]
        cfg, mistakes = check_command(own, config_dir)
        if cfg is not None:
            mistakes = [*mistakes, *mistakes_of_one_of_several(cfg, "study")]
            configs[task, method] = cfg, [*own, *_grouped(cfg, study.name)]
        for mistake in mistakes:
            found.setdefault(mistake, []).append((task, method))
    _reject(found, pairs)
    jobs = []
    for (task, method), (cfg, own) in configs.items():
        own_cfg = seeded(cfg, 0)
        for seed in study.seeds:
            own_cfg.seed = seed
            own_id = run_id(recorded(own_cfg), method)
            folder = Path(str(cfg.output_dir)) / own_id.task / method
            jobs.append(Job(task, method, seed, cfg, own_id, folder, [*own, f"seed={seed}"]))
    _reject_equal_runs(jobs)
    if len(folders := sorted({str(cfg.output_dir) for cfg, _ in configs.values()})) > 1:
        raise PlanError(f"output_dir must be one for all runs of a study, got {folders}")
    return jobs


def check_parts(jobs: Sequence[Job]) -> list[Job]:
    """Import and validate the parts of the runs, which takes seconds; the runs with their folders.

    Raises:
        PlanError: the errors of all runs at once, each with the task and method that has it.
    """
    found, named = judge_parts(jobs, lambda job: (job.task, job.method))
    _reject(found, list(dict.fromkeys((job.task, job.method) for job in jobs)))
    return named


def judge_parts(
    jobs: Sequence[Job], place: Callable[[Job], Place]
) -> tuple[dict[str, list[Place]], list[Job]]:
    """Validate files and parts of the runs to start; the errors, and the runs with folders.

    Parts are imported, and data revisions computed, in one separate process. `place` gives a key
    shared by runs that differ only in the seed.

    Returns:
        Errors with the places that have them; the jobs, with folders if there are no errors.
    """
    configs: dict[tuple[Place, str], DictConfig] = {}
    for job in jobs:
        if (key := (place(job), job.id.reads)) not in configs:
            configs[key] = job.cfg
    found: dict[str, list[Place]] = {}
    data: dict[str, str] = {}
    late = judge_configs(list(configs.values()))
    for (where, reads), own in zip(configs, late, strict=True):
        data[reads] = own.data
        for mistake in own.mistakes:
            found.setdefault(mistake, []).append(where)
    return found, list(jobs) if found else [job.on_data(data[job.id.reads]) for job in jobs]


def judge_configs(configs: Sequence[DictConfig]) -> list[Late]:
    """Errors in the files of configurations or, if there are none, in their parts and data."""
    mistakes = [file_mistakes(cfg) for cfg in configs]
    if any(mistakes):
        return [Late(own, None, None) for own in mistakes]
    return late_mistakes_apart(configs)


def equal_runs(runs: Iterable[tuple[str, RunId]]) -> list[tuple[str, str]]:
    """Names of runs that compute the same: the first one, and the later one."""
    first: dict[str, str] = {}
    twins = ((first.setdefault(f"{own.content} {own.reads}", name), name) for name, own in runs)
    return [(twin, name) for twin, name in twins if twin != name]


def in_force(overrides: Iterable[str]) -> list[str]:
    """Effective overrides: each key once, with its last value.

    >>> in_force(["threads=1", "encoder=tiny", "threads=2"])
    ['threads=2', 'encoder=tiny']
    """
    return list({key_of(text): text for text in overrides}.values())


def study_folder(study: Study, jobs: Sequence[Job]) -> Path:
    """`<output_dir>/studies/<name>`, for job files, logs and tables; it may not exist yet."""
    return Path(str(jobs[0].of_pair.output_dir)) / "studies" / study.name


def _grouped(cfg: DictConfig, name: str) -> list[str]:
    """Apply and return the override that groups the runs in W&B, if it logs without a group."""
    if "wandb" not in (cfg.logger or ()) or cfg.logger.wandb.get("group", name) is not None:
        return []
    cfg.logger.wandb.group = name
    return [f"logger.wandb.group={written(name)}"]


def _reject(
    found: Mapping[str, Sequence[tuple[str, str]]], pairs: Sequence[tuple[str, str]]
) -> None:
    """Raise the errors, if there are any, each with the runs that have it."""
    if found:
        raise PlanError(
            "\n".join(f"{_where(wrong, pairs)}: {mistake}" for mistake, wrong in found.items())
        )


def _where(wrong: Sequence[tuple[str, str]], pairs: Sequence[tuple[str, str]]) -> str:
    """The runs that have an error, described as briefly as possible."""
    tasks, methods = {task for task, _ in wrong}, {method for _, method in wrong}
    if len(wrong) == len(pairs):
        return "all runs"
    if wrong == [pair for pair in pairs if pair[1] in methods] and len(methods) == 1:
        return f"method {wrong[0][1]}"
    if wrong == [pair for pair in pairs if pair[0] in tasks] and len(tasks) == 1:
        return f"task {wrong[0][0]}"
    return ", ".join(f"{task}-{method}" for task, method in wrong)


def _reject_equal_runs(jobs: Sequence[Job]) -> None:
    of_one_seed = [job for job in jobs if job.seed == jobs[0].seed]  # the same for every seed
    if twins := equal_runs((f"{job.task}-{job.method}", job.id) for job in of_one_seed):
        raise PlanError(
            "\n".join(
                f"{twin} and {name} would compute the same; a later override may undo what makes "
                "them differ"
                for twin, name in twins
            )
        )
