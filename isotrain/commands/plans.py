"""`isotrain run | status | report | cancel`: studies, searches, sweeps and runs by name or folder.

A name is that of a file in `conf/study` or `conf/tune`; a path is such a file of yours, a job file
or `result.json` (which are run again), or a folder that one of these has left.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from socket import gethostname
from typing import Any

from isotrain.commands.shown import Given, Named, look, open_trials, show_all, write
from isotrain.config.sweep import names, read, text_of
from isotrain.console import install, launched, say, spinner
from isotrain.jobs.archive import Archive, located
from isotrain.jobs.pool import Pool, call_at_work
from isotrain.jobs.process import Backend, local, warm_up
from isotrain.jobs.progress import is_owned
from isotrain.jobs.stored import PlanError, stored
from isotrain.runs.files import read_result, replace_text
from isotrain.runs.locks import Owner, is_locked, owner
from isotrain.studies import sweep
from isotrain.studies.definition import load_study, question_of, study_text
from isotrain.studies.identity import check_identity, of_earlier_keys, write_identity
from isotrain.studies.origin import COPY, SEARCH, STUDY, SWEEP, read_origin
from isotrain.studies.plan import check_parts, plan_jobs, study_folder
from isotrain.studies.search import load_search
from isotrain.studies.search_plan import Plan, plan_search
from isotrain.studies.status import show

DATA_DIR = "ISOTRAIN_DATA_DIR"
OPTIONS = {  # of `Named`, as they are given
    **{"overrides": "key=value", "config_dir": "--config-dir"},
    **{"name": "--name", "trials": "--trials"},
}
CANCEL_S = 0.2  # between two looks at what still runs
UNSIGNED_S = 60.0  # longest wait for a process to write its name into its lock


def run(target: str | None, jobs: int = 1, only_list: bool = False, **given: Any) -> int:
    """The exit code of `isotrain run`; `given` is the rest of `Named`."""
    if target is None:
        return show_all()
    named = Named(target, **given)
    if Path(target).suffix == ".json" or target == "-":
        if any(named[1:]) or only_list or jobs != 1:
            raise PlanError(f"{target} is one job, and runs as it is; give its file alone")
        from isotrain.commands.worker import run_file

        return run_file(None if target == "-" else Path(target))
    if only_list:
        return _preview(named)
    if launched():
        raise PlanError(
            "it starts a process for each run, and this is a process of torchrun or srun; start it "
            "once, without them (in a job of Slurm: --ntasks=1)"
        )
    if _kind(named) == "search":
        return run_search(_search(named), jobs)
    return run_study(target, named.overrides, jobs, config_dir=named.config_dir, name=named.name)


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


def status(
    jobs: int | None = None, watch: bool = False, as_json: bool = False, **given: Any
) -> int:
    """The exit code of `isotrain status`: 1 where a run has failed."""
    found = resolved(Named(**given))
    if watch and as_json:
        raise PlanError("--watch redraws a table and --json prints once; give one of them")
    if jobs and found.kind in ("run", "folder"):
        raise PlanError(f"--jobs is of a plan, and {found.folder} is a {found.kind}; leave it out")
    if found.kind == "folder":
        from isotrain.reporting.collect_command import find_runs

        below = find_runs(found.folder)
        runs = [{"folder": str(one.run.folder), "state": "finished"} for one in below.runs]
        lines = [f"{found.folder}: {len(runs)} runs finished", *below.told]
        content = {"what": str(found.folder), "runs": runs, "others": below.told}
        print(json.dumps(content, indent=2) if as_json else "\n".join(lines))
        return 0
    with open_trials(found) as trials:
        return show(lambda: look(found, trials, jobs), watch, as_json)


def report(as_json: bool = False, wandb: str | None = None, **given: Any) -> int:
    """The exit code of `isotrain report`."""
    found = resolved(Named(**given))
    with redirect_stdout(StringIO()) if as_json else nullcontext():
        files = [str(path) for path in write(found)]
        if wandb is not None:
            from isotrain.reporting.wandb_report import send_run

            if found.kind != "run":
                raise PlanError("--wandb sends a run; the runs of a plan: logger=[wandb]")
            send_run(found.folder, wandb)
    if as_json:
        content: dict[str, Any] = {"what": found.kind, "folder": str(found.folder)}
        content["files"] = files
        if found.kind == "run":
            content["result"] = read_result(found.folder)
        print(json.dumps(content, indent=2))
    return 0


def cancel(**given: Any) -> int:
    """The exit code of `isotrain cancel`: 0 when nothing is at work any more."""
    found = resolved(Named(**given))
    if found.kind == "folder":
        raise PlanError(
            f"{found.folder} is no run, study, search or sweep; give a folder of one below it"
        )
    told, began_at = set[Owner](), time.monotonic()
    while at_work := _at_work(found):
        if set(at_work.values()) == {None} and time.monotonic() > began_at + UNSIGNED_S:
            raise PlanError(
                f"processes are at work and have not told who they are: {', '.join(at_work)}; "
                "look for them on the machine that this plan was started on"
            )
        for one in sorted({one for one in at_work.values() if one is not None} - told):
            if one.host != gethostname():
                raise PlanError(
                    f"process {one.pid} of machine {one.host} is at work at {found.folder}; "
                    "give this command there"
                )
            say(f"stopping process {one.pid}")
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGTERM)
            told.add(one)
        time.sleep(CANCEL_S)
    say(f"{found.folder}: {'stopped' if told else 'nothing is at work'}")
    return 0


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


def _kind(named: Named) -> str:
    """`kind_of`, whose options fit."""
    kind = kind_of(named.target)
    if kind == "study":
        _reject(named, "study", "trials")
    return kind


def _reject(named: Named, what: str, *options: str) -> None:
    """Reject what something of this kind does not take, by the fields of `Named`."""
    values = named._asdict()
    if found := [OPTIONS[name] for name in options if values[name]]:
        raise PlanError(f"{named.target} is a {what}, which takes no {', '.join(found)}")


def resolved(named: Named) -> Given:
    """What a name or folder stands for.

    Raises:
        PlanError: it stands for nothing, or its plan has mistakes.
    """
    os.environ.setdefault(DATA_DIR, "")  # it is referred to, and no data are read here
    path = Path(named.target)
    if path.is_dir():
        path = path.resolve()  # its name and what is above it, also of "." and of "a/../b"
        for name in (STUDY, SEARCH, SWEEP):
            if (content := read_origin(path / name)) is not None:
                _reject(named, "plan's folder", "name", "trials")
                return _of_folder(named, path, content)
        is_run = (path / "result.json").is_file() or is_owned(path)
        kind = "run" if is_run else "folder"
        _reject(named, kind, *OPTIONS)
        return Given(kind, path, named)
    if path.is_file() and path.suffix not in (".yaml", ".yml"):
        raise PlanError(f"{path} is a file; give the folder of a run, or the yaml of a study")
    return _planned(named)


def _planned(named: Named, folder: Path | None = None) -> Given:
    """The study or search of a name or file, in a folder that may have been moved."""
    if _kind(named) == "search":
        plan = _search(named)
        plan = plan._replace(folder=folder or plan.folder)
        return Given("search", plan.folder, named, search=plan)
    study = load_study(named.target, named.name)
    jobs = plan_jobs(study, named.overrides, named.config_dir)
    folder = folder or study_folder(study, jobs)
    check_identity(study, jobs, folder, named.overrides)
    found, told = of_earlier_keys(jobs, folder)
    if told:
        print(told, file=sys.stderr)
    return Given("study", folder, named, study, found)


def _of_folder(named: Named, folder: Path, content: dict[str, Any]) -> Given:
    """What a plan's own folder says of it."""
    named = named._replace(
        overrides=[*content["overrides"], *named.overrides],
        config_dir=named.config_dir or content["config_dir"],
    )
    if "file" not in content:
        jobs = sweep.plan_sweep(named.overrides, named.config_dir)
        return Given("sweep", folder, named, jobs=jobs)
    file, own = content["file"], {"name": content["name"], "trials": content.get("n_trials")}
    is_gone = Path(file).suffix in (".yaml", ".yml") and not Path(file).is_file()
    target = str(folder / COPY) if is_gone and (folder / COPY).is_file() else file
    found = _planned(named._replace(target=target, **own), folder)
    return found._replace(named=found.named._replace(target=file))  # as it stays on record


def _search(named: Named, needs_optuna: bool = True) -> Plan:
    search = load_search(named.target, named.trials, named.name)
    if needs_optuna and find_spec("optuna") is None:
        raise PlanError(f"a search needs the package optuna; {install('tune')}")
    with spinner("judging the ends of the space"):
        return plan_search(search, named.overrides, named.config_dir, named.target)


def _at_work(given: Given) -> dict[str, Owner | None]:
    """Who is to stop, and where: the call at work, else the runs that one has left.

    None is a run whose process has not signed its lock yet.
    """
    if call := call_at_work(given.folder):
        return {str(given.folder): Owner(call.pid, call.host)}
    if given.kind == "run":
        own = given.folder
        return {str(own): owner(own / ".lock")} if is_owned(own) else {}
    jobs: Sequence[Any] = given.jobs
    if given.search is not None:
        from isotrain.studies.search_status import jobs_left

        with open_trials(given) as trials:
            jobs = jobs_left(given.search, trials)
    logs = given.folder / "logs"
    return {
        str(logs / f"{job.name}.log"): owner(job.folder / ".lock")
        for job in located(jobs, Archive(given.folder))
        if is_owned(job.folder) or is_locked(logs / f"{job.name}.log")
    }


def _preview(named: Named) -> int:
    from isotrain.studies.preview import preview_search, preview_study

    if _kind(named) == "study":
        study = load_study(named.target, named.name)
        question = question_of(study_text(named.target))
        say("\n".join(preview_study(study, question, named.overrides)))
        check_parts(plan_jobs(study, named.overrides, named.config_dir))  # and it can run
    else:
        search = load_search(named.target, named.trials, named.name)
        question = question_of(text_of("tune", named.target))
        say("\n".join(preview_search(search, question, named.overrides)))
        _search(named, needs_optuna=False)
    return 0
