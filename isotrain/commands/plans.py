"""`isotrain run | status | report`: start a study or search, and look at what a folder has."""

import json
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Group

from isotrain.config.compose import written
from isotrain.config.shipped import YAML, names, plan_name
from isotrain.console import counted, say, spinner
from isotrain.runs.files import read_result
from isotrain.runs.stored import PlanError, checkpoint_step, is_owned, newest_step, steps_of
from isotrain.studies.call import FOLDERS
from isotrain.studies.definition import load_study, question_of, read_yaml
from isotrain.studies.record import SEARCH_FILE, read_plan
from isotrain.studies.status import Status, at_step, status_of


def run(
    target: str | None, jobs: int, only_list: bool, config_dir: str | None, arguments: Sequence[str]
) -> int:
    """The exit code of `isotrain run`: the app, with the sweeper of a study or search.

    `arguments` are others of the app, such as overrides.
    """
    if target is None:
        return show_all()
    from isotrain.app import main

    kind = kind_of(target)
    own = [f"hydra/sweeper={kind}", f"{kind}={written(target)}"]
    if jobs > 1:
        own += ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={jobs}"]
    if only_list:
        own.append("hydra.sweeper.only_list=true")
    if config_dir is not None:
        own += ["--config-dir", config_dir]
    return main(["-m", *own, *arguments])


def kind_of(name_or_path: str) -> str:
    """Whether a file defines a study or a search.

    >>> kind_of("smoke"), kind_of("smoke_search")
    ('study', 'search')
    """
    if Path(name_or_path).suffix not in YAML:
        return "search" if name_or_path in names("searches") else "study"
    return "search" if "space" in read_yaml("studies", name_or_path)[1] else "study"


def status(target: str, as_json: bool = False, file: str | None = None) -> int:
    """Exit code of `isotrain status`: 1 if a run has failed."""
    found = _look(folder_of(target), file or target)
    if as_json:
        print(json.dumps(found.content, indent=2))
    else:
        for part in found.drawn.renderables:
            say(part)
    return int(found.has_failed)


def report(
    target: str, wandb: str | None = None, as_json: bool = False, file: str | None = None
) -> int:
    """The exit code of `isotrain report`."""
    folder = folder_of(target)
    is_run = (folder / "result.json").is_file()
    if wandb is not None and not is_run:
        raise PlanError("--wandb sends a run; the runs of a study: logger=[wandb]")
    with redirect_stdout(StringIO()) if as_json else nullcontext():
        files = [str(path) for path in _write(folder, file or target, is_run)]
        if wandb is not None:
            from isotrain.reporting.wandb_report import send_run

            send_run(folder, wandb)
    if as_json:
        content: dict[str, Any] = {"folder": str(folder), "files": files}
        content |= {"result": read_result(folder)} if is_run else {}
        print(json.dumps(content, indent=2))
    return 0


def folder_of(target: str) -> Path:
    """The folder that a command line names: itself, or that of a study or search below `runs`.

    Raises:
        PlanError: there is none.
    """
    if Path(target).is_dir():
        return Path(target)
    own, kinds = plan_name(target), [*FOLDERS.values()]
    if Path(target).suffix in YAML and Path(target).is_file():
        own = str(read_yaml("studies", target)[1].get("name", own))
        kinds = [FOLDERS[kind_of(target)]]
    places = [Path("runs") / kind / own for kind in kinds]
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        raise PlanError(
            f"{target} is no folder, and there is no {' or '.join(map(str, places[:2]))}; give "
            "the folder of a study, search, sweep or run"
        )
    return found


def show_all() -> int:
    """Every study and search of the package, with its number of runs and its question."""
    studies, searches = names("studies"), names("searches")
    width = max(map(len, (*studies, *searches)))
    for name in studies:
        study = load_study(name)
        say(f"{name:<{width}}  {study.n_runs:>4} runs    {study.question}")
    for name in searches:
        text, content = read_yaml("searches", name)
        say(f"{name:<{width}}  {content['n_trials']:>4} trials  {question_of(text)}")
    return 0


def _look(folder: Path, target: str) -> Status:
    if plan := read_plan(folder):
        return status_of(plan)
    if (folder / SEARCH_FILE).is_file():
        from isotrain.reporting.search_report import status_of_search

        return status_of_search(folder, _storage_of(target))
    if (folder / "result.json").is_file() or is_owned(folder):
        return _look_at_run(folder)
    from isotrain.reporting.collect_command import find_runs

    below = find_runs(folder)
    runs = [{"folder": str(one.run.folder), "state": "finished"} for one in below.runs]
    lines = [f"{folder}: {counted(len(runs), 'run')} finished", *below.others]
    content = {"what": str(folder), "runs": runs, "others": below.others}
    return Status(Group(*lines), content, False)


def _look_at_run(folder: Path) -> Status:
    """The status of one run."""
    result, is_running = read_result(folder), is_owned(folder)
    step = newest_step(folder / "metrics.jsonl") if is_running else checkpoint_step(folder)
    state = "running" if is_running else str(result.get("status", "waiting"))
    state = "interrupted" if state == "running" and not is_running else state
    n_steps, error = steps_of(result), str(result.get("error", ""))
    line = ", ".join(filter(None, [f"{folder}: {state}", at_step(step, n_steps)]))
    content = {"what": str(folder), "state": state, "step": step, "n_steps": n_steps}
    content |= {"error": error, "scores": result.get("scores", {})}
    return Status(Group(*filter(None, [error, line])), content, state == "failed")


def _storage_of(target: str) -> str | None:
    """The storage that a search's file names; None where a folder is given."""
    from isotrain.studies.search import load_search

    is_file = Path(target).suffix in YAML or target in names("searches")
    return load_search(target).storage if is_file and not Path(target).is_dir() else None


def _write(folder: Path, target: str, is_run: bool) -> list[Path]:
    """Write and print the page or tables of a run or plan; the files."""
    if is_run:
        with spinner(f"drawing {folder}"):
            from isotrain.pages.report import write_report  # matplotlib is slow to import

            page = write_report(folder)
        say(page)
        return [page]
    if plan := read_plan(folder):
        from isotrain.reporting import report as of_study

        return of_study.write_report(plan)
    if (folder / SEARCH_FILE).is_file():
        from isotrain.reporting import search_report

        return search_report.write_report(folder, _storage_of(target))
    from isotrain.reporting.collect_command import write_runs

    return write_runs(folder, folder / "collected")
