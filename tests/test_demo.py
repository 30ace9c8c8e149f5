"""`isotrain demo`: both methods, the fallback where MiniLM cannot be had, and its mistakes."""

from pathlib import Path

import pytest
import torch

from isotrain.commands import demo as demo_module
from isotrain.commands.demo import demo, demo_mistakes
from isotrain.encoders import huggingface
from isotrain.runs.record import CannotRunError, StorageError


@pytest.mark.slow
def test_without_the_extra_and_a_hub_the_demo_uses_tiny_and_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(huggingface, "packaged_folder", lambda: None)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    threads = torch.get_num_threads()
    demo(
        [
            f"output_dir={tmp_path}",
            "trainer.max_steps=2",
            "trainer.accelerator=cpu",
            "monitor.max_rows=64",
            "data.eval_batch_size=250",
            "data.n_dev=250",
            "data.n_test=250",
        ]
    )
    assert torch.get_num_threads() == threads
    printed = capsys.readouterr().out
    assert printed.count("using encoder=tiny") == 1
    for method in ("none", "frozen_zca"):
        assert f"isotropy={method}: val/spearman" in printed
        (folder,) = tmp_path.glob(f"stsb/{method}-*")
        (line,) = (line for line in printed.splitlines() if line.startswith(f"isotropy={method}:"))
        curves = Path(line.partition("; page: ")[2])
        assert curves.parent == folder
        assert curves.suffix in (".html",)
        assert curves.is_file()
    tables = printed.partition("every layer, end of training")[2]
    assert max(map(len, tables.partition("STS-B (generated")[0].splitlines())) <= 100
    for layer in ("layer_00", "layer_01", "layer_02"):
        assert layer in printed


@pytest.fixture
def no_run(monkeypatch):
    """Exit codes of `isotrain demo` without any run: the demo itself does as it is told."""

    def call(*arguments, then=lambda _: None):
        monkeypatch.setattr(demo_module, "demo", then)
        return demo_module.main(arguments)

    return call


def test_the_mistakes_of_the_demo_are_those_of_train(no_run, capsys):
    for wrong, told in (
        (("sede=1", "pooling=spanz"), ("no key sede; did you mean seed?", "pooling=spanz does")),
        (("data.batch_size=0", "threads=0"), ("data.batch_size must be at", "threads must")),
    ):
        assert no_run(*wrong, then=pytest.fail) == 2
        out, error = capsys.readouterr()
        assert out == ""
        assert error.startswith("isotrain: this cannot run\n  ")
        for said in told:
            assert error.count(said) == 1, "once, not once for each method"


@pytest.mark.parametrize(
    "override",
    ["isotropy=mean", "isotropy.epsilon=0.2", "task=rte", "task=text", "source=hub"],
)
def test_what_makes_the_demo_is_refused_with_another_way(override):
    (mistake,) = demo_mistakes([override])
    assert mistake == f"{override} is fixed in the demo; use isotrain train"


def test_an_encoder_of_the_users_is_looked_for_and_never_replaced(tmp_path):
    missing = f"{tmp_path}/none"
    with pytest.raises(CannotRunError, match="neither on disk nor reachable"):
        demo(["encoder=huggingface", f"encoder.name={missing}", f"output_dir={tmp_path / 'runs'}"])


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (CannotRunError("one\ntwo"), 2, "isotrain: this cannot run\n  one\n  two\n"),
        (StorageError("full"), 1, "isotrain: the run stopped\n  full\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_failures_are_told_as_those_of_train(no_run, capsys, error, code, said):
    def fail(_):
        raise error

    assert no_run(then=fail) == code
    assert capsys.readouterr().err == said
