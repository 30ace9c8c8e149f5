"""What a study leaves beside its runs: every table and the page, from start to end."""

import csv
import shlex

import pyarrow.parquet as pq
import pytest

from isotrain.cli import main
from isotrain.commands.plans import run_study
from isotrain.reporting.report import write_report
from isotrain.runs.files import write_json
from isotrain.studies.definition import load_study
from isotrain.studies.identity import write_identity
from isotrain.studies.plan import plan_jobs
from tests.studies.scripts import leave

TABLES = ("table.md", "table.csv", "table.tex", "runs.csv", "runs.parquet")


@pytest.fixture
def without_page():
    """Here pages are drawn, unless a test has `no_page`."""


@pytest.fixture
def pages(monkeypatch):
    """What reports would draw: a page takes a second."""
    found = []
    monkeypatch.setattr(
        "isotrain.pages.study_page.write_study_page", lambda folder, result: found.append(result)
    )
    return found


def written(fake, jobs):
    write_report(load_study(str(fake.file)), jobs, fake.folder, fake.overrides)
    return {name: (fake.folder / name).read_bytes() for name in TABLES}


def test_a_report_states_what_it_is_of(fake, capsys):
    overrides = [*fake.overrides, "data.batch_size=4", "logger=[]", "checkpoint.every_steps=3"]
    overrides += ["threads=1", "data.batch_size=8"]  # each is told once, with what counts
    assert run_study(str(fake.file), overrides, 3, fake.backend) == 0
    text = (fake.folder / "table.md").read_text()
    assert "`threads=1 encoder=tiny source=demo data.batch_size=8`" in text
    assert "6 of 6 runs finished" in text
    assert "seeds: 0, 1, 2" in text
    lines = list(csv.DictReader((fake.folder / "table.csv").read_text().splitlines()))
    assert list(dict.fromkeys(line["score"] for line in lines)) == [
        "test/accuracy",
        "val/accuracy",
        "isotropy/isoscore/layer_02/cls",
        "isotropy/isoscore/pooled/before",
        "isotropy/isoscore/pooled/after",
    ]
    assert [line["both_examples"] != "" for line in lines if line["method"] == "mean"] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert lines[-1]["p"] == ""  # the methods have equal isotropy: nothing to test
    per_run = list(csv.DictReader((fake.folder / "runs.csv").read_text().splitlines()))
    assert [(run["method"], run["seed"]) for run in per_run][2:4] == [("none", "2"), ("mean", "0")]
    assert float(per_run[1]["isotropy/partition/layer_01/tokens"]) == pytest.approx(-3.3)
    assert pq.read_table(fake.folder / "runs.parquet").num_rows == 6 * 18
    page = (fake.folder / "study.html").read_text()
    assert f"isotrain run {fake.file}" in page
    assert "data.batch_size=8" in page
    for name in TABLES[:-1]:
        assert str(fake.runs) not in (fake.folder / name).read_text()
    assert "could not be drawn" not in capsys.readouterr().out


def test_a_page_that_cannot_be_drawn_costs_no_table_and_no_old_one_stays(fake, monkeypatch, capsys):
    jobs = fake.jobs()
    leave(jobs[0])

    def explode(folder, result):
        raise RuntimeError("no ink")

    written(fake, jobs)  # of a run that measured nothing
    assert "could not be drawn" not in capsys.readouterr().out
    assert (fake.folder / "study.html").is_file()
    leave(jobs[1])
    monkeypatch.setattr("isotrain.pages.study_page.write_study_page", explode)
    assert b"2 of 6 runs finished" in written(fake, jobs)["table.md"]
    told = capsys.readouterr().out
    assert "could not be drawn (RuntimeError: no ink); the tables are complete" in told
    assert not (fake.folder / "study.html").exists(), "it would be of fewer runs than the tables"


@pytest.mark.parametrize(
    ("kept", "command"),
    [("my/three.yaml", "my/three.yaml"), ("smoke", "smoke --name three")],
)
def test_the_page_names_the_file_that_the_study_is_of(fake, pages, kept, command):
    jobs = fake.jobs()
    leave(jobs[0])
    fake.folder.mkdir(parents=True)
    content = {"file": kept, "name": "three", "overrides": [], "config_dir": None}
    content |= {"history": [], "shared": {}, "runs": {}}
    write_json(fake.folder / "study.json", content)
    written(fake, jobs)
    (page,) = pages
    assert page.command == f"isotrain run {command} output_dir={fake.runs}"
    assert (page.question != "") == (kept == "smoke")


@pytest.mark.usefixtures("pages")
def test_methods_that_were_left_out_count_for_holm_and_are_told(fake):
    """Two methods are run; then one of them is struck out of the study's file."""
    fake.file.write_text(fake.file.read_text().replace("mean: [", "zca: [isotropy=zca], mean: ["))
    jobs = fake.jobs()
    fake.folder.mkdir(parents=True)
    write_identity(load_study(str(fake.file)), jobs, fake.folder, str(fake.file), [])
    for job in jobs:
        leave(job)
    both = csv_lines(written(fake, jobs))
    fake.file.write_text(fake.file.read_text().replace("zca: [isotropy=zca], ", ""))
    later = written(fake, fake.jobs())
    (alone,) = (line for line in csv_lines(later) if line["method"] == "mean")
    (among,) = (line for line in both if line["method"] == "mean")
    assert among["comparisons"] == "1"  # zca equals the baseline on every seed: no p
    assert alone["comparisons"] == "2"
    assert float(alone["p_holm"]) == pytest.approx(min(1, 2 * float(alone["p"])))
    text = " ".join(later["table.md"].decode().split())
    assert "Changed since the first run started" in text[: text.index("## rte")]
    assert "zca" in text


def csv_lines(files):
    return list(csv.DictReader(files["table.csv"].decode().splitlines()))


def test_the_command_of_the_page_plans_the_same_runs(fake, pages, tmp_path, monkeypatch):
    own = tmp_path / "own conf"
    (own / "metric").mkdir(parents=True)
    (own / "metric" / "mine.yaml").write_text(
        "mine: {function: {_target_: mine.f, _partial_: true}}"
    )
    monkeypatch.setenv("ISOTRAIN_ALLOW", "mine")
    given, study = [*fake.overrides, "metric=[isoscore,mine]"], load_study(str(fake.file))
    jobs = plan_jobs(study, given, str(own))
    for job in jobs:
        leave(job)
    fake.folder.mkdir(parents=True)
    write_identity(study, jobs, fake.folder, str(fake.file), given, str(own))
    write_report(study, jobs, fake.folder, given)
    allow, *words = shlex.split(pages[0].command)
    assert allow == "ISOTRAIN_ALLOW=mine"
    calls = []
    monkeypatch.setattr(
        "isotrain.commands.plans.run_study", lambda *given, **more: calls.append((given, more)) or 0
    )
    monkeypatch.setattr("sys.argv", words)
    assert main() == 0
    (((name, overrides, _), more),) = calls
    again = plan_jobs(load_study(name, more["name"]), overrides, more["config_dir"])
    assert [job.folder for job in again] == [job.folder for job in jobs]
