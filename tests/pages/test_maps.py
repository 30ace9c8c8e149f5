"""Maps: alignment from step to step, and what a page is given of them."""

import base64

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.pages.maps import aligned, map_data
from isotrain.results.series import End
from tests.pages.small_run import M, arrays, clouds

END = End(0, False)


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


def decoded(at, kind="<i2"):
    return np.frombuffer(base64.b64decode(at), dtype=kind)


def test_points_labels_and_tokens_survive_the_packing():
    snapshots = {0: arrays(0, clouds())}
    data = map_data(snapshots, END)
    assert data["start"] == "pooled/after"
    for name, cloud in data["clouds"].items():
        (at,) = cloud["at"]
        found = decoded(at["xy"]).reshape(-1, 2) * at["scale"] / 32767
        wanted = snapshots[0][f"map/{name}"]
        np.testing.assert_allclose(found, wanted, atol=at["scale"] / 32767)
    tokens = data["clouds"]["layer_01/tokens"]
    assert (tokens["group"], tokens["at"][0]["n"]) == ("tokens", 2048)
    assert list(decoded(tokens["at"][0]["cluster"], "u1")) == [0, 1, 2] * (M // 3)
    assert data["groups"]["tokens"]["kind"] == "class"
    assert data["groups"]["tokens"]["frequency"][:2] == [900, 1]
    assert data["groups"]["pooled_site"]["index"][2] == 14
    of_scores = map_data({0: arrays(0, clouds(), score=True)}, END)
    assert of_scores["groups"]["cls"]["kind"] == "score"


def test_a_cloud_without_a_map_at_a_step_has_none_there():
    first = {k: v for k, v in arrays(0, clouds()).items() if k != "map/layer_00/cls"}
    data = map_data({0: first, 9: arrays(9, clouds())}, End(9, False))
    at = data["clouds"]["layer_00/cls"]["at"]
    assert at[0] is None
    assert at[1]["n"] == 640
    assert map_data({}, END) == {}
    assert map_data({0: {"spectrum/layer_00/cls": np.ones(3)}}, END) == {}
