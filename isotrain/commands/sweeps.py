"""What the sweeper runs: the values of a command line, a study, a search. Each ends with a table.

The plan is written into its folder before the first launch, so that a killed call leaves all that
`status`, `report` and the next call need.
"""

import hashlib
import json
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, count, product
from typing import Any

from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig

from isotrain.config.compose import ConfigError, key_of, method_of, plain, task_name
from isotrain.console import counted, reject, say
from isotrain.runs.secrets import redacted
from isotrain.runs.stored import PlanError
from isotrain.studies.call import Call, Job, safe_name, swept
from isotrain.studies.definition import Study, load_study, name_of, parsed
from isotrain.studies.record import write_plan

MOST = 80  # letters of a name
NewCall = Callable[[Sequence[str], str, str], Call]  # of arguments, kind and name


def start(
    config: DictConfig,
    context: HydraContext,
    task: TaskFunction,
    arguments: Sequence[str],
    only_list: bool = False,
) -> int:
    """Exit code of a study, a search, or a sweep over values.

    0: every run is finished; 1: one failed or is not finished; 2: it cannot run.

    Args:
        config: Hydra's configuration of the call.
        context: of the sweeper.
        task: the app's function.
        arguments: overrides of the command line, without Hydra's own.
        only_list: show the runs, and launch none.
    """
    try:
        kind, *rest = [key for key in ("study", "search") if config[key] is not None] or ["sweep"]
        if rest:
            raise PlanError(
                f"study={config.study} search={config.search}: start one, and then the other"
            )
        if kind != "sweep" and (axes := swept(arguments)):
            section = "methods or grid" if kind == "study" else "space"
            raise PlanError(f"{next(iter(axes))} has several values; write them in {section}")
        handler = {"study": _study, "search": _search, "sweep": _sweep}[kind]
        return handler(config, partial(Call, config, context, task), arguments, only_list)
    except (PlanError, ConfigError) as error:
        return reject(str(error))


def _study(config: DictConfig, new: NewCall, arguments: Sequence[str], only_list: bool) -> int:
    study = load_study(str(config.study))
    call = new(arguments, "study", study.name)
    groups = (*study.tasks.values(), *study.methods.values())
    keys = {key_of(text) for group in groups for text in group}
    if clash := [text for text in call.overrides if key_of(text) in keys]:
        raise PlanError(f"{clash[0]}: tasks or methods of the study set it; change it in the file")
    return _run(call, study, str(config.study), call.plan(study.pairs, study.seeds), only_list)


def _sweep(config: DictConfig, new: NewCall, arguments: Sequence[str], only_list: bool) -> int:
    """Its tasks are the values of `task`, its seeds those of `seed`, its methods all the others."""
    axes = dict(swept(arguments))
    counts = Counter(map(key_of, arguments))
    if repeated := next((key for key in axes if counts[key] > 1), None):
        raise PlanError(f"{repeated} is given {counts[repeated]} times; give all its values once")
    name = "-".join(safe_name(key.rpartition(".")[2]) for key in axes) or "one"
    digits = hashlib.sha256(json.dumps(list(arguments)).encode()).hexdigest()[:8]
    fixed = [text for text in arguments if key_of(text) not in axes]
    call = new(fixed, "sweep", f"{name[:MOST]}-{digits}")
    call.arguments = list(arguments)
    try:
        study = _study_of(call, axes)
        call.overrides = [text for text in call.overrides if key_of(text) != "seed"]
        jobs = call.plan(study.pairs, study.seeds)
    except (PlanError, ConfigError) as error:  # every typo at once, in any of the values
        raise PlanError("\n".join(call.wrong_overrides(arguments)) or str(error)) from error
    return _run(call, study, "", jobs, only_list)


def _search(config: DictConfig, new: NewCall, arguments: Sequence[str], only_list: bool) -> int:
    from isotrain.results import search_report
    from isotrain.studies.search import load_search, run_search  # these need Optuna

    search = load_search(str(config.search))
    call = new(arguments, "search", search.name)
    code = run_search(call, search, only_list)
    if not only_list:
        search_report.write_report(call.folder, search.storage)
    return code


def _run(call: Call, study: Study, file: str, jobs: Sequence[Job], only_list: bool) -> int:
    """Launch what is missing of a study, and write its table."""
    if only_list:
        say(f"{counted(len(jobs), 'run')} of {call.kind} {call.name}")
        for job in jobs:
            state = "to do" if job.is_due else "finished"
            say(f"{job.name} ({state}): {' '.join(redacted(list(job.overrides)))}")
        return 0
    plan = write_plan(call, file, study, jobs)
    call.announce(jobs)
    outcomes = call.launch(jobs)
    if any(job.is_finished for job in jobs):
        from isotrain.commands.report import write_report  # scipy is slow to import

        write_report(plan)
        say("these tables again: " + shlex.join(["isotrain", "report", str(call.folder)]))
    has_failed = any(outcome.error is not None for outcome in outcomes)
    return int(has_failed or not all(job.is_finished for job in jobs))


def _study_of(call: Call, axes: dict[str, list[str]]) -> Study:
    """Convert a sweep to a study."""
    tasks = {text.partition("=")[2]: (text,) for text in axes.pop("task", ())}
    seeds = [int(text.partition("=")[2]) for text in axes.pop("seed", ())]
    methods: dict[str, tuple[str, ...]] = {}
    for point in product(*axes.values()):
        parts = (text.partition("=") for text in point)
        name = "_".join(name_of(key.lstrip("+"), value.strip("[]'\"")) for key, _, value in parts)
        methods[_unused(name, methods)] = tuple(point)
    pair = next(iter(tasks.values()), ()), next(iter(methods.values()))
    cfg = call.compose([*call.overrides, *pair[0], *pair[1]])
    if not axes:
        methods = {method_of(cfg): ()}
    if "experiment" in axes and not seeds:  # their files may have seeds
        values = {int(call.compose([*call.overrides, *pair[0], *m]).seed) for m in methods.values()}
        if len(values) > 1:
            raise PlanError(f"the experiments have the seeds {sorted(values)}; give seed=...")
    task = task_name(plain(cfg))
    content: dict[str, Any] = {
        "name": call.name,
        "tasks": {safe_name(name): overrides for name, overrides in tasks.items()} or {task: ()},
        "methods": methods,
        "baseline": next(iter(methods)),
        "seeds": tuple(seeds or [int(cfg.seed)]),
    }
    return parsed(Study, content, "sweep")


def _unused(name: str, methods: dict[str, tuple[str, ...]]) -> str:
    """A name, with a number appended if it is in use."""
    names = chain([name], (f"{name}.{k}" for k in count(2)))
    return next(candidate for candidate in names if candidate not in methods)
