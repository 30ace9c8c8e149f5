"""`isotrain run | status | report | cancel` of a study, as it is typed."""

import json
import re
import signal
from pathlib import Path

import pytest

from isotrain.cli import main
from isotrain.commands import plans as commands
from isotrain.commands.plans import run_study
from isotrain.config.compose import written
from isotrain.config.shipped import names


@pytest.fixture
def called(monkeypatch):
    """The arguments that reach `run_study`."""
    calls = []

    def note(*arguments, config_dir, name):
        assert (config_dir, name) == (None, None)
        calls.append(arguments)
        return 0

    monkeypatch.setattr(commands, "run_study", note)
    return calls


def test_options_may_be_anywhere_and_one_at_a_time_is_the_default(called):
    assert main(["run", "--jobs", "2", "smoke", "a=1", "b=2"]) == 0
    assert main(["run", "smoke"]) == 0
    assert called == [("smoke", ["a=1", "b=2"], 2), ("smoke", [], 1)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run smok", "no study smok; did you mean smoke? (or give the path"),
        ("report no/where", "there is no study no/where"),
        ("run smoke sede=1 task=rt", "no key sede"),
        ("run smoke --jobs 0", "argument --jobs: must be a whole number from 1, got 0"),
        ("report smoke --jobs 2", "unrecognized arguments: --jobs 2"),
        ("status", "required: NAME"),
    ],
)
def test_what_cannot_run_is_told_with_exit_code_2(line, said, capsys):
    assert main(line.split()) == 2
    told = capsys.readouterr()
    assert told.err.startswith("isotrain: this cannot run\n  ")
    assert said in told.err
    assert told.out in ("", "study smoke: checking its 4 runs\n")


def test_ctrl_c_while_a_study_is_planned_leaves_no_traceback(monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "load_study", interrupted)
    assert main(["run", "smoke"]) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run smoke", "start it once, without them"),
        ("train -m task=rte encoder=tiny source=demo seed=0,1", "start it once, and give each run"),
    ],
)
def test_a_process_of_a_launcher_starts_no_study_and_no_sweep(
    called, monkeypatch, capsys, line, said
):
    monkeypatch.setenv("RANK", "1")
    assert main(line.split()) == 2
    assert said in capsys.readouterr().err
    assert called == []


def test_a_report_beside_a_call_at_work_tabulates_what_is_finished(
    fake, monkeypatch, capsys, eventually
):
    monkeypatch.setenv("HOLD", "rte-mean-seed1")
    parent = fake.parent()
    eventually(lambda: len(fake.noted("start")) == 4)
    assert main(["report", str(fake.file), *fake.overrides]) == 0
    assert "3 of 6 runs finished" in capsys.readouterr().out
    fake.release()
    parent.communicate(timeout=60)
    assert main(["report", str(fake.folder)]) == 0, "its folder says what it is"
    assert "6 of 6 runs finished" in capsys.readouterr().out
    assert main(["report", str(fake.folder), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["what"] == "study"
    assert str(fake.folder / "table.tex") in told["files"]
    assert all(Path(file).is_file() for file in told["files"])
    assert main(["status", str(fake.folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["finished"] == 6


def test_two_calls_for_one_study_work_one_after_the_other(fake, monkeypatch, eventually):
    monkeypatch.setenv("HOLD", "rte-none-seed0")
    first = fake.parent()
    eventually(lambda: fake.noted("start"))
    second = fake.parent()
    lines = [second.stdout.readline() for _ in range(2)]
    assert lines[0] == "study three: checking its 6 runs\n"
    assert lines[1] == "study three: waiting for another call to end\n"
    fake.release()
    assert "6 of 6 finished" in first.communicate(timeout=60)[0]
    assert "6 finished before, 0 to do" in second.communicate(timeout=60)[0]
    assert (first.returncode, second.returncode) == (0, 0)
    assert len(fake.noted("start")) == 6


def test_cancel_stops_a_study_with_checkpoints(fake, monkeypatch, capsys, eventually):
    monkeypatch.setenv("HOLD", "rte-none-seed0")
    parent = fake.parent()
    eventually(lambda: fake.noted("start"))
    assert main(["cancel", str(fake.file), *fake.overrides]) == 0
    told = capsys.readouterr().out
    assert f"stopping process {parent.pid}\n" in told
    assert told.endswith("stopped\n")
    parent.communicate(timeout=60)
    assert parent.returncode == 128 + signal.SIGTERM
    assert fake.noted("stop") == ["rte-none-seed0"]
    assert main(["cancel", str(fake.folder)]) == 0
    assert "nothing is running" in capsys.readouterr().out
    assert run_study(str(fake.file), fake.overrides, 3, fake.release().backend) == 0


def test_run_of_a_folder_goes_on_with_its_study_wherever_it_is(fake, monkeypatch, tmp_path):
    calls = []
    monkeypatch.setenv("FAIL", "rte-none-seed0")
    assert run_study(str(fake.file), fake.overrides, 3, fake.backend) == 1
    monkeypatch.setattr(commands, "run_study", lambda *own, **more: calls.append((own, more)) or 0)
    assert main(["run", str(fake.folder), "--jobs", "2"]) == 0
    fake.runs.rename(tmp_path / "moved")
    assert main(["run", str(fake.at(tmp_path / "moved").folder)]) == 0
    more = {"config_dir": None, "name": "three"}
    moved = [*fake.overrides, f"output_dir={written(str(tmp_path / 'moved'))}"]
    assert calls == [
        ((str(fake.file), fake.overrides, 2), more),
        ((str(fake.file), moved, 1), more),
    ]


def test_a_report_of_nothing_writes_nothing(fake, capsys):
    assert main(["report", str(fake.file), *fake.overrides]) == 2
    assert "no run of study three has finished" in capsys.readouterr().err
    assert not fake.runs.exists()


def test_names_tell_studies_from_searches_and_are_all_listed_with_their_questions(capsys):
    assert not {*names("study")} & {*names("tune")}
    assert main(["run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [*names("study"), *names("tune")]
    assert all(re.match(r"\w+ +[1-9]\d* (runs  |trials) +\w+ ", line) for line in lines)
    smoke = next(line for line in lines if line.startswith("smoke "))
    assert re.search(r"  4 runs    does a study run, resume and tabulate here\?", smoke)


def test_a_file_is_shown_before_it_is_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(
        "# Question: where?\noverrides: [encoder=tiny, source=demo]\n"
        "tasks: {rte: [task=rte], wic: [task=wic]}\nmethods: {none: [isotropy=none]}\n"
        "grid: {isotropy: [clip, mean], site: [[pooled], [tokens]]}\n"
        "baseline: none\nseeds: [0, 1, 2, 5]\nmargin: 0.02\n"
    )
    line = ["run", "mine.yaml", "--list", "data.batch_size=8", "encoder=tiny"]
    assert main(line) == 0
    assert capsys.readouterr().out.splitlines() == [
        "study mine: 2 tasks × 5 methods × 4 seeds = 40 runs; where?",
        "every run: threads=1 encoder=tiny source=demo data.batch_size=8",
        "task rte: task=rte",
        "task wic: task=wic",
        "method none: isotropy=none; the baseline",
        "method clip_pooled: isotropy=clip 'site=[pooled]'",
        "method clip_tokens: isotropy=clip 'site=[tokens]'",
        "method mean_pooled: isotropy=mean 'site=[pooled]'",
        "method mean_tokens: isotropy=mean 'site=[tokens]'",
        "seeds: 0–2, 5",
        "margin: 0.02",
    ]
    assert main([*line, "sede=1"]) == 2  # shown, and that it could not run
    assert "no key sede" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]
