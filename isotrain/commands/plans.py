"""`isotrain run | status | report`: start a study or search, and look at what a folder has."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from importlib.util import find_spec
from pathlib import Path

from isotrain.config.compose import quote, task_name
from isotrain.config.shipped import YAML, names, plan_name
from isotrain.console import counted, install, say, spinner
from isotrain.runs.files import as_json as without_nan
from isotrain.runs.files import nearest_folder, read_result
from isotrain.runs.stored import PlanError, is_owned, stored
from isotrain.studies.call import FOLDERS, Job
from isotrain.studies.definition import question_of, read_yaml
from isotrain.studies.record import SEARCH_FILE, read_plan
from isotrain.studies.status import Status, at_step, in_slurm, state_of, status_of

N_AT_ONCE = {"joblib": "n_jobs", "submitit_slurm": "array_parallelism", "ray": "n_jobs"}  # keys


def run(
    target: str | None,
    jobs: int | None,
    launcher: str | None,
    only_list: bool,
    config_dir: str | None,
    arguments: Sequence[str],
) -> int:
    """The exit code of `isotrain run`: the app, with a study or search.

    `arguments` are others of the app, such as overrides.
    """
    if target is None:
        return show_all()
    from isotrain.app import main

    launcher_name = {"slurm": "submitit_slurm"}.get(launcher or "joblib", launcher or "joblib")
    if launcher_name == "submitit_slurm" and find_spec("submitit") is None:
        raise PlanError(f"--launcher slurm needs submitit: {install('slurm')}")
    is_chosen = launcher is not None or jobs not in (None, 1)
    launcher_options = [f"hydra/launcher={launcher_name}"] if is_chosen else []
    if jobs is not None and launcher_options:
        launcher_options.append(f"hydra.launcher.{N_AT_ONCE[launcher_name]}={jobs}")
    list_options = ["hydra.sweeper.only_list=true"] if only_list else []
    dir_options = ["--config-dir", config_dir] if config_dir else []
    args = [f"{kind_of(target)}={quote(target)}", *launcher_options, *list_options, *dir_options]
    return main(["-m", *args, *arguments])


def kind_of(name_or_path: str) -> str:
    """Whether a file defines a study or a search.

    >>> kind_of("smoke"), kind_of("smoke_search")
    ('study', 'search')
    """
    if Path(name_or_path).suffix not in YAML:
        return "search" if name_or_path in names("searches") else "study"
    return "search" if "space" in read_yaml("studies", name_or_path)[1] else "study"


def show_all() -> int:
    """List the studies and searches of the package, each with its question; exit code 0."""
    plans = [(group, name) for group in ("studies", "searches") for name in names(group)]
    width = max(len(name) for _, name in plans)
    for group, name in plans:
        say(f"{name:<{width}}  {question_of(read_yaml(group, name)[0])}")
    return 0


def status(target: str, as_json: bool = False) -> int:
    """Exit code of `isotrain status`: 1 if a run has failed."""
    folder = folder_of(target)
    if as_json:
        return _print_states(folder, target)
    progress = _look(folder, target)
    for line in progress.lines:
        say(line)
    return int(progress.has_failed)


def report(
    target: str,
    wandb: str | None = None,
    out: Path | None = None,
    as_json: bool = False,
    figures: bool = False,
) -> int:
    """The exit code of `isotrain report`."""
    folder = folder_of(target)
    is_run = (folder / "result.json").is_file()
    is_plan = read_plan(folder) is not None or (folder / SEARCH_FILE).is_file()
    if out and (is_run or is_plan):
        raise PlanError(f"--out is for the runs below a folder; {folder} has its pages in it")
    if wandb is not None and not is_run:
        raise PlanError("--wandb sends a run; the runs of a study: logger=[wandb]")
    if figures and not is_run and not read_plan(folder):
        raise PlanError(
            f"--figures draws the charts of a run, study or sweep; {folder} is none: leave it out"
        )
    with redirect_stdout(sys.stderr) if as_json else nullcontext():
        _write(folder, target, is_run, out or folder / "collected", figures)
    if as_json:
        _print_states(folder, target)
    if wandb is not None:
        from isotrain.commands.wandb_report import send_run

        send_run(folder, wandb)
    return 0


def folder_of(target: str) -> Path:
    """The folder that a command line names: itself, or that of a study, search or sweep in `runs`.

    Raises:
        PlanError: there is none.
    """
    if Path(target).is_dir():
        return Path(target)
    label, kinds = plan_name(target), [*FOLDERS.values()]
    if Path(target).suffix in YAML and Path(target).is_file():
        label = str(read_yaml("studies", target)[1].get("name", label))
        kinds = [FOLDERS[kind_of(target)]]
    folders = [Path("runs") / kind / label for kind in kinds]
    plans = [*names("studies"), *names("searches")]
    match = next((folder for folder in folders if folder.is_dir()), None)
    if match is None:
        raise PlanError(
            f"{target} is no folder, and there is no {' or '.join(map(str, folders[:2]))}; give "
            "the folder of a study, search, sweep or run"
            + nearest_folder(
                *(folder for folder in folders if folder.parent.is_dir()),
                *(Path("runs") / target, Path(target)),
                extra={name: f"{name} (isotrain run {name} starts it)" for name in plans},
            )
        )
    return match


def _look(folder: Path, target: str) -> Status:
    if plan := read_plan(folder):
        return status_of(plan)
    if (folder / SEARCH_FILE).is_file():
        from isotrain.results.search_report import status_of_search

        return status_of_search(folder, _storage_of(target))
    jobs, lines = runs_below(folder)
    if [job.folder for job in jobs] != [folder]:
        return Status([f"{folder}: {counted(len(jobs), 'run')} finished", *lines], False)
    state = state_of(jobs[0], folder)
    line = ", ".join(filter(None, [f"{folder}: {state.state}", at_step(state.step, state.n_steps)]))
    return Status(list(filter(None, [state.reason, line])), state.state == "failed")


def runs_below(folder: Path) -> tuple[list[Job], list[str]]:
    """The run of a folder, whatever its state, or all finished ones below; lines for the others."""
    if (folder / "result.json").is_file() or is_owned(folder):
        return [job_of(folder)], []
    from isotrain.results.below import find_runs

    below = find_runs(folder)
    return [job_of(entry.run.folder) for entry in below.runs], below.messages


def _storage_of(target: str) -> str | None:
    """The storage that a search's file names; None where a folder is given."""
    from isotrain.studies.search import load_search

    is_file = Path(target).suffix in YAML or target in names("searches")
    return load_search(target).storage if is_file and not Path(target).is_dir() else None


def _print_states(folder: Path, target: str) -> int:
    """Print every run of a folder as JSON; 1 if one has failed."""
    notes: list[str] = []
    if plan := read_plan(folder):
        jobs = plan.jobs
    elif (folder / SEARCH_FILE).is_file():
        from isotrain.studies.search import runs_of

        folders = dict.fromkeys(runs_of(folder, _storage_of(target)))  # equal trials share one
        jobs = list(map(job_of, folders))
    else:
        jobs, notes = runs_below(folder)
    states = [state_of(job, folder) for job in jobs]
    if plan:
        states, notes = in_slurm(states, folder)
    print_json([(s.job, s.state, None) for s in states], notes)
    return int(any(state.state == "failed" for state in states))


def print_json(
    runs: Iterable[tuple[Job, str, Mapping[str, float] | None]], notes: Sequence[str]
) -> None:
    """Print runs as JSON: each with its state and scores; by default the scores on record."""
    entries = [
        {
            **{"folder": str(job.folder), "task": job.task, "method": job.method},
            **{"seed": job.seed, "status": state},
            "scores": scores or (read_result(job.folder)["scores"] if state == "finished" else {}),
        }
        for job, state, scores in runs
    ]
    print(json.dumps(without_nan({"runs": entries, "notes": notes}), indent=2))


def job_of(folder: Path) -> Job:
    """The run of a folder, by its record."""
    result, _ = stored(folder)
    task = task_name(result["config"]) if "config" in result else folder.parent.name
    return Job(task, str(result.get("method", "")), int(result.get("seed", 0)), folder)


def _write(folder: Path, target: str, is_run: bool, out: Path, figures: bool) -> None:
    """Write and print the page or tables of a run or plan."""
    if is_run:
        with spinner(f"drawing {folder}"):
            from isotrain.pages.report import write_report

            page = write_report(folder, figures)
        say(page)
    elif plan := read_plan(folder):
        from isotrain.commands import report as of_study

        of_study.write_report(plan, figures)
    elif (folder / SEARCH_FILE).is_file():
        from isotrain.results import search_report

        search_report.write_report(folder, _storage_of(target))
    else:
        from isotrain.results.below import write_runs

        write_runs(folder, out)
