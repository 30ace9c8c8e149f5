"""What a study leaves beside its runs: every table and the page, from start to end."""

import csv
import shlex

import pytest

from isotrain.commands.report import write_report

TABLES = ("table.md", "table.csv", "table.tex", "runs.csv")


@pytest.fixture
def without_page():
    """Here pages are drawn, unless a test has `pages`."""


@pytest.fixture
def pages(monkeypatch):
    """What reports would draw: a page takes a second."""
    found = []
    monkeypatch.setattr(
        "isotrain.pages.study_page.write_study_page", lambda folder, result, _: found.append(result)
    )
    return found


def tables(folder):
    return {name: (folder / name).read_bytes() for name in TABLES}


def csv_lines(folder, name="table.csv"):
    return list(csv.DictReader((folder / name).read_text().splitlines()))


def test_a_report_states_what_it_is_of(fake, capsys):
    overrides = ["data.batch_size=4", "logger=[]", "checkpoint.every_steps=3", "threads=1"]
    fake.says(seeds="[0, 1, 2]")
    assert fake.run(*overrides, "data.batch_size=8") == 0  # each is reported once, with what counts
    text = (fake.folder / "table.md").read_text()
    assert "`threads=1 encoder=tiny source=demo data.batch_size=8`" in text
    assert "6 of 6 runs finished" in text
    assert "seeds: 0, 1, 2" in text
    lines = csv_lines(fake.folder)
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
    per_run = csv_lines(fake.folder, "runs.csv")
    assert [(run["method"], run["seed"]) for run in per_run] == [
        (method, seed) for seed in "012" for method in ("none", "mean")
    ]
    assert float(per_run[2]["isotropy/partition/layer_01/tokens"]) == pytest.approx(-3.3)
    page = (fake.folder / "study.html").read_text()
    assert f"isotrain run {fake.file}" in page
    assert "data.batch_size=8" in page
    for name in TABLES[:-1]:
        assert str(fake.runs) not in (fake.folder / name).read_text()
    assert "could not be drawn" not in capsys.readouterr().out


def test_a_page_that_cannot_be_drawn_costs_no_table_and_no_old_one_stays(fake, monkeypatch, capsys):
    fake.failing["mean", 1] = ValueError("no")
    assert fake.run() == 1
    assert "could not be drawn" not in capsys.readouterr().out
    assert (fake.folder / "study.html").is_file()

    def explode(folder, result, figures):
        raise RuntimeError("no ink")

    fake.failing.clear()
    monkeypatch.setattr("isotrain.pages.study_page.write_study_page", explode)
    assert fake.run() == 0
    assert b"4 of 4 runs finished" in tables(fake.folder)["table.md"]
    message = capsys.readouterr().out
    assert "could not be drawn (RuntimeError: no ink); the tables are complete" in message
    assert not (fake.folder / "study.html").exists(), "it would be of fewer runs than the tables"


def test_tables_are_the_same_bytes_in_whatever_order_runs_finish(fake, pages, tmp_path):
    assert fake.run() == 0
    first = tables(fake.folder)
    write_report(fake.plan)
    assert tables(fake.folder) == first
    fake.failing = {("none", 0): ValueError("no"), ("mean", 1): ValueError("no")}
    fake.runs = tmp_path / "other"
    assert fake.run() == 1
    fake.failing.clear()
    assert fake.run() == 0
    assert tables(fake.runs / "studies" / "few") == first


THREE = "{none: [isotropy=none], mean: [isotropy=mean], zca: [isotropy=zca]}"


def holm(folder):
    """p, its correction and the number of comparisons of `mean`, on test."""
    (line,) = (
        row
        for row in csv_lines(folder)
        if row["method"] == "mean" and row["score"] == "test/accuracy"
    )
    return float(line["p"]), float(line["p_holm"]), int(line["comparisons"])


@pytest.mark.parametrize("seeds", ["[0, 1]", "[0]"])
def test_methods_that_were_left_out_count_for_holm_and_are_reported(fake, pages, tmp_path, seeds):
    """The reference is a study that still has the method; its seeds may have gone before it."""
    scores = {"val/accuracy": 0.5, "test/accuracy": 0.4}
    fake.changed = {("zca", seed): {"scores": scores} for seed in (0, 1, 2)}
    fake.says(methods=THREE, seeds="[0, 1, 2]")
    assert fake.run() == 0
    among = holm(fake.folder)
    fake.says(methods=THREE, seeds="[1, 2, 3]" if seeds == "[0]" else "[0, 1, 2]")
    assert fake.run("rerun=false") == 0
    fake.says(seeds="[0, 1, 2]")
    assert fake.run() == 0
    alone, n = holm(fake.folder)[:2], holm(fake.folder)[2]
    assert (among[2], n) == (2, 2)
    assert alone[0] == pytest.approx(among[0])
    assert alone[1] == pytest.approx(min(1, 2 * alone[0])) == pytest.approx(among[1])
    text = " ".join((fake.folder / "table.md").read_text().split())
    assert "Changed since the first run started" in text[: text.index("## rte")]
    assert "methods was mean, none, zca, and became mean, none when" in text


def test_a_method_that_is_defined_otherwise_counts_for_holm_and_is_reported(fake, pages):
    fake.says(seeds="[0, 1, 2]")
    assert fake.run() == 0
    assert holm(fake.folder)[2] == 1
    other = "{none: [isotropy=none], mean: [isotropy=mean, method=mean, optimizer.lr=1]}"
    fake.says(methods=other, seeds="[0, 1, 2]")
    assert fake.run() == 0
    assert holm(fake.folder)[2] == 2
    text = " ".join((fake.folder / "table.md").read_text().split())
    assert "methods defined otherwise before: mean (3 runs finished)" in text


def test_the_command_of_the_page_plans_the_same_runs(fake, pages, tmp_path, monkeypatch):
    own = tmp_path / "own conf"
    (own / "metric").mkdir(parents=True)
    (own / "metric" / "mine.yaml").write_text(
        "mine: {function: {_target_: mine.f, _partial_: true}}"
    )
    (tmp_path / "mine.py").write_text("def f(x): return 0.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    given = ["metric=[isoscore,mine]", "--config-dir", str(own), "data.batch_size=8"]
    assert fake.run(*given) == 0
    command, *words = shlex.split(pages[-1].command)
    assert (command, words[0]) == ("isotrain", "run")
    del fake.started[:]
    assert fake.main(*words) == 0
    assert fake.started == [], "every run is the same, and finished"
    assert pages[-1].command == pages[0].command


def test_the_command_of_a_sweep_plans_the_same_runs(fake, pages, capsys):
    given = ["task=rte", "encoder=tiny", "source=demo", "isotropy=none,mean", "seed=0,1"]
    assert fake.main("train", "-m", *given, f"output_dir={fake.runs}") == 0
    (folder,) = fake.runs.glob("sweeps/isotropy-seed-*")
    assert len(fake.started) == 4
    _, *words = shlex.split(pages[0].command)
    assert fake.main(*words) == 0
    assert len(fake.started) == 4
    assert [*fake.runs.glob("sweeps/*")] == [folder]
    assert fake.main("status", str(folder)) == 0
    assert f"sweep {folder.name}: 4 runs, 4 finished\n" in capsys.readouterr().out


def test_a_report_tells_its_files(fake, pages, capsys):
    assert fake.run() == 0
    capsys.readouterr()
    assert fake.main("report", str(fake.folder)) == 0
    message = capsys.readouterr().out
    assert f"{fake.folder}: {', '.join(TABLES)}; " in message


def test_a_report_of_nothing_writes_nothing(fake, capsys):
    assert fake.main("report", str(fake.folder)) == 2
    assert f"there is no {'runs'}/studies" in capsys.readouterr().err
    assert not fake.runs.exists()
