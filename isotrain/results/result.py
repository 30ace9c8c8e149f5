"""The result of a study: its runs, missing runs, result rows, and cautions."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from isotrain.config.names import sources
from isotrain.console import counted
from isotrain.results.findings import Finding, finding
from isotrain.results.frame import ALL, Row, study_rows
from isotrain.results.runs import Gap, Run, collect
from isotrain.runs.files import read_result
from isotrain.studies.definition import Study
from isotrain.studies.record import Plan, changes, left_out, listed


class Result(NamedTuple):
    """A study with its results so far."""

    study: Study
    runs: Sequence[Run]
    gaps: Sequence[Gap]
    rows: Sequence[Row]  # of all runs, and without collapsed predictions if there are any
    n_planned: int
    changes: Sequence[str] = ()  # of the study since its first run started
    question: str = ""
    overrides: Sequence[str] = ()  # of every run, that change results
    command: str = ""  # that repeats the study
    works: Sequence[str] = ()  # sources of layers and objectives
    headline: Sequence[str] = ()  # isotropy values on the page, most important first
    encoder: str = ""
    is_causal: bool = False  # the encoder attends only to the left
    kind: str = "study"  # study | sweep

    def table(self, task: str, runs: str = ALL) -> dict[str, list[Row]]:
        """The rows of a task by score."""
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            if (row.task, row.runs) == (task, runs):
                found.setdefault(row.score, []).append(row)
        return found

    @property
    def kinds(self) -> list[str]:
        """`all`, and `without collapsed` if there are such runs."""
        return list(dict.fromkeys(row.runs for row in self.rows)) or [ALL]


def find_result(plan: Plan) -> Result:
    """Collect and compare the runs of a plan."""
    study, jobs = plan.study, plan.jobs
    runs, gaps = collect(jobs)
    shown = {task: {run.method for run in runs if run.task == task} for task in study.tasks}
    gone = {task: len(left_out(plan, task, own)) for task, own in shown.items()}
    rows = study_rows(study, runs, gaps, gone)
    tasks = {run.task: run for run in reversed(runs)}  # the first run of each
    methods = {run.method: run for run in reversed(runs)}
    records = [read_result(run.folder) for run in tasks.values()]
    of_methods = {name: read_result(run.folder)["config"] for name, run in methods.items()}
    first = read_result(runs[0].folder) if runs else {}
    works = [
        w for method in study.methods if method in of_methods for w in sources(of_methods[method])
    ]
    return Result(
        *(study, runs, gaps, rows, len(jobs), changes(plan)),
        works=list(dict.fromkeys(works)),
        headline=first.get("headline") or list(first.get("config", {}).get("metric", {}))[:1],
        encoder=", ".join(dict.fromkeys(str(one.get("encoder", "")) for one in reversed(records))),
        is_causal=bool(first.get("is_causal")),
        kind=plan.kind,
    )


def cautions(result: Result, task: str | None = None, brief: bool = False) -> list[Finding]:
    """Cautions for the numbers of a task, or of all tasks: one finding per kind of fault.

    Failed runs, missing runs, mixed versions, and changes of the study.
    """
    found = []
    gaps = [gap for gap in result.gaps if task in (None, gap.task)]
    for has_failed, code in ((True, "seeds_failed"), (False, "seeds_missing")):
        own = Counter((g.task, g.method, g.why) for g in gaps if g.has_failed == has_failed)
        values = {"counts": list(own.items()), "n_seeds": len(result.study.seeds)}
        found += [finding(code, **values)] if own else []
    found += mixtures([run for run in result.runs if task in (None, run.task)], brief)
    return found + ([finding("changed", changes=result.changes)] if result.changes else [])


def mixtures(runs: Sequence[Run], brief: bool = False) -> list[Finding]:
    """Mixed versions and partial inputs, with the runs of each; `brief`: with their number.

    Checked are the code over all runs, the revision of the data set within a task, which examples
    were scored, and what was lost of their texts. A single code version is reported too if it had
    uncommitted changes, as it cannot be restored.

    >>> one = Run("rte", "none", 0, {}, {}, code="0a1b+")
    >>> mixtures([one, one._replace(seed=1)])
    [Finding(code='changed_code', values={'lines': ['0a1b+: rte none 0, 1']})]
    >>> mixtures([one, one._replace(method="mean", code="2c3d")], brief=True)
    [Finding(code='mixed_code', values={'lines': ['0a1b+: 1 run', '2c3d: 1 run']})]
    """
    names = {name for run in runs for name in run.code.split(" > ")}  # several if a run was resumed
    of_code = "mixed_code" if len(names) > 1 else "changed_code"
    parts = [(of_code, "code", runs)] if len(names) > 1 or "+" in "".join(names) else []
    for task in dict.fromkeys(run.task for run in runs):
        of_task = [run for run in runs if run.task == task]
        if len({run.data for run in of_task}) > 1:
            parts.append(("mixed_data", "data", of_task))
    for name in ("limited", "lost"):
        parts.append((f"{name}_runs", name, [run for run in runs if getattr(run, name)]))
    found = []
    for code, name, own in parts:
        values = {"task": own[0].task} if code == "mixed_data" else {}
        versions = sorted({getattr(run, name) for run in own})
        lines = [
            f"{version or 'unknown'}: {counted(len(same), 'run') if brief else _where(same)}"
            for version in versions
            if (same := [run for run in own if getattr(run, name) == version])
        ]
        found += [finding(code, lines=lines, **values)] if lines else []
    return found


def _where(runs: Sequence[Run]) -> str:
    """Description of some runs: task, method and seeds."""
    by_method = groupby(runs, lambda run: (run.task, run.method))
    seeds = ((method, sorted({run.seed for run in own})) for method, own in by_method)
    return "; ".join(f"{' '.join(method)} {listed(own)}" for method, own in seeds)
