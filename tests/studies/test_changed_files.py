"""A finished run whose files were changed reaches no table, page or export."""

import re
import shutil

import pytest
from isotrain.studies.plan import plan_jobs

from isotrain.pages.report import write_report
from isotrain.reporting.collect_command import write_runs
from isotrain.runs.files import read_result, write_json, write_result
from isotrain.runs.shapes import DamagedError
from isotrain.runs.stored import PlanError, stored
from isotrain.studies.definition import load_study
from isotrain.studies.results import collect
from tests.pages.small_run import write_run

FILES = ("metrics.jsonl", "result.json", "predictions/dev.csv", "predictions/test.csv")


def turn_a_digit(file):
    """Change one digit of a value in the middle of a file."""
    text = file.read_text()
    digits = [m.start() for m in re.finditer(r"(?<=[\d.])\d(?=[,}\n])", text)]
    at = digits[len(digits) // 2]
    file.write_text(f"{text[:at]}{(int(text[at]) + 1) % 10}{text[at + 1 :]}")


@pytest.fixture
def finished(tmp_path, fake):
    """The job of a study whose run has finished with digests."""
    job = plan_jobs(load_study(str(fake.file)), fake.overrides)[0].on_data("demo")
    write_run(job.folder, snapshots=False)
    config = {"config": {**read_result(job.folder)["config"], "seed": 0}, "data": "demo"}
    write_result(job.folder, read_result(job.folder) | config)
    return job


@pytest.mark.parametrize("name", FILES)
def test_a_changed_digit_is_refused_by_name(finished, tmp_path, name):
    folder = finished.folder
    assert read_result(folder)["status"] == "finished"
    assert collect([finished])[0]
    write_runs(tmp_path, tmp_path / "out")
    turn_a_digit(folder / name)
    with pytest.raises(DamagedError, match=f"{name} is damaged .it was changed after the run"):
        read_result(folder)
    runs, (gap,) = collect([finished])
    assert not runs
    assert gap.why.startswith(f"damaged: {name.rpartition('/')[2]} (it was changed")
    with pytest.raises(PlanError, match=f"damaged: {name.rpartition('/')[2]}"):
        write_runs(tmp_path, tmp_path / "out")
    with pytest.raises(DamagedError, match=name):
        write_report(folder)
    assert name in stored(folder).damage


def test_digests_do_not_depend_on_place_or_layout_and_deleted_files_do_not_count(
    finished, tmp_path
):
    folder = shutil.copytree(finished.folder, tmp_path / "elsewhere")
    result = read_result(folder)
    write_json(folder / "result.json", dict(reversed(result.items())))
    (folder / "predictions" / "dev.csv").unlink()
    assert read_result(folder) == result
    del result["sha256"]["metrics.jsonl"]
    write_json(folder / "result.json", result)
    with pytest.raises(DamagedError, match=r"result\.json"):
        read_result(folder)


def test_a_record_without_digests_is_read_as_it_is(finished):
    result = read_result(finished.folder)
    del result["sha256"]
    write_json(finished.folder / "result.json", result)
    turn_a_digit(finished.folder / "metrics.jsonl")
    assert read_result(finished.folder) == result
