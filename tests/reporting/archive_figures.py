"""Every figure of the archived main study, computed by today's code, as plain data.

`python tests/reporting/archive_figures.py` writes them anew; `test_archive` compares.
"""

from __future__ import annotations

import json
import math
import tarfile
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from isotrain.reporting.curves import isotropy_curves
from isotrain.reporting.table import Line, table_lines
from isotrain.runs.files import read_result
from isotrain.studies.definition import load_study
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
    lines = table_lines(study, runs)
    curves = isotropy_curves(runs, [METRIC], study.baseline)
    return {
        "runs": {
            f"{run.task} {run.arm} {run.seed}": {key: run.scores[key] for key in run.shown}
            for run in runs
        },
        "scores": {f"{line.task} {line.arm} {line.score}": _of(line) for line in lines},
        "curves": {
            f"{c.task} {c.arm} {c.key.text}": [_known([*p]) for p in c.points] for c in curves
        },
        "ends": {
            f"{c.task} {c.arm} {c.key.text}": _known([*c.end]) for c in curves if c.end is not None
        },
    }


def _of(line: Line) -> dict[str, Any]:
    own, found, rows = line.own, line.comparison, line.rows
    return {
        "examples": line.n_rows,
        "own": _known([*own]),
        "difference": _known([*found.difference]) if found else None,
        "p": found and found.p,
        "method": found and found.method,
        "p_holm": line.p_holm,
        "comparisons": line.n_comparisons,
        "p_equivalent": found and found.p_equivalent,
        "seeds_for_a_point": line.n_for_a_point,
        "over_examples": _known([rows.mean, rows.low, rows.high, rows.n_rows, rows.n_seeds])
        if rows
        else None,
    }


def _known(values: Sequence[float | None]) -> list[float | None]:
    return [None if v is None or math.isnan(v) else v for v in values]


if __name__ == "__main__":
    with TemporaryDirectory() as own:
        STORED.write_text(json.dumps(figures(Path(own)), indent=0) + "\n", encoding="utf-8")
