"""`status`, `report` and `run --list` for a run, study, search or sweep."""

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from rich.console import Group

from isotrain.commands.targets import Given, Named
from isotrain.config.sweep import names, text_of
from isotrain.console import counted, say, spinner
from isotrain.jobs.archive import Archive, locate
from isotrain.jobs.progress import checkpoint_step, is_owned, newest_step, steps_of
from isotrain.jobs.stored import PlanError, stored
from isotrain.runs.files import check_inside, read_result
from isotrain.runs.locks import take
from isotrain.runs.secrets import redacted
from isotrain.studies.definition import Study, load_study, question_of, study_text
from isotrain.studies.identity import listed, write_identity
from isotrain.studies.plan import SHARED, in_force, plan_jobs
from isotrain.studies.search import Search, load_search
from isotrain.studies.search_plan import plan_search
from isotrain.studies.status import Status, status_of
from isotrain.studies.sweep import plan_sweep


@contextmanager
def open_trials(given: Given) -> Iterator[Any]:
    """Open the storage of a search; None for anything else."""
    if given.search is None:
        yield None
        return
    if not given.search.objective:
        what = f"search {given.search.search.name}"
        raise PlanError(f"{what} is only starting, and has no trial yet; look again in a minute")
    from isotrain.studies.trials import opened

    with opened(given.search, to_read=True) as study:
        yield study


def look(given: Given, study: Any, n_jobs: int | None) -> Status:
    """Status of a run or plan; `study` is the open storage of a search."""
    if given.search is not None:
        from isotrain.studies.search_status import status_of_search

        return status_of_search(given.search, study, n_jobs)
    if given.kind == "run":
        return _look_at_run(given.folder)
    what = f"{given.kind} {given.folder.name}"
    headings = ("task", "method") if given.kind == "study" else ()
    jobs = locate(given.jobs, archive := Archive(given.folder))
    return status_of(what, headings, jobs, given.folder, n_jobs, archive.damaged)


def _look_at_run(folder: Path) -> Status:
    """The status of one run."""
    result, is_running = read_result(folder), is_owned(folder)
    step = newest_step(folder / "metrics.jsonl") if is_running else checkpoint_step(folder)
    state = "running" if is_running else str(result.get("status", "waiting"))
    state = "interrupted" if state == "running" and not is_running else state
    n_steps = (
        steps_of(OmegaConf.create(dict(result["config"])), result) if "config" in result else None
    )
    line = f"{folder}: {state}" + (f", step {step} of {n_steps}" if step is not None else "")
    content: dict[str, Any] = {
        "what": str(folder),
        "state": state,
        "step": step,
        "n_steps": n_steps,
    }
    content |= {"error": result.get("error", ""), "scores": result.get("scores", {})}
    drawn = Group(*[text for text in (str(result.get("error", "")), line) if text])
    return Status(drawn, content, not is_running, state == "failed")


def write(given: Given) -> list[Path]:
    """Write and print the page or tables of a run or plan; the files."""
    if given.kind == "run":
        with spinner(f"drawing {given.folder}"):
            from isotrain.pages.report import write_report  # matplotlib is slow to import

            page = write_report(given.folder)
        say(page)
        return [page]
    if given.kind != "folder":
        check_inside(given.folder.absolute().parents[1], given.folder)
    if given.study is not None:
        return _report_study(given.study, given)
    if given.search is not None:
        from isotrain.reporting import search_report
        from isotrain.studies.trials import trials_of

        with open_trials(given) as study:
            return search_report.write_report(given.search, trials_of(study), study)
    from isotrain.reporting.collect_command import write_runs

    if given.kind == "folder":
        return write_runs(given.folder, given.folder / "collected")
    jobs = locate(given.jobs, Archive(given.folder))
    folders = [job.folder for job in jobs if job.folder.is_dir()]
    return write_runs(given.folder.absolute().parents[1], given.folder, folders)


def _report_study(study: Study, given: Given) -> list[Path]:
    """Tabulate finished runs; without any, nothing is written and the report says so."""
    from isotrain.reporting.report import write_report

    named = given.named
    jobs = locate(given.jobs, Archive(given.folder))
    if any(stored(job.folder).is_finished for job in jobs) and not given.is_other:
        given.folder.mkdir(parents=True, exist_ok=True)
        lock = take(given.folder / "lock")  # otherwise the running call has written it
        if lock is not None:
            own = named.file or named.target, named.overrides, named.config_dir
            write_identity(study, jobs, given.folder, *own)
            os.close(lock)
    return write_report(study, jobs, given.folder, named.overrides)


def preview(kind: str, named: Named) -> int:
    """Show what a study or search would run, then its errors; nothing is imported or written."""
    if kind == "study":
        study = load_study(named.target, named.name)
        text = study_text(named.target)
        say("\n".join(study_lines(study, question_of(text), named.overrides)))
        plan_jobs(study, named.overrides, named.config_dir)
    elif kind == "search":
        search = load_search(named.target, named.trials, named.name)
        text = text_of("tune", named.target)
        say("\n".join(search_lines(search, question_of(text), named.overrides)))
        plan_search(search, named.overrides, named.config_dir)
    else:
        jobs = plan_sweep(named.overrides, named.config_dir)
        say("\n".join([f"sweep: {counted(len(jobs), 'run')}", *(job.name for job in jobs)]))
    return 0


def study_lines(study: Study, question: str = "", overrides: Sequence[str] = ()) -> list[str]:
    """What a study would run: runs, shared overrides, and those of each task and method."""
    parts = (("task", study.tasks), ("method", study.methods), ("seed", study.seeds))
    counts = [counted(len(own), name) for name, own in parts]
    lines = [
        f"study {study.name}: {' × '.join(counts)} = {counted(study.n_runs, 'run')}"
        + f"; {question}" * bool(question),
        f"every run: {_one_line(in_force((*SHARED, *study.overrides, *overrides)))}",
        *(f"task {task}: {_one_line(own)}" for task, own in study.tasks.items()),
    ]
    for method, own in study.methods.items():
        lines.append(
            f"method {method}: {_one_line(own)}" + "; the baseline" * (method == study.baseline)
        )
    lines.append(f"seeds: {listed(study.seeds)}")
    if study.margin is not None:
        lines.append(f"margin: {study.margin:g}")
    if study.margin_share is not None:
        lines.append(f"margin: {study.margin_share:g} of what fine-tuning gains")
    return lines


def search_lines(search: Search, question: str = "", overrides: Sequence[str] = ()) -> list[str]:
    """What a search would run: trials, shared overrides, and the options of each key."""
    n_trials, n_seeds = search.n_trials, len(search.seeds)
    counts = f"{counted(n_trials, 'trial')} × {counted(n_seeds, 'seed')}"
    return [
        f"search {search.name}: {counts} = {counted(n_trials * n_seeds, 'run')}"
        + f"; {question}" * bool(question),
        f"every run: {_one_line(in_force((*SHARED, *search.overrides, *overrides)))}",
        *(f"{parameter.key}: {parameter.text}" for parameter in search.space),
        f"seeds: {listed(search.seeds)}",
        f"sampler: {search.sampler}, pruner: {search.pruner}",
    ]


def _one_line(overrides: Sequence[str]) -> str:
    """Overrides as one command line, without secrets."""
    return shlex.join(redacted(list(overrides))) or "nothing of its own"


def show_all() -> int:
    """Every study and search of the package, with its number of runs and its question."""
    width = max(map(len, (*names("study"), *names("tune"))))
    for name in names("study"):
        n, question = load_study(name).n_runs, question_of(study_text(name))
        say(f"{name:<{width}}  {n:>4} runs    {question}")
    for name in names("tune"):
        n, question = load_search(name).n_trials, question_of(text_of("tune", name))
        say(f"{name:<{width}}  {n:>4} trials  {question}")
    return 0
