"""What a page says of a run in sentences: what happened, what to look at next, limitations."""

import math

import pytest
from markupsafe import Markup

from isotrain.pages.limitations import faults, warnings
from isotrain.pages.verdict import answers, next_steps
from isotrain.results.numbers import number
from isotrain.results.statistics import Z, wilson
from isotrain.runs.files import read_records, read_result
from tests.pages.small_run import write_run


@pytest.fixture
def logged(tmp_path):
    """The record and the logged rows of a run."""
    folder = write_run(tmp_path / "run", snapshots=False)
    return read_result(folder), read_records(folder / "metrics.jsonl")


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"select": "best", "n_candidates": 7}, "the best of 7 evaluations on dev"),
        (
            {"select": "holdout", "n_candidates": 7, "n_rows": {"dev": 5000, "holdout": 80}},
            "7 evaluations on 80 held-out training examples",
        ),
        (
            {"config": {"training": {"select": "best"}}},
            "No evaluation had a score",
        ),
        ({"n_rows": {"dev": 32}}, "Dev has 32 examples"),
        ({"stopped_early": True}, "stopped early"),
        ({"limited_evaluation": {"test": {"scored": 9, "of": 80}}}, "9 of the 80 examples of test"),
        ({"lost_input": {"test": {"left_out": {"no gold": 7}}}}, "left out of test: 7 (no gold)"),
    ],
)
def test_warnings(logged, more, wanted):
    result, rows = logged
    result |= {"n_rows": {"dev": 5000}, "width": 64}
    assert not any(wanted in text for text in warnings(result, rows))
    assert any(wanted in text for text in warnings(result | more, rows))


@pytest.mark.parametrize(
    ("gap", "spread", "is_reported"),
    [(0.2, 1.1, False), (2.1, 1.0, True), (0.0, 2.1, True), (0.0, 0.4, True), (None, None, False)],
)
def test_a_layer_that_is_frozen_by_other_rows_than_those_of_dev_is_reported(
    gap, spread, is_reported
):
    own = {} if gap is None else {"val/pooled/queue_gap": gap, "val/pooled/queue_spread": spread}
    rows = [{"step": 0, "val/pooled/queue_gap": 9.0, "val/pooled/queue_spread": 9.0}]
    rows.append({"step": 8, "val/accuracy": 0.5, **own})  # the first evaluation does not count
    found = [text for text in warnings({"steps": 8}, rows) if "The layer at pooled" in text]
    assert len(found) == is_reported
    assert not is_reported or (f"{gap:g}" in found[0] and "refit" in found[0])
    one = {"steps": 8, "config": {"data": {"batch_size": 1}}}
    message = [
        text
        for text in warnings(one, rows)
        if "Its map does not fit them: data.batch_size=1 fills" in text
    ]
    assert len(message) == is_reported, "the size of the batch comes first"


def test_n_of_a_score_is_what_was_evaluated(logged):
    result, rows = logged[0] | {"scores": {}}, [*logged[1], {"step": 40, "val/n_rows": 64}]
    low, high = (100 * end for end in wilson(0.6, 64))
    wanted = f"(95 % CI {low:.1f} to {high:.1f}, N = 64)"
    assert wanted in answers(result, rows, {})[0].text
    of_scores = [{**row, "val/spearman": row.get("val/accuracy", 0.5)} for row in rows]
    found = answers(result | {"monitor": "val/spearman"}, of_scores, {})[0].text
    assert "CI" not in found


@pytest.mark.parametrize(
    ("level", "wanted"), [(0.5, "above"), (0.56, "not told apart from"), (0.7, "below")]
)
def test_a_score_is_compared_with_what_needs_no_model(logged, level, wanted):
    result, rows = logged
    levels = {"test/accuracy": ("majority class", level)}
    assert (
        f", {wanted} the majority class ({100 * level:.1f})."
        in answers(result, rows, levels)[0].text
    )
    message = next_steps(result, rows, levels)[0]
    assert (f"The score is {wanted} the majority class: see" in message) == (wanted != "above")


def test_what_to_look_at_next_is_computed_from_the_record(logged):
    result, rows = logged

    def next_of(rows):
        return " ".join(next_steps(result, rows, {}))

    plain = next_of(rows)
    assert "changed most, from" in plain
    assert plain.count("One run with one seed") == 1
    assert "overfits" not in plain
    worse = [{"step": 60, "val/loss": 2.0, "val/accuracy": 0.5}]
    assert "Loss on dev rises from 0.600 (step 40) to 2" in next_of(rows + worse)
    better = [{"step": 60, "val/loss": 2.0, "val/accuracy": 0.9}]
    assert "overfits" not in next_of(rows + better)
    cone = [{**row, "isotropy/mean_cosine/layer_02/cls": 0.95} for row in rows if "val/loss" in row]
    assert "nearly one direction (mean cosine 0.950)" in next_of(cone)
    ends = {"isotropy/isoscore_corrected/pooled/before": 0.1}
    ends["isotropy/isoscore_corrected/pooled/after"] = 0.9
    only = [row | ends for row in rows if "val/loss" in row]
    by = " by <code>isoscore_corrected</code>"
    assert f"makes its output isotropic{by}, and its input has not" in next_of(only)
    gap = [{**row, "val/pooled/queue_gap": 9.0} for row in rows if "val/loss" in row]
    assert "frozen on embeddings unlike those of dev" in next_of(gap)
    everything = [{**row, **ends} for row in cone] + gap + worse
    assert len(next_steps(result, everything, {})) == 4


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [
        (
            (0.1, 0.1),
            (0.55, 0.11),
            "the measures disagree: more isotropic by mean_cosine, about as ",
        ),
        ((0.2, 0.1), (0.55, 0.11), "more isotropic by mean_cosine, less isotropic by isoscore_c"),
        (
            (0.1, 0.6),
            (0.55, 0.11),
            "more isotropic: isoscore_corrected 0.100 → 0.600, mean_cosine 0",
        ),
        (
            (0.1, 0.01),
            (0.1, -0.5),
            "less isotropic: isoscore_corrected 0.100 → 0.0100, mean_cosine 0",
        ),
    ],
)
def test_every_headline_metric_is_in_the_answers_on_isotropy(logged, first, second, wanted):
    result, _ = logged
    result |= {"headline": ["isoscore_corrected", "mean_cosine"]}

    def cloud(place, values):
        return {f"isotropy/{m}/{place}": v for m, v in zip(result["headline"], values, strict=True)}

    sides = cloud("pooled/before", (first[0], second[0])) | cloud(
        "pooled/after", (first[1], second[1])
    )
    rows = [
        {"step": step, **sides, **cloud("layer_02/tokens", (first[at], second[at]))}
        for at, step in enumerate((0, 40))
    ]
    texts = {a.question: Markup(a.text).striptags() for a in answers(result, rows, {})}
    assert wanted in texts["What does the isotropy layer change?"]
    assert wanted.partition(":")[0] in texts["Are its embeddings more isotropic?"].lower()
    for question in ("What does the isotropy layer change?", "Are its embeddings more isotropic?"):
        for ends in (first, second):
            assert " → ".join(map(number, ends)) in texts[question]
    message = " ".join(text.striptags() for text in next_steps(result, rows, {}))
    by = "" if first[1] > 0.5 else " by mean_cosine"
    assert (f"makes its output isotropic{by}, and" in message) == (abs(second[1]) < 0.2)


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


def test_few_embeddings_for_their_width_are_reported(tmp_path):
    folder = write_run(tmp_path / "run", snapshots=False, sites=("pooled", "tokens"))
    result, rows = read_result(folder), read_records(folder / "metrics.jsonl")

    def message(**more):
        found = [text for text in warnings(result | more, rows) if "few embeddings" in text]
        return found[0] if found else ""

    small = "N = 640 (first token (CLS), mean of tokens, site pooled, site tokens)"
    assert f"(N < 10·D = 3,840): {small}; N = 2,048 (tokens)." in message()
    assert f"(N < 10·D = 1,000): {small}. IsoScore" in message(width=100)
    assert message(width=64) == ""


@pytest.mark.parametrize(
    ("status", "has_checkpoint", "wanted"),
    [
        ("failed", True, "The same command resumes from the last checkpoint."),
        ("interrupted", False, "The same command starts it from the beginning."),
        ("running", True, "If it is no longer running, the same command resumes from"),
    ],
)
def test_a_run_that_stopped_says_where_and_how_it_goes_on(status, has_checkpoint, wanted):
    rows = [{"step": 0, "val/loss": 0.5}, {"step": 39, "train/loss": 0.5}]
    (text,) = faults({"status": status}, rows, has_checkpoint)
    assert text.startswith(f"The run is not finished ({status}): the last record is of step 39")
    assert wanted in text
    assert "nothing was logged" in faults({"status": status})[0]
