"""Every figure of the archived main study, computed by today's code, as plain data.

`python -m tests.reporting.archive_figures` writes them anew, with the tables and the page of the
study in `docs/does_isotropy_help`; `test_archive` compares.
"""

from __future__ import annotations

import json
import math
import shutil
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from isotrain.reporting.curves import isotropy_curves
from isotrain.reporting.frame import Row, study_rows
from isotrain.reporting.report import write_result
from isotrain.reporting.result import Result
from isotrain.reporting.statistics import Summary, compare_paired, summarize
from isotrain.runs.files import read_result
from isotrain.studies.definition import load_study, question_of, study_text
from isotrain.studies.results import Run, run_of

HERE = Path(__file__).parent
ARCHIVE = HERE.parents[1] / "docs" / "does_isotropy_help" / "finished_runs.tar.xz"
STORED = HERE / "archive_figures.json"
TASKS = {"wic": "wic", "stsb": "stsb_bi"}  # a run's folder: the task of the study
METRIC = "isoscore_corrected"


def archived_runs(folder: Path) -> list[Run]:
    """The runs of the archive, unpacked below a folder, by task, method and seed."""
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(folder, filter="data")
    study = load_study("does_isotropy_help")
    runs = []
    for file in folder.glob("*/*/result.json"):
        result, arm = read_result(file.parent), file.parent.name.rpartition("-")[0]
        runs.append(
            run_of(result, file.parent, TASKS[file.parts[-3]], arm, result["config"]["seed"])
        )
    tasks, arms = list(study.tasks), list(study.arms)
    return sorted(runs, key=lambda run: (tasks.index(run.task), arms.index(run.arm), run.seed))


def figures(folder: Path) -> dict[str, Any]:
    """Scores, differences, tests, intervals and curves of the archived runs."""
    study, runs = load_study("does_isotropy_help"), archived_runs(folder)
    rows = [row for row in study_rows(study, runs) if row.baseline]
    curves = isotropy_curves(runs, [METRIC])
    return {
        "runs": {
            f"{run.task} {run.arm} {run.seed}": {key: run.scores[key] for key in run.shown}
            for run in runs
        },
        "scores": {f"{row.task} {row.method} {row.score}": _of(row, runs) for row in rows},
        "curves": {
            f"{c.task} {c.method} {c.key.text}": [
                _known([step, p.mean, p.low, p.high, p.n]) for step, p in c.points.items()
            ]
            for c in curves
        },
        "ends": {
            f"{c.task} {c.method} {c.key.text}": _known([*c.end[:5]])
            for c in curves
            if c.end is not None
        },
    }


def _of(row: Row, runs: Sequence[Run]) -> dict[str, Any]:
    """A row as it is stored; p of the t tests, which a row has not, from its values."""

    def values(method: str) -> list[float]:
        own = [run for run in runs if (run.task, run.arm) == (row.task, method)]
        return [run.scores[row.score] for run in own]

    own = Summary(*row[5:10], summarize(values(row.method)).p)
    is_compared = row.difference is not None
    difference = (row.pairs, row.difference, row.difference_sd)
    difference += (row.difference_low, row.difference_high)
    both = None
    if row.both_low is not None and row.both_high is not None:
        ends = (row.both_low, row.both_high)
        both = _known([sum(ends) / 2, *ends, row.both_examples, row.pairs])
    p_of_t = None
    if is_compared:
        p_of_t = compare_paired(values(row.method), values(row.baseline)).difference.p
    return {
        "examples": row.examples,
        "own": _known([*own]),
        "difference": _known([*difference, p_of_t]) if is_compared else None,
        "p": row.p,
        "method": row.test if is_compared else None,
        "p_holm": row.p_holm,
        "comparisons": row.comparisons or 0,
        "p_equivalent": row.p_tost,
        "seeds_for_a_point": row.seeds_needed,
        "over_examples": both,
    }


def _known(values: Sequence[float | None]) -> list[float | None]:
    return [None if v is None or math.isnan(v) else v for v in values]


def archived_result(folder: Path) -> Result:
    """The main study as its report shows it, from the archive alone."""
    study, runs = load_study("does_isotropy_help"), archived_runs(folder)
    study = replace(study, arms={**study.arms, "none": ("isotropy=none",)})  # as it was run
    first = read_result(runs[0].folder)
    return Result(
        *(study, runs, [], study_rows(study, runs), len(runs)),
        question=question_of(study_text("does_isotropy_help")),
        overrides=[
            *("threads=1", "encoder=minilm", "trainer.val_check_interval=0.5", "source=local")
        ],
        command="isotrain run does_isotropy_help source=local output_dir=runs",
        works=["cluster_pca: Rajaee & Pilehvar 2021", "istar: Rudman & Eickhoff 2024"],
        headline=first["headline"],
        encoder=first["encoder"],
    )


if __name__ == "__main__":
    with TemporaryDirectory() as own:
        STORED.write_text(json.dumps(figures(Path(own)), indent=0) + "\n", encoding="utf-8")
        write_result(archived_result(Path(own)), out := Path(own) / "report")
        for file in ARCHIVE.parent.rglob("*.*"):
            if (new := out / file.relative_to(ARCHIVE.parent)).is_file():
                shutil.copyfile(new, file)
