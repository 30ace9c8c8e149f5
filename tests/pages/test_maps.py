"""Maps: alignment from step to step, and what a chart has of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.pages.maps import UNIT, aligned, label_names, map_chart, map_steps, mapped
from isotrain.results.series import End
from isotrain.runs.numbers import number
from tests.pages.small_run import HOSTILE, M, arrays, clouds


def turned(points, angle, mirrored):
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    return points @ turn @ np.diag([1, -1 if mirrored else 1])


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.floats(0, 6.3), st.booleans(), st.integers(2, 30))
def test_a_turned_or_mirrored_map_comes_back(seed, angle, mirrored, m):
    points = np.random.default_rng(seed).normal(size=(m, 2))
    found = aligned({0: points, 5: turned(points, angle, mirrored)})
    np.testing.assert_allclose(found[5], points, atol=1e-9)


def test_no_other_turn_lies_closer_and_distances_stay():
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(2, 20, 2))
    found = aligned({1: before, 2: after})[2]
    others = [turned(after, a, m) for a in np.linspace(0, 2 * np.pi, 400) for m in (False, True)]
    assert np.linalg.norm(found - before) <= min(np.linalg.norm(o - before) for o in others)
    distance = np.linalg.norm(after[0] - after[1])
    assert np.linalg.norm(found[0] - found[1]) == pytest.approx(distance)


def test_a_map_is_aligned_with_the_last_one_there_was():
    points = np.array([[3.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    broken = np.full((3, 2), np.nan)
    found = aligned({0: points, 1: broken, 2: np.zeros((0, 2)), 3: -points[:2]})
    assert list(found) == [0, 3]
    np.testing.assert_allclose(found[3], points[:2], atol=1e-12)


CLASSES = ("different", "same")


def of_chart(spec):
    """Rows by cloud and place of their step; what is known of each embedding by its key."""
    about = spec["layer"][0]["transform"][3]["from"]["data"]["values"]
    rows = {(row["cloud"], row["at"]): row for row in spec["data"]["values"]}
    return rows, {row["key"]: row for row in about}


def test_points_labels_and_tokens_are_in_the_chart():
    snapshots = {step: arrays(step, clouds()) for step in (0, 20)}
    names = mapped(snapshots)
    assert names[0] == "pooled/after"  # what a reader sees first
    assert sorted(names) == sorted("/".join(cloud) for cloud in clouds())
    spec = map_chart(snapshots, names, End(20, True), CLASSES)
    rows, about = of_chart(spec)
    assert len(rows) == 2 * len(names)
    for cloud in names:
        wanted = aligned({step: found[f"map/{cloud}"] for step, found in snapshots.items()})
        reach = max(np.abs(points).max() for points in wanted.values())
        for at, points in enumerate(wanted.values()):
            row = rows[cloud, str(at)]
            found = np.stack([row["x"], row["y"]], axis=1) * reach / UNIT
            np.testing.assert_allclose(found, points, atol=0.5001 * reach / UNIT)
            assert number(reach) in row["caption"]
    tokens = rows["layer_01/tokens", "1"]
    assert tokens["caption"].startswith("kept weights (step 20) · 12 of 2,048 embeddings")
    assert tokens["cluster"] == [0, 1, 2] * (M // 3)
    assert rows["layer_01/cls", "0"]["cluster"] == []
    known = {"label": "same", "token": HOSTILE, "index": 7, "frequency": "1 to 9 times"}
    assert about["tokens/2"] == {"key": "tokens/2", **known, "occurs": "1 times"}
    assert about["pooled_site/3"] == {"key": "pooled_site/3", "label": "different", "index": 14}
    assert [param["value"] for param in spec["params"]] == ["pooled/after", "1", "label"]


def test_a_cloud_without_a_map_at_a_step_has_none_there():
    first = {k: v for k, v in arrays(0, clouds()).items() if k != "map/layer_00/cls"}
    first["map/layer_01/cls"] = np.full((M, 2), np.nan)
    snapshots = {0: first, 9: arrays(9, clouds())}
    rows, _ = of_chart(map_chart(snapshots, mapped(snapshots), End(9, False), CLASSES))
    for cloud in ("layer_00/cls", "layer_01/cls"):
        assert (rows[cloud, "0"]["x"], len(rows[cloud, "1"]["x"])) == ([], M)
        assert rows[cloud, "0"]["caption"].startswith("step 0: no map")
    assert mapped({}) == mapped({0: {"spectrum/layer_00/cls": np.ones(3)}}) == []


@pytest.mark.parametrize(
    ("labels", "classes", "wanted"),
    [
        ([0.0, 1.0], CLASSES, ["different", "same"]),
        ([0.0, 2.0], CLASSES, ["different", "label 2"]),
        ([-1.0, 1.0], CLASSES, ["label -1", "same"]),
        ([0.0, np.nan], CLASSES, ["different", "not known"]),
        ([0.0, np.nan, 1.5], (), ["0.00 to 0.25", "not known", "1.25 to 1.50"]),
        ([0.0, 2.4, 5.0, 6.0], (), ["0.00 to 1.00", "2.00 to 3.00", "5.00 to 6.00"]),
        (list(range(9)), (), ["0.00 to 1.33", "1.33 to 2.67"]),  # more than there are colours
    ],
)
def test_a_label_is_a_class_or_the_range_of_a_score(labels, classes, wanted):
    found = label_names(np.array(labels), classes)
    assert list(dict.fromkeys(found))[: len(wanted)] == wanted
    assert len(found) == len(labels)


def test_three_steps_of_one_cloud_side_by_side():
    snapshots = {step: arrays(step, clouds()) for step in (0, 5, 10, 15, 20)}
    spec = map_steps(snapshots, ["layer_02/cls"], End(20, False), CLASSES)
    caption = [
        row["caption"].partition(" ·")[0]
        for one in spec["hconcat"]
        for row in one["data"]["values"]
    ]
    assert caption == ["step 0", "step 10", "step 20"]
