"""The result of a study: its runs, missing runs, result rows, and cautions."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from isotrain.config.names import sources
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


def cautions(result: Result, task: str | None = None) -> list[str]:
    """Cautions for the numbers of a task, or of all tasks: one text per kind of fault.

    Failed runs, missing runs, mixed versions, and changes of the study.
    """
    gaps = [gap for gap in result.gaps if task in (None, gap.task)]
    texts = []
    for title, has_failed in (
        ("Failed, so that the numbers are of the other seeds", True),
        ("Not finished", False),
    ):
        counts = Counter((g.task, g.method, g.why) for g in gaps if g.has_failed == has_failed)
        n_seeds = len(result.study.seeds)
        parts = [
            f"{t}, {method}: {n} of {n_seeds} seeds {why}" for (t, method, why), n in counts.items()
        ]
        texts += [f"{title}: {'; '.join(parts)}"] if parts else []
    runs = [run for run in result.runs if task in (None, run.task)]
    texts += [f"{what}: {' | '.join(own)}" for what, own in mixtures(runs).items()]
    if result.changes:
        texts.append(f"Changed since the first run started: {'; '.join(result.changes)}")
    return texts


def mixtures(runs: Sequence[Run]) -> Mapping[str, list[str]]:
    """Mixed versions and partial inputs, with the runs of each; empty if there are none.

    Checked are the code over all runs, the revision of the data set within a task, which examples
    were scored, and what was lost of their texts. A single code version is reported too if it had
    uncommitted changes, as it cannot be restored.

    >>> one = Run("rte", "none", 0, {}, {}, code="0a1b+")
    >>> mixtures([one, one._replace(seed=1)])
    {'Code with changes not committed (+)': ['0a1b+: rte none 0, 1']}
    >>> mixtures([one, one._replace(method="mean", code="2c3d")])
    {'Mixed code (+ = with changes not committed)': ['0a1b+: rte none 0', '2c3d: rte mean 0']}
    """
    found = {}
    code = _versions(runs, lambda run: run.code)
    names = {name for run in runs for name in run.code.split(" > ")}  # several if a run was resumed
    if len(names) > 1:
        found["Mixed code (+ = with changes not committed)"] = code
    elif any("+" in name for name in names):
        found["Code with changes not committed (+)"] = code
    for task in dict.fromkeys(run.task for run in runs):
        data = _versions([run for run in runs if run.task == task], lambda run: run.data)
        if len(data) > 1:
            found[f"Mixed revisions of the data of {task}"] = data
    if limited := [run for run in runs if run.limited]:
        found["Scores of a fixed random subset"] = _versions(limited, lambda run: run.limited)
    if lost := [run for run in runs if run.lost]:
        found["Cut or left out of the input"] = _versions(lost, lambda run: run.lost)
    return found


def _versions(runs: Sequence[Run], version: Callable[[Run], str]) -> list[str]:
    lines = []
    for name in sorted(set(map(version, runs))):
        same = [run for run in runs if version(run) == name]
        lines.append(f"{name or 'unknown'}: {_where(same)}")
    return lines


def _where(runs: Sequence[Run]) -> str:
    """Description of some runs: task, method and seeds."""
    by_method = groupby(runs, lambda run: (run.task, run.method))
    seeds = ((method, sorted({run.seed for run in own})) for method, own in by_method)
    return "; ".join(f"{' '.join(method)} {listed(own)}" for method, own in seeds)
