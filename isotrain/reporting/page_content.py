"""What the page of a study shows, from its runs and rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isotrain.config.compose import plain
from isotrain.pages.run_tables import sources
from isotrain.pages.study_content import (
    Difference,
    Estimate,
    Named,
    OverRows,
    ScoreRow,
    StudyContent,
    StudyRun,
)
from isotrain.reporting.cells import monitor_of, notes_of
from isotrain.reporting.curves import isotropy_curves
from isotrain.reporting.findings import WITHOUT, Findings, cautions
from isotrain.reporting.row_bootstrap import RowInterval
from isotrain.reporting.statistics import Summary
from isotrain.reporting.table import Line
from isotrain.runs.files import read_result
from isotrain.studies.definition import Study
from isotrain.studies.plan import Job
from isotrain.studies.results import Run


def page_content(found: Findings, jobs: Sequence[Job]) -> StudyContent:
    """What the page shows of a study's runs, as plain data; curves are of the headline metrics."""
    study, runs = found.study, found.runs
    first = read_result(runs[0].folder)
    metrics = tuple(first.get("headline") or list(first.get("config", {}).get("metric", {}))[:1])
    of_arms = {job.arm: job for job in reversed(jobs)}
    works = [work for arm in study.arms for work in sources(plain(of_arms[arm].of_pair))]
    return StudyContent(
        name=study.name,
        baseline=study.baseline,
        tasks=tuple(Named(name, tuple(own)) for name, own in study.tasks.items()),
        arms=tuple(Named(name, tuple(own)) for name, own in study.arms.items()),
        seeds=study.seeds,
        rows=_rows(study, found.tables["all"]),
        runs=tuple(map(_run, runs)),
        curves=tuple(isotropy_curves(runs, metrics, study.baseline)),
        rows_without_degenerate=_rows(study, found.tables.get(WITHOUT, ())),
        metrics=metrics,
        facts=tuple(fact for fact in _facts(runs, first) if fact),
        margin=study.margin,
        published_source=study.published_source,
        missing=tuple(map(str, found.gaps)),
        n_planned=found.n_planned,
        warnings=tuple(cautions(found)),
        methods=tuple(dict.fromkeys(works)),
        is_causal=bool(first.get("is_causal")),
    )


def _rows(study: Study, lines: Sequence[Line]) -> tuple[ScoreRow, ...]:
    monitors = {task: monitor_of([li for li in lines if li.task == task]) for task in study.tasks}
    return tuple(
        ScoreRow(
            *(line.task, line.score, line.arm, line.n_rows, _estimate(line.own)),
            difference=_difference(line),
            over_rows=_over_rows(line.rows),
            published=study.published.get(line.task, {}).get(line.arm)
            if line.score == monitors[line.task]
            else None,
            n_failed=line.n_failed,
            best_of=line.best_of,
            notes=tuple(notes_of(line, len(study.seeds))),
            degenerate=line.degenerate,
        )
        for line in lines
    )


def _difference(line: Line) -> Difference | None:
    if (found := line.comparison) is None:
        return None
    tests = (found.p, line.p_holm, found.method, found.p_equivalent, line.n_for_a_point)
    return Difference(_estimate(found.difference), *tests)


def _estimate(found: Summary) -> Estimate:
    return Estimate(found.n, found.mean, found.sd, found.low, found.high)


def _over_rows(found: RowInterval | None) -> OverRows | None:
    if found is None or found.low is None or found.high is None:
        return None
    return OverRows(found.mean, found.low, found.high, found.n_rows, found.n_seeds)


def _run(run: Run) -> StudyRun:
    made = (run.degenerate, run.code, run.finished_at, run.name)
    return StudyRun(run.task, run.arm, run.seed, dict(run.scores), *made)


def _facts(runs: Sequence[Run], first: Mapping[str, object]) -> list[str]:
    """Encoder, code and the day of the last run."""
    codes = dict.fromkeys(run.code for run in runs if run.code)
    newest = max(run.finished_at for run in runs)[:10]
    return [str(first.get("encoder", "")), ", ".join(codes), newest]
