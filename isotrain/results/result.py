"""The result of a study: its runs, missing runs, result rows, and cautions."""

from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
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
        by_score: dict[str, list[Row]] = {}
        for row in self.rows:
            if (row.task, row.runs) == (task, runs):
                by_score.setdefault(row.score, []).append(row)
        return by_score

    @property
    def kinds(self) -> list[str]:
        """`all`, and `without collapsed` if there are such runs."""
        return list(dict.fromkeys(row.runs for row in self.rows)) or [ALL]


def find_result(plan: Plan) -> Result:
    """Collect and compare the runs of a plan."""
    study, jobs = plan.study, plan.jobs
    runs, gaps = collect(jobs)
    method_sets = {task: {run.method for run in runs if run.task == task} for task in study.tasks}
    n_left_out = {task: len(left_out(plan, task, methods)) for task, methods in method_sets.items()}
    rows = study_rows(study, runs, gaps, n_left_out)
    first_of_method = {run.method: run for run in reversed(runs)}
    configs = {name: read_result(run.folder)["config"] for name, run in first_of_method.items()}
    first = read_result(runs[0].folder) if runs else {}
    works = [w for method in study.methods if method in configs for w in sources(configs[method])]
    return Result(
        *(study, runs, gaps, rows, len(jobs), changes(plan)),
        works=list(dict.fromkeys(works)),
        headline=first.get("headline") or list(first.get("config", {}).get("metric", {}))[:1],
        encoder=", ".join(dict.fromkeys(run.encoder for run in runs)),
        is_causal=bool(first.get("is_causal")),
        kind=plan.kind,
    )


def cautions(result: Result, task: str | None = None, brief: bool = False) -> list[Finding]:
    """Cautions for the numbers of a task, or of all tasks: one finding per kind of fault.

    Failed runs, missing runs, mixed versions, and changes of the study.
    """
    findings = []
    gaps = [gap for gap in result.gaps if task in (None, gap.task)]
    for has_failed, code in ((True, "seeds_failed"), (False, "seeds_missing")):
        counts = Counter((g.task, g.method, g.why) for g in gaps if g.has_failed == has_failed)
        values = {"counts": list(counts.items()), "n_seeds": len(result.study.seeds)}
        findings += [finding(code, **values)] if counts else []
    findings += mixtures([run for run in result.runs if task in (None, run.task)], brief)
    return findings + ([finding("changed", changes=result.changes)] if result.changes else [])


def mixtures(runs: Sequence[Run], brief: bool = False) -> list[Finding]:
    """Mixed versions and partial inputs, with the runs of each; `brief`: with their number.

    Checked are the code over all runs, the revision of the data set and its drawn splits within a
    task, which examples were scored, and what was lost of their texts. A single code version is
    reported too if it had uncommitted changes, as it cannot be restored.

    >>> one = Run("rte", "none", 0, {}, {}, code="0a1b+")
    >>> mixtures([one, one._replace(seed=1)])
    [Finding(code='changed_code', values={'lines': ['0a1b+: rte none 0, 1']})]
    >>> mixtures([one, one._replace(method="mean", code="2c3d")], brief=True)
    [Finding(code='mixed_code', values={'lines': ['0a1b+: 1 run', '2c3d: 1 run']})]
    """
    names = {name for run in runs for name in run.code.split(" > ")}  # several if a run was resumed
    code_finding = "mixed_code" if len(names) > 1 else "changed_code"
    checks = [(code_finding, "code", runs)] if len(names) > 1 or "+" in "".join(names) else []
    for task in dict.fromkeys(run.task for run in runs):
        task_runs = [run for run in runs if run.task == task]
        for name in ("data", "drawn"):
            if len({getattr(run, name) for run in task_runs}) > 1:
                checks.append((f"mixed_{name}", name, task_runs))
    for name in ("limited", "lost"):
        checks.append((f"{name}_runs", name, [run for run in runs if getattr(run, name)]))
    findings = []
    for code, name, subset in checks:
        values = {"task": subset[0].task} if name in ("data", "drawn") else {}
        versions = sorted({getattr(run, name) for run in subset})
        lines = [
            f"{version or 'unknown'}: {counted(len(group), 'run') if brief else _where(group)}"
            for version in versions
            if (group := [run for run in subset if getattr(run, name) == version])
        ]
        findings += [finding(code, lines=lines, **values)] if lines else []
    return findings


def _where(runs: Sequence[Run]) -> str:
    """Description of some runs: task, method and seeds."""
    key = attrgetter("task", "method")
    by_method = groupby(sorted(runs, key=key), key)
    seeds_of = ((method, sorted({run.seed for run in group})) for method, group in by_method)
    return "; ".join(f"{' '.join(method)} {listed(seeds)}" for method, seeds in seeds_of)
