"""A run of phases ends the same when it is killed in any of them."""

import json

import pytest

from isotrain.model.checkpoint import load_checkpoint
from isotrain.runner import folder_of
from isotrain.training.callbacks.resume import KEY
from tests.stopped_runs import assert_same_end, finished, stopped

STEPS = ("freezing=gradual", "freezing.unit=step")


@pytest.fixture
def overrides(small, tmp_path):
    """24 steps: three phases of eight."""
    return (
        *small,
        *("task=wic", *STEPS, "freezing.every=8", "trainer.max_epochs=2"),
        *("training.layer_decay=0.7", "training.reinit_blocks=1"),
        *("trainer.val_check_interval=6", "checkpoint.every_steps=3", "cache_dir=null"),
        *("metric=[]", f"output_dir={tmp_path / 'runs'}"),
    )


@pytest.mark.campaign
def test_a_run_killed_in_every_phase_ends_the_same(
    composed, overrides, tmp_path, monkeypatch, capsys
):
    whole = composed(*overrides, f"output_dir={tmp_path / 'whole'}")
    end = finished(whole)
    folder = folder_of(whole)
    printed = capsys.readouterr().out
    assert [line.split(":")[0] for line in printed.splitlines() if "from step" in line] == [
        *("from step 0", "from step 8", "from step 16")
    ]
    phases = json.loads((folder / "result.json").read_text())["phases"]
    assert [phase["from_step"] for phase in phases] == [0, 8, 16]
    cfg = composed(*overrides)
    done = 0
    for step in (4, 8, 12, 20):  # within each phase, and right where one begins
        folder = stopped(cfg, monkeypatch, "training_step", step - done)
        assert load_checkpoint(folder / "resume.ckpt")[KEY]["step"] == step
        done = step
    assert_same_end(finished(cfg), end)


def test_adapters_through_the_whole_command(composed, overrides, tmp_path, capsys):
    without = [o for o in overrides if not o.startswith(("freezing", "training.reinit"))]
    without.append("trainer.precision=64-true")
    lora = composed(*without, "peft=lora", "peft.r=2", "peft.dropout=0.1", "trainer.max_steps=8")
    *_, state = finished(lora)
    folder = folder_of(lora)
    assert "block 1, block 2, head" in capsys.readouterr().out
    result = json.loads((folder / "result.json").read_text())
    (phase,) = result["phases"]
    assert result["n_parameters"]["trainable"] == phase["n_parameters"] < 1000
    # The start is that of a run without: the adapters are drawn behind all else.
    start = composed(*without, "trainer.max_epochs=0", f"output_dir={tmp_path / 'start'}")
    _, _, plain = finished(start)
    base = {name.replace(".base_layer", ""): value for name, value in state.items()}
    same = {n for n, value in plain.items() if n.startswith("model.encoder.")}
    assert same
    assert all(base[name].equal(plain[name]) for name in same)
    b = [value for name, value in state.items() if "lora_B" in name]
    assert len(b) == 4
    assert all(value.abs().sum() > 0 for value in b)
