"""Lightning callbacks in a run, by yaml: shipped ones, and one of a user's package."""

import json

import pytest
import torch
from safetensors.torch import load_file

from isotrain.config.compose import compose_run
from isotrain.runner import run
from isotrain.training.module import FineTuning
from tests.parts import Counted


@pytest.fixture
def mine(tmp_path):
    folder = tmp_path / "mine/callbacks"
    folder.mkdir(parents=True)
    (folder / "counted.yaml").write_text(
        "counted:\n  _target_: tests.parts.Counted\n  key: isotropy/mean_cosine/layer_02/mean\n"
    )
    Counted.seen = []
    return str(folder.parent)


def test_callbacks_of_ones_own_and_shipped_ones_see_isotropy_values(small, tmp_path, mine):
    watched = "isotropy/mean_cosine/layer_02/mean"
    words = (
        *("callbacks=[counted,early_stopping,model_checkpoint]", "metric=[mean_cosine]"),
        *(f"callbacks.early_stopping.monitor={watched}", "callbacks.early_stopping.patience=2"),
        *("callbacks.early_stopping.min_delta=9", f"callbacks.model_checkpoint.monitor={watched}"),
        *("trainer.max_epochs=9", "trainer.val_check_interval=3"),
    )
    cfg = compose_run([*small, "task=wic", f"output_dir={tmp_path}", *words], mine)
    run(cfg)
    (path,) = tmp_path.rglob("result.json")
    result = json.loads(path.read_text())
    assert result["stopped_early"]
    assert Counted.seen[0][0] == 0
    assert len([step for step, _ in Counted.seen if step]) >= 3
    lines = (path.parent / "metrics.jsonl").read_text().splitlines()
    records = map(json.loads, lines)
    curve = {row["step"]: row[watched] for row in records if watched in row}
    assert {step: pytest.approx(value) for step, value in Counted.seen} == curve
    (saved,) = (path.parent / "checkpoints").glob("*.ckpt")
    state = torch.load(saved, weights_only=True)
    best = max((value, -step) for step, value in Counted.seen if step)
    assert state["global_step"] == -best[1]
    module = FineTuning.from_run(path.parent)
    assert not module.training
    weights = load_file(path.parent / "weights.safetensors")
    own = module.model.state_dict()
    assert {f"model.{name}" for name, x in own.items() if isinstance(x, torch.Tensor)} >= {
        name for name in weights if name.startswith("model.encoder")
    }
    assert all(torch.equal(weights[f"model.{n}"], x) for n, x in module.model.named_parameters())
