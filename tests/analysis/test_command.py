"""`isotrain analyze`: what is rejected in a sentence, what a signal leaves, what a run changed."""

import signal

import pytest

from isotrain.cli import main
from isotrain.runs.files import read_result, write_json
from tests.parts import names


@pytest.fixture
def rejected(tmp_path, capsys, monkeypatch):
    """`rejected("seed=x")`: what a command says that writes nothing."""
    monkeypatch.chdir(tmp_path)

    def reject(*arguments):
        before = {file for file in tmp_path.rglob("*") if file.is_file()}
        assert main(["analyze", *arguments]) == 2
        assert {file for file in tmp_path.rglob("*") if file.is_file()} == before
        message = capsys.readouterr().err
        assert message.startswith("isotrain: this cannot run\n  ")
        assert "Traceback" not in message
        return message

    return reject


def test_help_list_and_keys(capsys):
    for arguments in (["-h"], ["analysis=contextuality", "--help"]):
        assert main(["analyze", *arguments]) == 0
        assert "analysis=contextuality encoder=minilm" in capsys.readouterr().out
    for arguments in ([], ["list"]):
        assert main(["analyze", *arguments]) == 0
        listed = capsys.readouterr().out.splitlines()
        assert [line.split()[0] for line in listed] == names("analysis")
        assert any("How anisotropic is each layer" in line for line in listed)
    assert main(["analyze", "keys", "contextuality"]) == 0
    assert "min_count: 5 # occurrences that a word needs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["keys", "contextualty"], "analysis has no contextualty; did you mean contextuality?"),
        (["keys"], "give one analysis"),
        (["analysis=contextualty"], "analysis=contextualty does not exist; did you mean context"),
        (["sede=1"], "no key sede; did you mean seed?"),
        (["analysis.wrods=[a]"], "no key analysis.wrods; did you mean analysis.words?"),
        (["analysis.max_rows=10"], "analysis.max_rows must be at least 100, got 10"),
        (["analysis.corpus=snil"], "analysis.corpus must be snli, rte, wic,"),
        (["from_run=nowhere"], "from_run=nowhere: no result.json of a training run in nowhere"),
        (["task=rte"], "Could not override 'task'. No match in the defaults list."),
    ],
)
def test_what_cannot_run_is_reported_in_a_sentence(rejected, arguments, message):
    rest = [] if arguments[0] == "keys" or "=" not in arguments[0] else ["source=demo"]
    if rest and not any(text.startswith("encoder=") for text in arguments):
        rest.append("encoder=tiny")
    assert message in rejected(*arguments, *rest)


def test_the_encoder_of_a_run_is_judged_as_that_of_a_command(rejected, tmp_path):
    """A folder may come from anybody."""
    config = {
        "encoder": {"_target_": "shutil.copyfile", "src": "a", "dst": "b"},
        "checkpoint": {"final": True},
    }
    (tmp_path / "run").mkdir()
    write_json(tmp_path / "run" / "result.json", {"status": "finished", "config": config})
    (tmp_path / "run" / "weights.safetensors").touch()
    message = rejected(f"from_run={tmp_path / 'run'}", "source=demo")
    assert "encoder._target_=shutil.copyfile is of a package that a record may not run" in message
    message = rejected(f"from_run={tmp_path / 'run'}", "source=demo", "++encoder.revision=abc")
    assert "that run trained another encoder" in message  # the key is not dropped without a word


SMALL = ["encoder=tiny", "encoder.width=16", "source=demo", "threads=1", "device=cpu"]
CORPUS = ["analysis.corpus=rte", "analysis.splits=[dev]", "analysis.max_rows=600"]
COMMAND = ["analysis=contextuality", *SMALL, *CORPUS, "analysis.words=[the,garden]"]


def test_what_cannot_be_measured_is_reported(tmp_path, capsys, monkeypatch):
    command = [*COMMAND, "analysis.min_count=590", f"output_dir={tmp_path}"]
    assert main(["analyze", *command]) == 1
    message = capsys.readouterr().err
    assert message.startswith("isotrain: the analysis stopped\n  no group has 590 rows")
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(ValueError, match="no group has 590 rows"):
        main(["analyze", *command])


STOPPED = """
import signal
from pathlib import Path
from tests.analysis.toy import Toy

class Stopped(Toy):
    name = "stopped"
    def __init__(self, number, published=()):
        super().__init__()
        self.number, self.published = number, published
    def _measured(self, subject, name):
        if name == "second" and not Path("go on").exists():
            signal.raise_signal(self.number)
        return super()._measured(subject, name)
"""


def test_ctrl_c_stops_and_the_same_command_goes_on(tmp_path, capsys, monkeypatch):
    """The signal comes in the second part, unless there is a file."""
    (tmp_path / "stopped_analysis.py").write_text(STOPPED)
    (tmp_path / "conf" / "analysis").mkdir(parents=True)
    keys = f"_target_: stopped_analysis.Stopped\nnumber: {int(signal.SIGINT)}\npublished: []\n"
    (tmp_path / "conf" / "analysis" / "stopped.yaml").write_text(keys)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    command = [f"--config-dir={tmp_path / 'conf'}", "analysis=stopped", "output_dir=out", *SMALL]
    assert main(["analyze", *command]) == 128 + signal.SIGINT
    seen = capsys.readouterr()
    assert "first, weights as given" in seen.out
    assert not [*tmp_path.rglob("result.json")]
    (tmp_path / "go on").touch()
    assert main(["analyze", *command]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(",")[0] for line in printed if ", weights" in line] == ["second"]
    (folder,) = (tmp_path / "out" / "analysis" / "stopped").iterdir()
    assert read_result(folder)["parts"] == [["as given", "first"], ["as given", "second"]]
