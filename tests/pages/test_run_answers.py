"""Answers to a reader's questions about a run, and what to look at next, as codes and numbers."""

import math

import pytest

from isotrain.pages.run_answers import answers, moved, next_steps
from isotrain.results.findings import finding
from isotrain.results.series import End
from isotrain.results.statistics import Z, wilson
from isotrain.runs.files import read_records, read_result
from isotrain.runs.keys import CurveKey
from tests.pages.small_run import value, write_run

METRIC, PARTITION = "isoscore_corrected", "partition"


@pytest.fixture
def logged(tmp_path):
    """The record and the logged rows of a run."""
    folder = write_run(tmp_path / "run", snapshots=False)
    return read_result(folder), read_records(folder / "metrics.jsonl")


@pytest.mark.parametrize(
    ("more", "step", "kind"), [({}, 40, "more"), ({"selected_step": 20}, 20, "as")]
)
def test_the_answers_are_of_the_selected_weights(logged, more, step, kind):
    result, rows = logged
    found = answers(result | more, rows, {})
    assert found.end == End(step, is_kept=bool(more))
    assert (found.score.dev, found.score.first) == ("val/accuracy", (0, 0.5))
    assert found.score.last == 0.5 + step / 400
    last = found.last_layer
    assert (last.where, last.n) == (CurveKey(METRIC, "layer_02", "tokens"), 2048)
    first, end = (value(at, "layer_02", "tokens") for at in (0, step))
    assert last.pairs == {METRIC: (first, end), PARTITION: (-10 * first, -10 * end)}
    assert last.moved == {kind: [METRIC], "less": [PARTITION]}
    (layer,) = found.layers
    before, after = (value(step, "pooled", side) for side in ("before", "after"))
    assert layer.pairs == {METRIC: (before, after), PARTITION: (-10 * before, -10 * after)}
    assert (layer.where.where, layer.n, found.heads) == ("pooled", 640, [])


def test_without_a_layer_the_head_is_followed_through_training(tmp_path):
    folder = write_run(tmp_path / "run", snapshots=False, layer=False, sites=("layer_1", "tokens"))
    found = answers(read_result(folder), read_records(folder / "metrics.jsonl"), {})
    assert found.layers == []
    assert [one.where.where for one in found.heads] == ["layer_1", "tokens"]
    for one in found.heads:
        first, last = (value(step, one.where.where, "after") for step in (0, 40))
        assert one.pairs[METRIC] == (first, last)
    bare = answers({"monitor": "val/accuracy"}, [], {})
    assert (bare.score, bare.last_layer, bare.layers, bare.heads) == (None, None, [], [])


def test_n_of_a_score_is_what_was_evaluated(logged):
    result, rows = logged[0] | {"scores": {}}, [*logged[1], {"step": 40, "val/n_rows": 64}]
    score = answers(result, rows, {}).score
    assert (score.key, score.value, score.n) == ("val/accuracy", 0.6, 64)
    assert score.ends == wilson(0.6, 64)
    of_scores = [{**row, "val/spearman": row.get("val/accuracy", 0.5)} for row in rows]
    assert answers(result | {"monitor": "val/spearman"}, of_scores, {}).score.ends is None


@pytest.mark.parametrize(
    ("level", "beside"), [(0.5, "above"), (0.56, "not told apart from"), (0.7, "below")]
)
def test_a_score_is_compared_with_what_needs_no_model(logged, level, beside):
    result, rows = logged
    levels = {"test/accuracy": ("majority class", level)}
    score = answers(result, rows, levels).score
    assert (score.key, score.value, score.n) == ("test/accuracy", 0.55, 1400)
    assert (score.level, score.beside) == (("majority class", level), beside)
    found = next_steps(result, rows, levels)
    wanted = finding("not_learned", beside=beside, level="majority class")
    assert (wanted in found) == (beside != "above")


def test_what_to_look_at_next_is_computed_from_the_record(logged):
    result, rows = logged

    def next_of(rows):
        return dict(next_steps(result, rows, {}))

    plain = next_of(rows)
    assert list(plain) == ["changed", "before_quoting"]
    of_change = plain["changed"]
    ends = (value(step, of_change["where"], of_change["view"]) for step in (0, 40))
    assert (of_change["metric"], of_change["pair"]) == (METRIC, tuple(ends))
    worse = [{"step": 60, "val/loss": 2.0, "val/accuracy": 0.5}]
    lowest = (40, 0.7 - 40 / 400)
    assert next_of(rows + worse)["overfits"] == {"lowest": lowest, "last": 2.0}
    better = [{"step": 60, "val/loss": 2.0, "val/accuracy": 0.9}]
    assert "overfits" not in next_of(rows + better)
    cone = [{**row, "isotropy/mean_cosine/layer_02/cls": 0.95} for row in rows if "val/loss" in row]
    assert next_of(cone)["cone"] == {"cosine": 0.95}
    ends = {"isotropy/isoscore_corrected/pooled/before": 0.1}
    ends["isotropy/isoscore_corrected/pooled/after"] = 0.9
    only = [row | ends for row in rows if "val/loss" in row]
    assert next_of(only)["only_the_output"] == {"site": "pooled", "by": [METRIC]}
    gap = [{**row, "val/pooled/queue_gap": 9.0} for row in rows if "val/loss" in row]
    assert "unlike" in next_of(gap)
    everything = [{**row, **ends} for row in cone] + gap + worse
    found = next_steps(result, everything, {"test/accuracy": ("chance", 0.9)})
    assert [one.code for one in found] == ["not_learned", "overfits", "cone", "before_quoting"]


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        ((0.1, 0.1), (0.55, 0.11), {"more": ["mean_cosine"], "as": [METRIC]}),
        ((0.2, 0.1), (0.55, 0.11), {"more": ["mean_cosine"], "less": [METRIC]}),
        ((0.1, 0.6), (0.55, 0.11), {"more": [METRIC, "mean_cosine"]}),
        ((0.1, 0.01), (0.1, -0.5), {"less": [METRIC, "mean_cosine"]}),
        ((0.1, 0.1), (math.nan, 0.1), {"as": [METRIC]}),
        ((0.1, 0.1), (0.2, 0.2), {}),
    ],
)
def test_every_headline_metric_is_in_the_answers_on_isotropy(logged, first, second, wanted):
    """`first` and `second` are the metrics, before and after."""
    result = logged[0] | {"headline": [METRIC, "mean_cosine"]}
    pairs = {METRIC: first, "mean_cosine": second}
    assert moved(pairs) == wanted
    rows = [
        {"step": step}
        | {f"isotropy/{m}/layer_02/tokens": pair[at] for m, pair in pairs.items()}
        | {f"isotropy/{m}/pooled/{s}": pair[k] for m, pair in pairs.items() for k, s in SIDES}
        for at, step in enumerate((0, 40))
    ]
    found = answers(result, rows, {})
    for one in (found.last_layer, *found.layers):
        assert one.pairs == pairs
        assert one.moved == wanted
    only = [one.values["by"] for one in next_steps(result, rows, {}) if one.code[:4] == "only"]
    reached = [m for m, goal in ((METRIC, 1), ("mean_cosine", 0)) if halved(pairs[m], goal)]
    assert only == [[] if len(reached) == 2 else reached] * bool(reached)


SIDES = ((0, "before"), (1, "after"))


def halved(pair, goal):
    return abs(pair[1] - goal) < abs(pair[0] - goal) / 2


@pytest.mark.parametrize("n", [1, 32, 640])
def test_the_ends_of_a_wilson_interval_are_the_accuracies_that_lie_z_errors_away(n):
    for k in {0, 1, n // 2, n}:
        low, high = wilson(k / n, n)
        assert 0 <= low <= k / n <= high <= 1
        assert low < high
        for end in (low, high):
            if 0 < end < 1:
                error = math.sqrt(end * (1 - end) / n)
                assert abs(k / n - end) == pytest.approx(Z * error, rel=1e-6)
    assert pytest.approx(1.95996, abs=1e-5) == Z
    assert (wilson(0.0, n)[0], wilson(1.0, n)[1]) == (0.0, 1.0)
