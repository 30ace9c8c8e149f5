"""`isotrain run | status | report | cancel`: studies, searches, sweeps and runs by name or folder.

A name is that of a file in `conf/study` or `conf/tune`; a path is such a file of yours, a job file
or `result.json` (which are run again), or a folder that one of these has left.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from isotrain.commands.shown import Given, look, open_trials, show_all, write
from isotrain.config.sweep import names, read, text_of
from isotrain.console import install, launched, reject, say, spinner
from isotrain.jobs.archive import Archive, located
from isotrain.jobs.pool import Pool, call_at_work
from isotrain.jobs.process import Backend, local, warm_up
from isotrain.jobs.progress import is_owned
from isotrain.jobs.stored import PlanError, stored
from isotrain.runs.files import replace_text
from isotrain.runs.locks import owner
from isotrain.studies import sweep
from isotrain.studies.definition import load_study, question_of, study_text
from isotrain.studies.identity import check_identity, write_identity
from isotrain.studies.origin import SEARCH, STUDY, SWEEP, read_origin
from isotrain.studies.plan import check_parts, plan_jobs, study_folder
from isotrain.studies.search import load_search
from isotrain.studies.search_plan import Plan, plan_search
from isotrain.studies.status import show

COPY = "study.yaml"  # of the file of a study, in its folder
DATA_DIR = "ISOTRAIN_DATA_DIR"
RANKS = (
    "it starts a process for each run, and this is a process of torchrun or srun; start it once, "
    "without them (in a job of Slurm: --ntasks=1)"
)
CANCEL_S = 0.2  # between two looks at what still runs


def run(arguments: Sequence[str]) -> int:
    """The exit code of `isotrain run`."""
    parser = _parser(
        "run",
        "Run what is missing of a study or search, or a job file again. Without a name: list what "
        "there is.",
        n_names="?",
    )
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="runs at a time (1)")
    parser.add_argument("--list", action="store_true", help="show what it would run, start nothing")
    given = parser.parse_intermixed_args(arguments)
    if given.name_or_folder is None:
        return show_all()
    path = Path(given.name_or_folder)
    if path.suffix == ".json" or given.name_or_folder == "-":
        if given.overrides or given.list or given.jobs != 1:
            return reject(f"{path} is one job, and runs as it is; give its file alone")
        from isotrain.commands.worker import run_file

        return run_file(None if given.name_or_folder == "-" else path)
    with _errors() as code:
        if given.list:
            _preview(given)
        elif given.jobs < 1:
            raise PlanError(f"--jobs is the number of runs at a time, at least 1, got {given.jobs}")
        elif launched():
            raise PlanError(RANKS)
        elif kind_of(given.name_or_folder) == "study":
            code[0] = run_study(
                given.name_or_folder,
                given.overrides,
                given.jobs,
                config_dir=given.config_dir,
                name=given.name,
            )
        else:
            code[0] = run_search(_search(given), given.jobs)
    return code[0]


def run_study(
    name_or_path: str,
    overrides: Sequence[str] = (),
    n_jobs: int = 1,
    backend: Backend = local,
    config_dir: str | None = None,
    name: str | None = None,
) -> int:
    """0 when every run of the study is finished, 1 when one failed, 128 + signal when stopped.

    Runs are started seed by seed, so that a study that is stopped can be compared. Under
    `<output_dir>/studies/<name>` are `study.json` (what is computed), `jobs/`, `logs/` and, at the
    end, the tables.

    Raises:
        PlanError: a study or overrides that cannot run, nothing is written then; or a file that
            cannot be read now.
    """
    study = load_study(name_or_path, name)
    if backend is local:
        warm_up()  # while this process plans
    jobs = plan_jobs(study, overrides, config_dir)
    folder = study_folder(study, jobs)
    check_identity(study, jobs, folder, overrides)
    with spinner(f"study {study.name}: importing the parts of its runs"):
        jobs = check_parts(jobs)
    with Pool(folder, n_jobs, f"study {study.name}", backend) as pool:
        if pool.received:
            return pool.code(0)
        check_identity(study, jobs, folder, overrides)  # again: another call may have been here
        write_identity(study, jobs, folder, name_or_path, overrides, config_dir)
        replace_text(folder / COPY, study_text(name_or_path))
        in_order = sorted(jobs, key=lambda job: study.seeds.index(job.seed))
        n_failed = pool.run(in_order)
        if not pool.received and any(stored(job.folder).is_finished for job in jobs):
            from isotrain.reporting.report import write_report

            write_report(study, jobs, folder, overrides)
        return pool.code(n_failed)


def run_search(plan: Plan, n_jobs: int = 1, backend: Backend = local) -> int:
    """As `isotrain.studies.search_run.run_search`, with its tables at the end."""
    from isotrain.reporting.search_report import write_report
    from isotrain.studies import search_run

    return search_run.run_search(plan, n_jobs, backend, write_report)


def status(arguments: Sequence[str]) -> int:
    """The exit code of `isotrain status`: 1 where a run has failed."""
    parser = _parser("status", "Show how far the runs are, and the time left. Nothing is started.")
    parser.add_argument("--jobs", type=int, metavar="N", help="runs at a time, if none is at work")
    parser.add_argument("--watch", action="store_true", help="redraw it until nothing is at work")
    parser.add_argument("--json", action="store_true", help="as JSON")
    options = parser.parse_intermixed_args(arguments)
    with _errors() as code:
        given = resolved(options)
        if given.kind == "folder":
            from isotrain.reporting.collect_command import find_runs

            found = find_runs(given.folder)
            runs = [{"folder": str(one.run.folder), "state": "finished"} for one in found.runs]
            lines = [f"{given.folder}: {len(runs)} runs finished", *found.told]
            content: dict[str, Any] = {"what": str(given.folder), "runs": runs}
            content["others"] = found.told
            print(json.dumps(content, indent=2) if options.json else "\n".join(lines))
            return 0
        with open_trials(given) as study:
            code[0] = show(lambda: look(given, study, options.jobs), options.watch, options.json)
    return code[0]


def report(arguments: Sequence[str]) -> int:
    """The exit code of `isotrain report`."""
    parser = _parser(
        "report",
        "Draw the page of a run; write the tables of a study or search, as far as it is; tabulate "
        "every finished run below a folder.",
    )
    parser.add_argument("--json", action="store_true", help="print what was written, as JSON")
    parser.add_argument("--wandb", metavar="PROJECT", help="send a finished run to W&B as well")
    options = parser.parse_intermixed_args(arguments)
    with _errors() as code:
        given = resolved(options)
        hidden = _silent() if options.json else nullcontext()
        with hidden:
            code[0] = write(given)
            if options.wandb is not None:
                from isotrain.reporting.wandb_report import send_run

                if given.kind != "run":
                    raise PlanError("--wandb sends a run; the runs of a plan: logger=[wandb]")
                send_run(given.folder, options.wandb)
        if options.json:
            content: dict[str, Any] = {"what": given.kind, "folder": str(given.folder)}
            if given.kind == "run":
                content |= {"result": stored(given.folder).result}
            print(json.dumps(content, indent=2))
    return code[0]


def cancel(arguments: Sequence[str]) -> int:
    """The exit code of `isotrain cancel`: 0 when nothing is at work any more."""
    parser = _parser("cancel", "Stop what is at work on a run or plan, with checkpoints.")
    with _errors() as code:
        given = resolved(parser.parse_intermixed_args(arguments))
        if given.kind == "folder":
            raise PlanError(
                f"{given.folder} is no run, study, search or sweep; give a folder of one below it"
            )
        told = set[int]()
        while found := sorted(_at_work(given)):
            for pid in found:
                if pid not in told:
                    say(f"stopping process {pid}")
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGTERM)
            told |= set(found)
            time.sleep(CANCEL_S)
        say(f"{given.folder}: {'stopped' if told else 'nothing is at work'}")
    return code[0]


def kind_of(name_or_path: str) -> str:
    """Whether a file is that of a study or of a search.

    >>> kind_of("smoke"), kind_of("smoke_search")
    ('study', 'search')
    """
    is_path = Path(name_or_path).suffix in (".yaml", ".yml")
    if not is_path:
        return "search" if name_or_path in names("tune") else "study"
    try:
        content = read("study", name_or_path)
    except ValueError as error:
        raise PlanError(str(error)) from error
    return "search" if isinstance(content, dict) and "space" in content else "study"


def resolved(given: argparse.Namespace) -> Given:
    """What a name or folder stands for.

    Raises:
        PlanError: it stands for nothing, or its plan has mistakes.
    """
    os.environ.setdefault(DATA_DIR, "")  # it is referred to, and no data are read here
    folder = Path(given.name_or_folder)
    if folder.is_dir():
        for name in (STUDY, SEARCH, SWEEP):
            if (content := read_origin(folder / name)) is not None:
                return _of_folder(given, folder, content)
        is_run = (folder / "result.json").is_file() or is_owned(folder)
        return Given("run" if is_run else "folder", folder)
    if folder.is_file() and folder.suffix not in (".yaml", ".yml"):
        raise PlanError(f"{folder} is a file; give the folder of a run, or the yaml of a study")
    return _planned(given)


def _planned(given: argparse.Namespace, folder: Path | None = None) -> Given:
    """The study or search of a name or file, in a folder that may have been moved."""
    if kind_of(given.name_or_folder) == "study":
        study = load_study(given.name_or_folder, given.name)
        jobs = plan_jobs(study, given.overrides, given.config_dir)
        folder, file = folder or study_folder(study, jobs), given.name_or_folder
        check_identity(study, jobs, folder, given.overrides)
        return Given("study", folder, study, jobs, None, file, given.overrides, given.config_dir)
    plan = _search(given)
    plan = plan._replace(folder=folder or plan.folder)
    return Given("search", plan.folder, search=plan)


def _of_folder(given: argparse.Namespace, folder: Path, content: dict[str, Any]) -> Given:
    """What a plan's own folder says of it."""
    given.overrides = [*content["overrides"], *given.overrides]
    given.config_dir = given.config_dir or content["config_dir"]
    if "file" not in content:
        jobs = sweep.plan_sweep(given.overrides, given.config_dir)
        return Given("sweep", folder, jobs=jobs, overrides=given.overrides)
    given.name_or_folder, given.name = content["file"], content["name"]
    if not Path(content["file"]).is_file() and (folder / COPY).is_file():  # on another machine
        given.name_or_folder = str(folder / COPY)
    given.trials = content.get("n_trials")
    return _planned(given, folder)


def _parser(command: str, description: str, n_names: str | None = None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"isotrain {command}",
        description=description,
        epilog=f"studies: {', '.join(names('study'))}; searches: {', '.join(names('tune'))}; or "
        "the path of a yaml file of that form, or a folder",
    )
    text = "study or search, its yaml file, or a folder"
    parser.add_argument("name_or_folder", nargs=n_names, metavar="NAME", help=text)
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="for every run")
    parser.add_argument("--config-dir", metavar="DIR", help="more config groups, of yours")
    parser.add_argument("--name", help="of its folder, in place of the file's name")
    parser.add_argument("--trials", type=int, metavar="N", help="trials of a search (n_trials)")
    return parser


@contextmanager
def _errors() -> Iterator[list[int]]:
    """Print what is wrong; the exit code is the only item of what is yielded."""
    code = [0]
    try:
        yield code
    except (PlanError, OSError) as error:
        code[0] = reject(str(error))
    except KeyboardInterrupt:
        code[0] = 128 + signal.SIGINT


@contextmanager
def _silent() -> Iterator[None]:
    """Nothing is printed."""
    from contextlib import redirect_stdout
    from io import StringIO

    with redirect_stdout(StringIO()):
        yield


def _search(given: argparse.Namespace) -> Plan:
    search = load_search(given.name_or_folder, given.trials, given.name)
    if not getattr(given, "list", False) and find_spec("optuna") is None:
        raise PlanError(f"a search needs the package optuna; {install('tune')}")
    with spinner("judging the ends of the space"):
        return plan_search(search, given.overrides, given.config_dir, given.name_or_folder)


def _at_work(given: Given) -> set[int]:
    """The processes to stop: the call at work; else the runs that one has left."""
    if call := call_at_work(given.folder):
        return {call[0]}
    folders = [given.folder]
    if given.jobs:
        folders = [job.folder for job in located(given.jobs, Archive(given.folder))]
    if given.search is not None:
        from isotrain.studies.search_run import trial_jobs
        from isotrain.studies.trials import trials_of

        with open_trials(given) as study:
            open_ones = [t for t in trials_of(study) if not t.state.is_finished() and t.params]
            jobs = [job for t in open_ones for job in trial_jobs(given.search, 0, t.params)]
            folders = [job.folder for job in located(jobs, Archive(given.folder))]
    return {pid for folder in folders if (pid := owner(folder / ".lock")) is not None}


def _preview(given: argparse.Namespace) -> None:
    from isotrain.studies.preview import preview_search, preview_study

    if kind_of(given.name_or_folder) == "study":
        study = load_study(given.name_or_folder, given.name)
        question = question_of(study_text(given.name_or_folder))
        for line in preview_study(study, question, given.overrides):
            say(line)
        check_parts(plan_jobs(study, given.overrides, given.config_dir))  # and it can run
    else:
        search = load_search(given.name_or_folder, given.trials, given.name)
        question = question_of(text_of("tune", given.name_or_folder))
        for line in preview_search(search, question, given.overrides):
            say(line)
        _search(given)
