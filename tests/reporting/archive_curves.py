"""Every isotropy curve of the archived main study, computed by today's code, as plain data.

`python -m tests.reporting.archive_curves` writes them anew, with the tables and the page of the
study in `docs/does_isotropy_help`; `test_archive` compares.
"""

import json
import shutil
import tarfile
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from isotrain.reporting.curves import isotropy_curves
from isotrain.reporting.frame import study_rows
from isotrain.reporting.report import write_result
from isotrain.reporting.result import Result
from isotrain.runs.files import read_result
from isotrain.studies.definition import load_study, question_of, study_text
from isotrain.studies.results import Run, run_of

HERE = Path(__file__).parent
ARCHIVE = HERE.parents[1] / "docs" / "does_isotropy_help" / "finished_runs.tar.xz"
STORED = HERE / "archive_curves.json"
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


def curves(folder: Path) -> dict[str, Any]:
    """Mean, 95 % CI and n at each step, and at the end, by task, method and key."""
    return {
        f"{c.task} {c.method} {c.key.text}": {
            "points": [[step, p.mean, p.low, p.high, p.n] for step, p in c.points.items()],
            "end": None if c.end is None else [*c.end[:5]],
        }
        for c in isotropy_curves(archived_runs(folder), [METRIC])
    }


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
        lines = (f"{json.dumps(k)}: {json.dumps(v)}" for k, v in curves(Path(own)).items())
        STORED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
        write_result(archived_result(Path(own)), out := Path(own) / "report")
        for file in ARCHIVE.parent.rglob("*.*"):
            if (new := out / file.relative_to(ARCHIVE.parent)).is_file():
                shutil.copyfile(new, file)
