"""A search judged as a whole before anything starts, and the runs of one trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig

from isotrain.config.command import check_command
from isotrain.config.compose import RunId, RunJob, content_hash, key_of, recorded, run_id
from isotrain.config.sweep import mistakes_of_one_of_several
from isotrain.jobs.stored import PlanError
from isotrain.studies.plan import SHARED
from isotrain.studies.search import Search
from isotrain.studies.space import Value, corners, overrides_of
from isotrain.training.requirements import file_mistakes, late_mistakes_apart


class Plan(NamedTuple):
    """A search that can run."""

    search: Search
    overrides: tuple[str, ...]  # of every run; what comes later wins
    config_dir: str | None
    task: str
    objective: str
    direction: str  # max | min
    folder: Path  # <output_dir>/tune/<name>
    identity: Mapping[str, Any]  # what trials of one storage have in common
    monitored: str | None  # the score that a study judges the task by; None = it does not tell
    given: dict[str, Any]  # file and options that gave it
    data: dict[str, str]  # revision of what runs read, by `RunId.reads`

    @property
    def is_grid(self) -> bool:
        """Whether its trials are the points of a grid."""
        return self.search.sampler == "grid"


def plan_search(
    search: Search, overrides: Sequence[str] = (), config_dir: str | None = None, file: str = ""
) -> Plan:
    """The plan of a search; nothing is written.

    A run is configured by `threads=1`, the search's overrides, `overrides`, and the values of its
    trial; what comes later wins. Composed and judged are both ends of every range and every option,
    each beside the first ends of the others, and the last ends together; a combination that cannot
    run is found when its turn comes, and is a failed trial then.

    Raises:
        PlanError: every mistake at once.

    >>> from isotrain.studies.search import load_search
    >>> plan = plan_search(load_search("smoke_search"))
    >>> plan.objective, plan.direction
    ('val/spearman', 'max')
    """
    fixed = (*SHARED, *search.overrides, *overrides)
    mistakes = _undone(search, fixed)
    configs: list[tuple[dict[str, Value], DictConfig]] = []
    first = corners(search.space)[0]
    for point in corners(search.space):
        cfg, found = check_command([*fixed, *overrides_of(point)], config_dir)
        if cfg is not None:
            if not found:
                found = [*mistakes_of_one_of_several(cfg, "search"), *file_mistakes(cfg)]
            configs.append((point, cfg))
        mistakes += _placed(point, first, found, mistakes)
    if mistakes:
        raise PlanError("\n".join(dict.fromkeys(mistakes)))
    late = late_mistakes_apart([cfg for _, cfg in configs])
    for (point, _), parts in zip(configs, late, strict=True):
        mistakes += _placed(point, first, parts.mistakes, mistakes)
    if mistakes:
        raise PlanError("\n".join(dict.fromkeys(mistakes)))
    mistakes = [*_equal_runs(configs), *_several_tasks(configs)]
    cfg = configs[0][1]
    target = str(cfg.task["_target_"])
    monitored = f"val/{late[0].monitor}" if late[0].monitor else None
    objective, direction, wrong = _goal(search, target, monitored, late[0].mode)
    if mistakes := [*mistakes, *wrong]:
        raise PlanError("\n".join(mistakes))
    identity = {
        "space": [list(p._replace(when=dict(p.when))) for p in search.space],
        "seeds": list(search.seeds),
        "objective": objective,
        "direction": direction,
        "configuration": content_hash(cfg),
        "data": [one.data for one in late],  # at every end of the space
    }
    return Plan(
        search,
        fixed,
        config_dir,
        run_id(recorded(cfg), search.name).task,
        objective,
        direction,
        Path(str(cfg.output_dir)) / "tune" / search.name,
        identity,
        monitored,
        {
            "file": file,
            "name": search.name,
            "n_trials": search.n_trials,
            "overrides": list(overrides),
            "config_dir": config_dir,
        },
        {
            run_id(recorded(point_cfg), search.name).reads: one.data
            for (_, point_cfg), one in zip(configs, late, strict=True)
        },
    )


def runs_of(plan: Plan, values: Mapping[str, Value]) -> tuple[list[RunJob], list[str]]:
    """The runs of a trial, one a seed, and why they cannot run: one of the two is empty."""
    own = [*plan.overrides, *overrides_of(values)]
    cfg, mistakes = check_command(own, plan.config_dir)
    if cfg is None or mistakes:
        return [], mistakes
    jobs = []
    for seed in plan.search.seeds:
        seeded = deepcopy(cfg)
        seeded.seed = seed
        jobs.append(RunJob(seeded, plan.search.name, [*own, f"seed={seed}"], plan.search.name))
    return jobs, []


def _placed(
    point: Mapping[str, Value],
    first: Mapping[str, Value],
    found: Sequence[str],
    told: Sequence[str],
) -> list[str]:
    """Mistakes of a point that were not told before, with what sets it apart from the first."""
    own = overrides_of({k: v for k, v in point.items() if first.get(k) != v})
    place = f"with {' '.join(own)}: " if own else ""
    return [place + mistake for mistake in found if mistake not in told]


def _undone(search: Search, overrides: Sequence[str]) -> list[str]:
    """Overrides of what the space is about, and keys that are no matter of a space."""
    given = set(map(key_of, overrides))
    keys = [parameter.key for parameter in search.space]
    mistakes = [
        f"{key} is in the space, and is fixed by an override too" for key in keys if key in given
    ]
    if "seed" in keys:
        mistakes.append("space.seed: a search has its own list, seeds, and means over it")
    return mistakes


def _equal_runs(configs: Sequence[tuple[dict[str, Value], DictConfig]]) -> list[str]:
    """Values that change nothing of what is computed."""
    first: dict[RunId, dict[str, Value]] = {}
    mistakes = []
    for point, cfg in configs:
        twin = first.setdefault(run_id(recorded(cfg), ""), point)
        if twin is not point:
            one, other = (
                " ".join(overrides_of({k: v for k, v in a.items() if b.get(k) != v}))
                for a, b in ((twin, point), (point, twin))
            )
            mistakes.append(f"{one or 'without it'} and {other or 'without it'} compute the same")
    return mistakes


def _several_tasks(configs: Sequence[tuple[dict[str, Value], DictConfig]]) -> list[str]:
    tasks = sorted({str(cfg.task["_target_"]) for _, cfg in configs})
    if len(tasks) == 1:
        return []
    return [f"scores of several tasks cannot be ranked ({', '.join(tasks)}); search on one"]


def _goal(
    search: Search, task: str, monitored: str | None, mode: str | None
) -> tuple[str, str, list[str]]:
    """The objective, its direction, and what is wrong with them."""
    objective = search.objective or monitored
    direction = search.direction or (mode if objective == monitored else None)
    mistakes = []
    if objective is None:
        mistakes.append(f"objective is missing: {task} does not tell its monitor")
    elif objective.startswith("test/"):
        mistakes.append(
            f"objective={objective}: the test split is not for choosing; use "
            f"{monitored or 'val/...'}"
        )
    elif direction is None:
        mistakes.append(f"direction is missing: is {objective} to be max or min?")
    return str(objective), str(direction), mistakes
