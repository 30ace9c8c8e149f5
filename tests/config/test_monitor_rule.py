"""What the monitor is asked to measure, and cannot: told with the rule, what was given, the fix."""

from __future__ import annotations

import pytest

from isotrain.config.compose import compose_run
from tests.judge import all_mistakes

BASE = ("encoder=tiny", "source=demo")


def mistakes(*overrides):
    return all_mistakes(compose_run([*BASE, *overrides]))


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (
            ("metric=[isoscore]", "monitor.headline=[lid]"),
            "monitor.headline=lid is not measured; choose among isoscore, or add it to metric=",
        ),
        (
            ("metric=[isoscore]", "monitor.headline=[isoscore_corrected]"),
            "monitor.headline=isoscore_corrected is not measured; choose among isoscore, or add",
        ),
        (
            ("metric=[partition]", "monitor.headline=[partition_null_low]"),
            "monitor.headline=partition_null_low is not measured; choose among partition, or add",
        ),
        (("monitor.map_rows=-1",), "monitor.map_rows must be at least 0, got -1"),
        (("monitor.every_steps=-2",), "monitor.every_steps must be at least 0, got -2"),
        (("monitor.max_rows=1",), "monitor.max_rows must be at least 2, got 1"),
        (
            ("metric=[self_similarity]", "monitor.views=[cls,mean]"),
            "metric=self_similarity needs groups of tokens; add tokens to monitor.views, or leave",
        ),
        (
            ("metric=[isoscore]", "+metric.isoscore.every=3"),
            "metric.isoscore.every: a metric has one key, function",
        ),
    ],
)
def test_each_mistake_is_told_alone(overrides, told):
    (mistake,) = mistakes(*overrides)
    assert mistake.startswith(told)


@pytest.mark.parametrize(
    "overrides",
    [
        ("metric=[self_similarity]", "monitor.views=[cls]", "site=[tokens]"),  # of the site
        ("metric=[s_inter,intra_sentence_similarity]",),
        ("metric=[partition_null]", "monitor.headline=[partition_null_low]"),
        ("metric=[lid]", "monitor.headline=[lid_value]"),
        ("metric=[lid]", "monitor.headline=[lid]"),
        ("monitor.headline=[]",),
        ("monitor.views=[]",),
        ("monitor.map_rows=2", "monitor.max_rows=2", "monitor.every_steps=1"),
        ("metric=[linear_cka,cosine_drift,isoscore_star]",),
    ],
)
def test_what_a_run_can_measure_is_no_mistake(overrides):
    assert mistakes(*overrides) == []


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("positives", "metric.isoscore takes positives, and a run has embeddings, labels, groups"),
        ("groups: Annotated[Tensor, 'sentences']", "metric=isoscore needs groups of tokens; add"),
        ("reference", None),
        ("*, labels=None", None),
    ],
)
def test_an_own_metric_is_given_what_its_signature_says(tmp_path, monkeypatch, argument, told):
    module = tmp_path.name  # another one each time: sources are read once
    (tmp_path / f"{module}.py").write_text(
        "from typing import Annotated\nfrom torch import Tensor\n"
        f"def mine(x, {argument}):\n    return x.sum()\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ISOTRAIN_ALLOW", module)
    cfg = compose_run([*BASE, "metric=[isoscore]", "monitor.views=[cls]"])
    cfg.metric.isoscore.function = {"_target_": f"{module}.mine", "_partial_": True}
    found = all_mistakes(cfg)
    if told is None:
        assert found == []
    else:
        (mistake,) = found
        assert mistake.startswith(told)
