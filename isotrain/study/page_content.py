"""What the page of a study shows, from its runs and rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from isotrain.config.compose import plain
from isotrain.pages.run_tables import sources
from isotrain.pages.study_content import (
    Difference,
    Estimate,
    Items,
    Named,
    ScoreRow,
    StudyContent,
    StudyRun,
)
from isotrain.results import read_result
from isotrain.study.cells import monitor_of
from isotrain.study.curves import isotropy_curves
from isotrain.study.definition import Study
from isotrain.study.item_bootstrap import ItemInterval
from isotrain.study.mixture import mixtures
from isotrain.study.plan import Job
from isotrain.study.results import Run
from isotrain.study.statistics import Summary
from isotrain.study.table import Row


def page_content(
    study: Study,
    tables: Mapping[str, Sequence[Row]],
    runs: Sequence[Run],
    missing: Sequence[str],
    jobs: Sequence[Job],
) -> StudyContent:
    """What the page shows of a study's runs, as plain data; curves are of the headline metrics.

    Mixed code the page tells from the runs by itself.
    """
    first = read_result(runs[0].folder)
    metrics = tuple(first.get("headline") or list(first.get("config", {}).get("metric", {}))[:1])
    of_arms = {job.arm: job for job in reversed(jobs)}
    mixed = {what: own for what, own in mixtures(runs).items() if not what.startswith("code")}
    works = [work for arm in study.arms for work in sources(plain(of_arms[arm].of_pair))]
    return StudyContent(
        name=study.name,
        baseline=study.baseline,
        tasks=tuple(Named(name, tuple(own)) for name, own in study.tasks.items()),
        arms=tuple(Named(name, tuple(own)) for name, own in study.arms.items()),
        seeds=study.seeds,
        rows=_rows(study, tables["all"]),
        runs=tuple(map(_run, runs)),
        curves=tuple(isotropy_curves(runs, metrics)),
        rows_without_degenerate=_rows(study, tables.get("without degenerate", ())),
        metrics=metrics,
        facts=tuple(fact for fact in _facts(runs, first) if fact),
        margin=study.margin,
        published_source=study.published_source,
        missing=tuple(missing),
        n_planned=len(jobs),
        warnings=tuple(f"Mixed {what}: {' | '.join(own)}" for what, own in mixed.items()),
        methods=tuple(dict.fromkeys(works)),
        is_causal=bool(first.get("is_causal")),
    )


def _rows(study: Study, rows: Sequence[Row]) -> tuple[ScoreRow, ...]:
    monitors = {task: monitor_of([row for row in rows if row.task == task]) for task in study.tasks}
    return tuple(
        ScoreRow(
            *(row.task, row.score, row.arm, row.n_rows, _estimate(row.own)),
            difference=_difference(row),
            items=_items(row.items),
            published=study.published.get(row.task, {}).get(row.arm)
            if row.score == monitors[row.task]
            else None,
        )
        for row in rows
    )


def _difference(row: Row) -> Difference | None:
    if (found := row.comparison) is None:
        return None
    tests = (found.p, row.p_holm, found.method, found.p_equivalent, found.n_for_a_point)
    return Difference(_estimate(found.difference), *tests)


def _estimate(found: Summary) -> Estimate:
    return Estimate(found.n, found.mean, found.sd, found.low, found.high)


def _items(found: ItemInterval | None) -> Items | None:
    if found is None or found.low is None or found.high is None:
        return None
    return Items(found.mean, found.low, found.high, found.n_items, found.n_seeds)


def _run(run: Run) -> StudyRun:
    made = (run.degenerate, run.code, run.finished_at, run.name)
    return StudyRun(run.task, run.arm, run.seed, dict(run.scores), *made)


def _facts(runs: Sequence[Run], first: Mapping[str, object]) -> list[str]:
    """Encoder, code and the day of the last run."""
    codes = dict.fromkeys(run.code for run in runs if run.code)
    newest = max(run.finished_at for run in runs)[:10]
    return [str(first.get("encoder", "")), ", ".join(codes), newest]
