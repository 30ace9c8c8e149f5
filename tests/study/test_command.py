"""`isotrain study ...` as it is typed."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys

import pytest

from isotrain.jobs.locks import is_locked
from isotrain.launch import command, runner
from isotrain.reporting.report import write_report


@pytest.fixture
def called(monkeypatch):
    """The arguments that reach `run_study`."""
    calls = []

    def note(*arguments, config_dir, name):
        assert (config_dir, name) == (None, None)
        calls.append(arguments)
        return 0

    monkeypatch.setattr(command, "run_study", note)
    return calls


@pytest.mark.parametrize(
    "line",
    ["run smoke --jobs 2 a=1 b=2", "run --jobs 2 smoke a=1 b=2", "run smoke a=1 b=2 --jobs=2"],
)
def test_options_stand_anywhere(called, line):
    assert command.main(line.split()) == 0
    assert called == [("smoke", ["a=1", "b=2"], 2)]


def test_one_at_a_time_is_the_default(called):
    assert command.main(["run", "smoke"]) == 0
    assert called == [("smoke", [], 1)]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run smok", "did you mean smoke"),
        ("report smok", "did you mean smoke"),
        ("run smoke sede=1 task=rt", "no key sede"),
        ("run smoke --jobs 0", "at least 1"),
    ],
)
def test_what_cannot_run_is_told_with_exit_code_2(line, said, capsys):
    assert command.main(line.split()) == 2
    told = capsys.readouterr()
    assert told.err.startswith("isotrain: this cannot run\n  ")
    assert said in told.err
    assert told.out == ""


@pytest.mark.parametrize("action", ["run", "report", "status"])
def test_ctrl_c_while_a_study_is_planned_leaves_no_traceback(action, monkeypatch, capsys):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("isotrain.launch.runner.load_study", interrupted)
    monkeypatch.setattr("isotrain.launch.command.load_study", interrupted)
    assert command.main([action, "smoke"]) == 130
    assert capsys.readouterr().err == ""


def test_storage_that_fails_is_one_sentence(fake, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", "table.md")

    monkeypatch.setattr(command, "write_report", full)
    assert command.main(["report", str(fake.file), *fake.overrides]) == 2
    told = capsys.readouterr().err
    assert told == "isotrain: this cannot run\n  table.md: No space left on device\n"


@pytest.mark.parametrize("name", ["RANK", "LOCAL_RANK"])
def test_a_process_of_a_launcher_starts_no_study(called, monkeypatch, capsys, name):
    monkeypatch.setenv(name, "1")
    assert command.main(["run", "smoke"]) == 2
    assert "start it once, without them" in capsys.readouterr().err
    assert called == []


def test_tables_are_written_by_one_call_at_a_time(fake, monkeypatch, capsys, eventually):
    """A report waits for another one, not for runs at work; `run` tabulates inside both locks."""
    held = []

    def noted(*given):
        held.append([is_locked(fake.folder / name) for name in ("lock", "report.lock")])
        return write_report(*given)

    monkeypatch.setattr(runner, "write_report", noted)
    monkeypatch.setattr(command, "write_report", noted)
    monkeypatch.setenv("HOLD", "rte-mean-seed1")
    parent = fake.parent()
    eventually(lambda: len(fake.noted("start")) == 4)
    line = ["report", str(fake.file), *fake.overrides]
    assert command.main(line) == 0  # while a run is at work
    assert "3 of 6 runs finished" in capsys.readouterr().out
    fake.release()
    parent.communicate(timeout=60)
    assert command.run_study(str(fake.file), fake.overrides, 1, fake.command) == 0
    assert held == [[True, True], [True, True]]
    with (fake.folder / "report.lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        told = []

        def let_go(text):
            told.append(text)
            fcntl.flock(other, fcntl.LOCK_UN)

        monkeypatch.setattr(runner, "say", let_go)
        assert command.main(line) == 0
    assert told == ["study three: waiting for another call to write its tables"]


def test_a_report_of_nothing_writes_nothing(fake, capsys):
    assert command.main(["report", str(fake.file), *fake.overrides]) == 2
    assert "no run of study three has finished" in capsys.readouterr().err
    assert not fake.runs.exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("", "required"),
        ("run", "required"),
        ("rum smoke", "invalid choice"),
        ("run smoke --jobs two", "invalid int"),
        ("report smoke --jobs 2", "--jobs is for run and status"),
        ("run smoke --watch", "--watch is for status"),
        ("status", "a study is required"),
        ("list smoke --jobs 2", "--jobs is for run and status"),
        ("list --name a", "--name and --config-dir are for one study"),
        ("list --config-dir /nope", "--name and --config-dir are for one study"),
    ],
)
def test_usage_errors(line, said, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(line.split())
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_file_is_shown_before_it_is_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(
        "# Question: where?\noverrides: [encoder=tiny, source=demo]\n"
        "tasks: {rte: [task=rte], wic: [task=wic]}\narms: {none: [isotropy=none]}\n"
        "grid: {isotropy: [clip, mean], site: [[pooled], [tokens]]}\n"
        "baseline: none\nseeds: [0, 1, 2, 5]\nmargin: 0.02\n"
    )
    line = ["list", "mine.yaml", "data.batch_size=8", "encoder=tiny"]
    assert command.main(line) == 0
    assert capsys.readouterr().out.splitlines() == [
        "study mine: 2 tasks × 5 arms × 4 seeds = 40 runs; where?",
        "every run: threads=1 encoder=tiny source=demo data.batch_size=8",
        "task rte: task=rte",
        "task wic: task=wic",
        "arm none: isotropy=none; the baseline",
        "arm clip_pooled: isotropy=clip 'site=[pooled]'",
        "arm clip_tokens: isotropy=clip 'site=[tokens]'",
        "arm mean_pooled: isotropy=mean 'site=[pooled]'",
        "arm mean_tokens: isotropy=mean 'site=[tokens]'",
        "seeds: 0-2, 5",
        "margin: 0.02",
    ]
    assert command.main([*line, "sede=1"]) == 2  # shown, and that it could not run
    told = capsys.readouterr()
    assert "= 40 runs" in told.out
    assert "no key sede" in told.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


@pytest.mark.parametrize(
    ("line", "there", "absent"),
    [
        ("--help", {"--jobs", "--watch", "for run and status"}, set()),
        ("run --help", {"--jobs"}, {"--watch", "for run and status"}),
        ("status --help", {"--jobs", "--watch"}, {"for run and status"}),
        ("report --help", {"--name"}, {"--jobs", "--watch"}),
        ("list smoke -h", {"--config-dir"}, {"--jobs", "--watch"}),
    ],
)
def test_help_lists_the_studies_and_the_options_that_an_action_takes(line, there, absent, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(line.split())
    assert ended.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "smoke" in text
    assert {part for part in there | absent if part in text} == there


def test_the_parent_process_imports_nothing_heavy():
    heavy = "('torch', 'transformers', 'pytorch_lightning', 'datasets', 'wandb', 'matplotlib')"
    code = (
        "import sys; from isotrain.launch.command import main; from isotrain.study.plan import *\n"
        "from isotrain.study.definition import load_study\n"
        "plan_jobs(load_study('smoke'))\n"
        f"print([m for m in {heavy} if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
