"""Plan and validate a search before anything starts, or as it was started; runs of a trial."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import DictConfig

from isotrain.config.command import check_command
from isotrain.config.compose import content_hash, key_of, recorded, run_id
from isotrain.config.shipped import mistakes_of_one_of_several
from isotrain.jobs.archive import Job, job_of, seeded
from isotrain.jobs.pool import call_at_work
from isotrain.runs.stored import DATABASE, SEARCH, PlanError, read_origin
from isotrain.studies.plan import SHARED, equal_runs, judge_configs
from isotrain.studies.search import Search
from isotrain.studies.space import Value, corners, overrides_of


class Plan(NamedTuple):
    """A validated search."""

    search: Search
    overrides: tuple[str, ...]  # of every run; later ones win
    config_dir: str | None
    given: dict[str, Any]  # file and options of the command
    configs: Sequence[tuple[dict[str, Value], DictConfig]]  # points to validate, first ends first
    task: str
    folder: Path  # <output_dir>/tune/<name>
    objective: str = ""  # that trials are ranked by, once checked or read
    direction: str = ""  # max | min
    monitored: str | None = None  # the score that the task monitors; None = unknown
    data: Mapping[str, str] = {}  # data revision of runs, by `RunId.reads`

    @property
    def is_grid(self) -> bool:
        """Whether its trials are the points of a grid."""
        return self.search.sampler == "grid"

    @property
    def folders(self) -> list[str]:
        """Overrides of the command that name output folders; files may not contain them."""
        return [o for o in self.given["overrides"] if key_of(o) in ("output_dir", "cache_dir")]

    @property
    def goal(self) -> dict[str, Any]:
        """What `search.json` stores in addition to `given`."""
        keys = ("objective", "direction", "monitored", "data")
        return {key: getattr(self, key) for key in keys}

    @property
    def identity(self) -> dict[str, Any]:
        """What all trials of one storage share."""
        return {
            "space": [list(p._replace(when=dict(p.when))) for p in self.search.space],
            "seeds": list(self.search.seeds),
            "objective": self.objective,
            "direction": self.direction,
            "configuration": content_hash(self.configs[0][1]),
            "data": list(self.data.values()),
        }


def plan_search(
    search: Search, overrides: Sequence[str] = (), config_dir: str | None = None, file: str = ""
) -> Plan:
    """Plan a search from its keys alone; nothing is written, and no part imported.

    A run is configured by `threads=1`, the search's overrides, `overrides`, and the values of its
    trial; later ones win. Both ends of every range and every option are validated, each with the
    first ends of the others, and the last ends together. Other invalid combinations become failed
    trials when they are reached.

    Raises:
        PlanError: every mistake at once.
    """
    return _planned(search, overrides, config_dir, file, corners(search.space))


def check_search(plan: Plan) -> Plan:
    """Complete the plan with goal and data; reads files and imports parts, which takes seconds.

    Raises:
        PlanError: every mistake at once.

    >>> from isotrain.studies.search import load_search
    >>> plan = check_search(plan_search(load_search("smoke_search")))
    >>> plan.objective, plan.direction
    ('val/spearman', 'max')
    """
    late = judge_configs([cfg for _, cfg in plan.configs])
    mistakes: list[str] = []
    for (point, _), own in zip(plan.configs, late, strict=True):
        mistakes += _placed(point, plan.configs[0][0], own.mistakes, mistakes)
    if mistakes:
        raise PlanError("\n".join(mistakes))
    monitored = f"val/{late[0].monitor}" if late[0].monitor else None
    objective, direction = _goal(plan, monitored, late[0].mode)
    reads = [run_id(recorded(cfg), "").reads for _, cfg in plan.configs]
    data = dict(zip(reads, (one.data for one in late), strict=True))
    return plan._replace(objective=objective, direction=direction, monitored=monitored, data=data)


def find_search(
    search: Search,
    overrides: Sequence[str],
    config_dir: str | None,
    file: str,
    folder: Path | None = None,
) -> Plan:
    """The plan of a started search, to read its trials: with the goal it was started with.

    `folder` contains the trials; None = where the search would run. Without an objective while a
    call is starting.

    Raises:
        PlanError: it was never started.
    """
    plan = _planned(search, overrides, config_dir, file, corners(search.space)[:1])
    plan = plan._replace(folder=folder or plan.folder)
    known = read_origin(plan.folder / SEARCH)
    if known is None or not (plan.folder / DATABASE).is_file():
        if call_at_work(plan.folder):
            return plan
        raise PlanError(
            f"no trial of search {search.name} has been made under {plan.folder}; start with "
            f"isotrain run {search.name}"
        )
    return plan._replace(**{key: known[key] for key in plan.goal})


def trial_jobs(
    plan: Plan, values: Mapping[str, Value], number: int = 0
) -> tuple[list[Job], list[str]]:
    """The runs of a trial, one per seed, and why they cannot run: one of the two is empty."""
    own = [*plan.overrides, *overrides_of(values)]
    cfg, mistakes = check_command(own, plan.config_dir)
    if cfg is None or mistakes:
        return [], mistakes
    name = plan.search.name
    return [
        job_of(
            *(seeded(cfg, seed), name, [*own, f"seed={seed}"]),
            label=f"trial-{number}-seed{seed}",
            search=name,
        )
        for seed in plan.search.seeds
    ], []


def _planned(
    search: Search,
    overrides: Sequence[str],
    config_dir: str | None,
    file: str,
    points: Sequence[dict[str, Value]],
) -> Plan:
    fixed = (*SHARED, *search.overrides, *overrides)
    mistakes = _undone(search, fixed)
    configs: list[tuple[dict[str, Value], DictConfig]] = []
    for point in points:
        cfg, found = check_command([*fixed, *overrides_of(point)], config_dir)
        if cfg is not None:
            found = found or mistakes_of_one_of_several(cfg, "search")
            configs.append((point, cfg))
        mistakes += _placed(point, points[0], found, mistakes)
    if mistakes := mistakes or [*_equal_runs(configs), *_several_tasks(configs)]:
        raise PlanError("\n".join(dict.fromkeys(mistakes)))
    cfg = configs[0][1]
    given = {"file": file, "name": search.name, "n_trials": search.n_trials}
    given |= {"overrides": list(overrides), "config_dir": config_dir}
    task = run_id(recorded(cfg), search.name).task
    folder = Path(str(cfg.output_dir)) / "tune" / search.name
    return Plan(search, fixed, config_dir, given, configs, task, folder)


def _placed(
    point: Mapping[str, Value],
    first: Mapping[str, Value],
    found: Sequence[str],
    told: Sequence[str],
) -> list[str]:
    """Errors of a point not reported before, with its differences to the first point."""
    own = overrides_of({k: v for k, v in point.items() if first.get(k) != v})
    place = f"with {' '.join(own)}: " if own else ""
    return [place + mistake for mistake in found if mistake not in told]


def _undone(search: Search, overrides: Sequence[str]) -> list[str]:
    """Errors: overrides of keys in the space, and keys that a space may not have."""
    given = set(map(key_of, overrides))
    keys = [parameter.key for parameter in search.space]
    mistakes = [
        f"{key} is in the space, and is fixed by an override too" for key in keys if key in given
    ]
    if "seed" in keys:
        mistakes.append("space.seed: a search has its own list, seeds, and means over it")
    return mistakes


def _equal_runs(configs: Sequence[tuple[dict[str, Value], DictConfig]]) -> list[str]:
    """Errors: points that compute the same as another."""
    runs = ((" ".join(overrides_of(point)), run_id(recorded(cfg), "")) for point, cfg in configs)
    return [
        f"{twin} and {own} would compute the same; leave one out" for twin, own in equal_runs(runs)
    ]


def _several_tasks(configs: Sequence[tuple[dict[str, Value], DictConfig]]) -> list[str]:
    tasks = sorted({str(cfg.task["_target_"]) for _, cfg in configs})
    if len(tasks) == 1:
        return []
    return [f"scores of several tasks cannot be ranked ({', '.join(tasks)}); search on one"]


def _goal(plan: Plan, monitored: str | None, mode: str | None) -> tuple[str, str]:
    """The objective and its direction; a `PlanError` if one is missing or not allowed."""
    search, task = plan.search, plan.configs[0][1].task["_target_"]
    objective = search.objective or monitored
    direction = search.direction or (mode if objective == monitored else None)
    if objective is None:
        raise PlanError(f"objective is missing: {task} does not tell its monitor")
    if objective.startswith("test/"):
        use = monitored or "val/..."
        raise PlanError(f"objective={objective}: the test split is not for choosing; use {use}")
    if direction is None:
        raise PlanError(f"direction is missing: is {objective} to be max or min?")
    return objective, direction
