"""`isotrain run | status | report | cancel` of studies, searches, sweeps and runs."""

import json
import os
import signal
import time
from collections.abc import Sequence
from contextlib import nullcontext, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from socket import gethostname
from typing import Any

from isotrain.commands.shown import look, open_trials, preview, show_all, write
from isotrain.commands.targets import Given, Named, origin, planned_search, resolve
from isotrain.config.compose import key_of, written
from isotrain.console import counted, launched, say
from isotrain.jobs.archive import Archive, Job, locate
from isotrain.jobs.pool import Pool, call_at_work
from isotrain.jobs.process import JOB, Backend, local, warm_up
from isotrain.jobs.progress import is_owned
from isotrain.jobs.stored import COPY, PlanError, stored
from isotrain.runs.files import read_result, replace_text
from isotrain.runs.locks import Owner, is_locked, owner
from isotrain.studies.definition import load_study, study_text
from isotrain.studies.identity import check_identity, write_identity
from isotrain.studies.plan import check_parts, plan_jobs, study_folder
from isotrain.studies.search_plan import Plan
from isotrain.studies.status import show
from isotrain.studies.sweep import run_sweep

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

        is_foreign = os.environ.get(JOB) != target
        return run_file(None if target == "-" else Path(target), is_foreign)
    is_as_it_was = not any(named[1:])
    kind, named, folder = origin(named)
    if kind in ("run", "folder"):
        raise PlanError(
            f"{folder} is a {kind}; give the folder of a study, search or sweep, or the "
            "result.json of a run"
        )
    if folder is not None:
        dirs = [text.partition("=")[2] for text in named.overrides if key_of(text) == "output_dir"]
        if Path([".", "runs", *dirs][-1]).resolve() != (home := folder.parents[1]):  # it was moved
            more = f"output_dir={written(str(home))}"
            named = named._replace(overrides=[*named.overrides, more])
    if only_list:
        return preview(kind, named)
    if launched():
        raise PlanError(
            "it starts a process for each run, and this is a process of torchrun or srun; start it "
            "once, without them (in a job of Slurm: --ntasks=1)"
        )
    if kind == "search":
        return run_search(planned_search(named), jobs)
    if kind == "sweep":
        own_folder = folder if is_as_it_was else None  # with other overrides it is another sweep
        return run_sweep(named.overrides, jobs, named.config_dir, folder=own_folder)
    return run_study(
        named.target, named.overrides, jobs, config_dir=named.config_dir, name=named.name
    )


def run_study(
    name_or_path: str,
    overrides: Sequence[str] = (),
    n_jobs: int = 1,
    backend: Backend = local,
    config_dir: str | None = None,
    name: str | None = None,
) -> int:
    """Exit code: 0 if every run of the study is finished, 1 if one failed, 128 + signal if stopped.

    Runs are started seed by seed, so that an interrupted study has comparable results.

    Raises:
        PlanError: a study or overrides that cannot run, or a file that cannot be read now.
    """
    study = load_study(name_or_path, name)
    say(f"study {study.name}: checking its {counted(study.n_runs, 'run')}")
    if backend is local:
        warm_up()  # while this process plans
    jobs = plan_jobs(study, overrides, config_dir)
    folder = study_folder(study, jobs)
    with Pool(folder, n_jobs, f"study {study.name}", backend) as pool:

        def check() -> list[Job]:
            check_identity(study, jobs, folder, overrides)
            return check_parts(jobs)

        if (planned := pool.check_parts(check)) is None:
            return pool.code(0)
        write_identity(study, planned, folder, name_or_path, overrides, config_dir)
        replace_text(folder / COPY, study_text(name_or_path))
        in_order = sorted(planned, key=lambda job: study.seeds.index(job.seed))
        n_failed = pool.run(in_order)
        if not pool.received and any(stored(job.folder).is_finished for job in planned):
            from isotrain.reporting.report import write_report

            write_report(study, planned, folder, overrides)
        return pool.code(n_failed)


def run_search(plan: Plan, n_jobs: int = 1, backend: Backend = local) -> int:
    """As `isotrain.studies.search_run.run_search`, with its tables at the end."""
    from isotrain.reporting.search_report import write_report
    from isotrain.studies import search_run

    return search_run.run_search(plan, n_jobs, backend, write_report)


def status(
    jobs: int | None = None, watch: bool = False, as_json: bool = False, **given: Any
) -> int:
    """Exit code of `isotrain status`: 1 if a run has failed."""
    what = resolve(Named(**given))
    if watch and as_json:
        raise PlanError("--watch redraws a table and --json prints once; give one of them")
    if jobs and what.kind in ("run", "folder"):
        raise PlanError(f"--jobs is of a plan, and {what.folder} is a {what.kind}; leave it out")
    if what.kind == "folder":
        from isotrain.reporting.collect_command import find_runs

        below = find_runs(what.folder)
        runs = [{"folder": str(one.run.folder), "state": "finished"} for one in below.runs]
        lines = [f"{what.folder}: {counted(len(runs), 'run')} finished", *below.told]
        content = {"what": str(what.folder), "runs": runs, "others": below.told}
        say(json.dumps(content, indent=2) if as_json else "\n".join(lines))
        return 0
    with open_trials(what) as trials:
        return show(lambda: look(what, trials, jobs), watch, as_json)


def report(as_json: bool = False, wandb: str | None = None, **given: Any) -> int:
    """The exit code of `isotrain report`."""
    what = resolve(Named(**given), to_write=True)
    with redirect_stdout(StringIO()) if as_json else nullcontext():
        files = [str(path) for path in write(what)]
        if wandb is not None:
            from isotrain.reporting.wandb_report import send_run

            if what.kind != "run":
                raise PlanError("--wandb sends a run; the runs of a plan: logger=[wandb]")
            send_run(what.folder, wandb)
    if as_json:
        content: dict[str, Any] = {"what": what.kind, "folder": str(what.folder)}
        content["files"] = files
        if what.kind == "run":
            content["result"] = read_result(what.folder)
        print(json.dumps(content, indent=2))
    return 0


def cancel(**given: Any) -> int:
    """Exit code of `isotrain cancel`: 0 once nothing is running."""
    what = resolve(Named(**given))
    if what.kind == "folder":
        raise PlanError(
            f"{what.folder} is no run, study, search or sweep; give a folder of one below it"
        )
    told, began_at = set[Owner](), time.monotonic()
    while at_work := _at_work(what):
        if set(at_work.values()) == {None} and time.monotonic() > began_at + UNSIGNED_S:
            raise PlanError(
                f"the processes of these runs are unknown, as their locks are not signed: "
                f"{', '.join(at_work)}; stop them on the machine where they were started"
            )
        for one in sorted({one for one in at_work.values() if one is not None} - told):
            if one.host != gethostname():
                raise PlanError(
                    f"{what.folder} is run by process {one.pid} on machine {one.host}; give this "
                    "command there"
                )
            say(f"stopping process {one.pid}")
            with suppress(ProcessLookupError):
                os.kill(one.pid, signal.SIGTERM)
            told.add(one)
        time.sleep(CANCEL_S)
    say(f"{what.folder}: {'stopped' if told else 'nothing is running'}")
    return 0


def _at_work(given: Given) -> dict[str, Owner | None]:
    """Processes to stop, and their locations: the running call, else the runs it left.

    None is a run whose process has not signed its lock yet.
    """
    if call := call_at_work(given.folder):
        return {str(given.folder): call}
    if given.kind == "run":
        own = given.folder
        return {str(own): owner(own / ".lock")} if is_owned(own) else {}
    jobs = given.jobs
    if given.search is not None and given.search.objective:  # else it was only starting
        from isotrain.studies.search_status import jobs_left

        with open_trials(given) as trials:
            jobs = jobs_left(given.search, trials)
    logs = given.folder / "logs"
    return {
        str(logs / f"{job.name}.log"): owner(job.folder / ".lock")
        for job in locate(jobs, Archive(given.folder))
        if is_owned(job.folder) or is_locked(logs / f"{job.name}.log")
    }
