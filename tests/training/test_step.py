"""What a step runs, and one of a user's own: the teacher of docs/extending.md."""

import re
from copy import deepcopy

import pytest
import torch

from tests.processes import ROOT

ANCHOR = ("task=rte", "objective=[anchor]", "objective.anchor.reads=[before]", "metric=[]")


@pytest.fixture
def teacher(tmp_path, monkeypatch):
    """Overrides that choose the example of the page."""
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    (code,) = re.findall(
        r"^```python\n# mine/teacher.py\n(.*?)^```", page, re.DOTALL | re.MULTILINE
    )
    (tmp_path / "slow_teacher.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ISOTRAIN_ALLOW", "slow_teacher")
    return ("step._target_=slow_teacher.Teacher", "+step.momentum=0.5")


def fit(experiment):
    experiment.trainer.fit(experiment.module, datamodule=experiment.data)
    return experiment


def test_a_teacher_follows_the_encoder_and_is_stored(built, teacher):
    experiment = built(*ANCHOR, *teacher, "optimizer.lr=1e-2", "trainer.max_steps=3")
    module = experiment.module
    expected, after = deepcopy(module.step.encoder), module.optimizer_step

    def step_and_follow(*arguments, **options):
        after(*arguments, **options)
        for its, of_model in zip(
            expected.parameters(), module.model.encoder.parameters(), strict=True
        ):
            its.data = (its + of_model.detach()) / 2

    module.optimizer_step = step_and_follow
    fit(experiment)
    for (name, its), one in zip(
        module.step.encoder.named_parameters(), expected.parameters(), strict=True
    ):
        torch.testing.assert_close(its, one)
        assert not its.requires_grad
        assert torch.equal(module.state_dict()[f"step.encoder.{name}"], its)
    encoder = dict(module.model.encoder.named_parameters())
    assert any(not torch.equal(x, encoder[n]) for n, x in module.step.encoder.named_parameters())
