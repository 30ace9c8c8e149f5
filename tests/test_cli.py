"""The program as a user starts it, in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time
from importlib import import_module

import pytest

from isotrain.cli import main, parsers
from isotrain.commands import plans
from tests.processes import ROOT, python


@pytest.mark.slow
def test_a_run_from_another_folder(tmp_path, small):
    found = python(
        "-m",
        "isotrain",
        "train",
        *small,
        "task=rte",
        "isotropy=mean",
        "trainer.max_steps=2",
        "output_dir=my runs",
        cwd=tmp_path,
    )
    assert found.returncode == 0, found.stderr
    (folder,) = tmp_path.glob("my runs/rte/mean-*")
    assert json.loads((folder / "result.json").read_text())["status"] == "finished"
    assert folder.name in found.stdout
    assert "val/accuracy" in found.stdout
    assert "Warning" not in found.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["my runs"]  # nothing of Hydra's


def test_an_unknown_command(capsys):
    assert main(["trian"]) == 2
    found = capsys.readouterr()
    assert "no command 'trian'; did you mean train?" in found.err
    assert found.out == ""


HELP = """
import sys
from isotrain.cli import main
code = main(sys.argv[1:])
heavy = [name for name in ("torch", "hydra", "omegaconf", "rich", "numpy") if name in sys.modules]
print(heavy)
sys.exit(code)
"""


@pytest.mark.parametrize("arguments", [[], ["run", "smoke", "-h"]])
def test_help_lists_real_options_and_imports_nothing(arguments):
    found = python("-c", HELP, *arguments)
    assert found.returncode == 0
    assert "-j N" in found.stdout
    assert found.stdout.splitlines()[-1] == "[]"


def test_every_command_has_a_function_and_an_example():
    for name, own in parsers()[1].items():
        module, _, function = own.get_default("function").partition(":")
        assert callable(getattr(import_module(f"isotrain.{module}"), function)), name
        assert f"  isotrain {name} " in own.format_help()


def test_elsewhere_than_linux_and_macos_one_sentence_says_so():
    code = "import os, sys; sys.modules['fcntl'] = None; from isotrain.cli import main; "
    found = python("-c", code + "os.name = 'nt'; main()", "train")
    assert found.returncode == 1
    assert found.stderr == (
        "isotrain runs on Linux and macOS; on Windows use WSL (the Linux subsystem)\n"
    )


@pytest.mark.parametrize("command", [["run"], ["analyze", "list"]], ids=["rich", "print"])
def test_a_closed_pipe_is_no_error(command):
    """As `isotrain run | head -1` closes it."""
    looker, ours = os.pipe()
    os.close(looker)
    line = [sys.executable, "-m", "isotrain", *command]
    found = subprocess.run(line, stdout=ours, stderr=subprocess.PIPE, cwd=ROOT, check=False)
    os.close(ours)
    assert (found.returncode, found.stderr) == (0, b"")


def test_ctrl_c_is_reported_by_the_exit_code_where_a_library_exits(monkeypatch):
    """Lightning makes an exit with 1 of it; any other exit stays as it is."""
    causes = [KeyboardInterrupt(), ValueError()]

    def exit_as_lightning_does(target, **_):
        try:
            raise causes.pop(0)
        except BaseException:
            sys.exit(3)

    monkeypatch.setattr(plans, "run", exit_as_lightning_does)
    assert main(["run", "x"]) == 128 + signal.SIGINT
    with pytest.raises(SystemExit, match="3"):
        main(["run", "x"])


@pytest.mark.parametrize("command", ["run", "status", "export", "report"])
def test_control_characters_of_a_command_line_are_escaped(command, capsys):
    assert main([command, "no\x1b]0;title\x07where\u202e"]) == 2
    error = capsys.readouterr().err
    assert "no\\x1b]0;title\\x07where\\u202e" in error
    assert not {"\x1b", "\x07", "\u202e"} & set(error)


def test_a_file_of_any_name_is_found(tmp_path, capsys):
    study = (ROOT / "conf" / "studies" / "smoke.yaml").read_text(encoding="utf-8")
    (file := tmp_path / "it's, [x]" / "étude.yaml").parent.mkdir()
    file.write_text(study, encoding="utf-8")
    assert main(["run", str(file), "--list", "encoder=tiny", "source=demo"]) == 0
    assert "4 runs of study étude" in capsys.readouterr().out


@pytest.mark.slow
def test_a_signal_leaves_a_checkpoint(tmp_path, small):
    """The exit code says which signal it was; nothing is printed but a line."""
    command = [sys.executable, "-m", "isotrain", "train", *small, "task=wic", "metric=[]"]
    command += ["trainer.max_epochs=400", "output_dir=runs", "checkpoint.every_steps=5"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    while not list(tmp_path.rglob("resume.ckpt")):
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    text = process.communicate(timeout=60)[0]
    assert process.returncode == 128 + signal.SIGTERM, text
    assert "Traceback" not in text
    (result,) = tmp_path.rglob("result.json")
    assert json.loads(result.read_text())["status"] == "interrupted"


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("isotrain train isotropy=cluster_p", "isotropy=cluster_pca"),
        ("isotrain train task=rte task.fo", "task.form="),
        ("isotrain tr", "train"),
        ("isotrain report sm", "report"),
    ],
)
def test_the_installed_command_completes_keys_of_train_and_names_of_commands(
    monkeypatch, capsys, line, found
):
    monkeypatch.setenv("COMP_LINE", line)
    monkeypatch.setenv("COMP_POINT", str(len(line)))
    assert main(["-sc", "query=bash"]) == 0
    assert found in capsys.readouterr().out.split()
