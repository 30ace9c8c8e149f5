"""What the monitor is asked to measure, and cannot: told with the rule, what was given, the fix."""

from __future__ import annotations

import pytest

from isotrain.config.compose import compose_run
from isotrain.config.monitor_rule import monitor_mistakes
from isotrain.config.rules import mistakes_in

BASE = ("encoder=tiny", "source=demo")


def mistakes(*overrides):
    return mistakes_in(compose_run([*BASE, *overrides]))


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
        (
            ("monitor.views=[cls,tokens,cls]",),
            "monitor.views names a view twice: cls, tokens, cls",
        ),
        (
            ("monitor.map_rows=1",),
            "monitor.map_rows must be at least 2, or 0 for no snapshots, got",
        ),
        (("monitor.map_rows=-1",), "monitor.map_rows must be at least 0, got -1"),
        (("monitor.every_steps=-2",), "monitor.every_steps must be at least 0, got -2"),
        (("monitor.max_rows=1",), "monitor.max_rows must be at least 2, got 1"),
        (
            ("metric=[self_similarity]", "monitor.views=[cls,mean]"),
            "metric=self_similarity needs groups of tokens; add tokens to monitor.views, or leave",
        ),
        (
            ("metric=[isoscore]", "metric.isoscore.needs=clouds"),
            "metric.isoscore.needs must be rows, which isotrain.metrics.isoscore.isoscore takes, "
            "got clouds; write needs: rows",
        ),
        (
            ("metric=[scatter_ratio]", "metric.scatter_ratio.needs=rows"),
            "metric.scatter_ratio.needs must be labels, which ",
        ),
        (
            ("metric=[s_intra]", "~metric.s_intra.groups"),
            "metric.s_intra.groups must be words, which ",
        ),
        (
            ("metric=[s_intra]", "metric.s_intra.groups=sentences"),
            "metric.s_intra.groups must be words, which ",
        ),
        (
            ("metric=[intra_sentence_similarity]", "metric.intra_sentence_similarity.groups=words"),
            "metric.intra_sentence_similarity.groups must be sentences, which ",
        ),
        (
            ("metric=[isoscore]", "+metric.isoscore.groups=words"),
            "metric.isoscore.groups: isotrain.metrics.isoscore.isoscore takes no groups; leave it",
        ),
        (
            ("metric=[isoscore]", "+metric.isoscore.every=3"),
            "metric.isoscore.every: a metric has needs, function, groups",
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
    ("argument", "entry", "told"),
    [
        ("positives", {"needs": "rows"}, "metric.mine takes positives, and a run has rows, labels"),
        ("positives", {"needs": "positives"}, "metric.mine takes positives, and a run has rows"),
        ("groups", {"needs": "groups", "groups": "words"}, None),
        (
            "groups: Annotated[Tensor, 'sentences']",
            {"needs": "groups", "groups": "sentences"},
            None,
        ),
        (
            "groups: Annotated[Tensor, 'sentences']",
            {"needs": "groups", "groups": "words"},
            "metric.",
        ),
        ("reference", {"needs": "labels"}, "metric.mine.needs must be reference, which "),
        ("*, labels=None", {"needs": "labels"}, None),
    ],
)
def test_an_own_metric_is_given_what_its_signature_says(
    tmp_path, monkeypatch, argument, entry, told
):
    module = tmp_path.name  # another one each time: sources are read once
    (tmp_path / f"{module}.py").write_text(f"def mine(x, {argument}):\n    return x.sum()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("ISOTRAIN_ALLOW", module)
    monitor = {"headline": None, "views": ["tokens"], "every_steps": 0, "map_rows": 0}
    node = {**entry, "function": {"_target_": f"{module}.mine", "_partial_": True}}
    found = monitor_mistakes({"monitor": monitor, "metric": {"mine": node}})
    if told is None:
        assert found == []
    else:
        (mistake,) = found
        assert mistake.startswith(told)


@pytest.mark.parametrize("node", [3, None, [], {}, {"function": {}}])
def test_a_metric_of_another_shape_is_left_to_the_rule_of_shapes(node):
    monitor = {"headline": None, "views": ["cls"], "every_steps": 0, "map_rows": 0}
    assert monitor_mistakes({"monitor": monitor, "metric": {"mine": node}}) == []
