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
            ("metric=[alignment]",),
            "metric.alignment.needs=positives: a run has rows, labels, groups, reference; leave",
        ),
        (
            ("metric=[isoscore]", "metric.isoscore.needs=clouds"),
            "metric.isoscore.needs=clouds: a run has rows, labels, groups, reference; leave",
        ),
        (
            ("metric=[s_intra]", "~metric.s_intra.groups"),
            "metric.s_intra.groups must be words or sentences where needs=groups, and left out "
            "otherwise; got None",
        ),
        (
            ("metric=[s_intra]", "metric.s_intra.groups=documents"),
            "metric.s_intra.groups must be words or sentences where needs=groups, and left out "
            "otherwise; got 'documents'",
        ),
        (
            ("metric=[isoscore]", "+metric.isoscore.groups=words"),
            "metric.isoscore.groups must be words or sentences where needs=groups, and left out "
            "otherwise; got 'words'",
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
        ("metric=[s_inter]", "metric.s_inter.groups=sentences"),
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


@pytest.mark.parametrize("node", [3, None, [], {}, {"function": {}}])
def test_a_metric_of_another_shape_is_left_to_the_rule_of_shapes(node):
    monitor = {"headline": None, "views": ["cls"], "every_steps": 0, "map_rows": 0}
    assert monitor_mistakes({"monitor": monitor, "metric": {"mine": node}}) == []
