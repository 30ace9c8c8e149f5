"""What a reader of a run's numbers must know: which finding under which record."""

import re

import pytest

from isotrain.results import findings
from isotrain.results.findings import Finding, faults, finding, sentences, warnings
from isotrain.runs.files import read_records, read_result
from tests.pages.small_run import write_run
from tests.stored_texts import same_text

BEST = {"step": 20, "n": 7}
UNLIKE = {"site": "pooled", "gap": 2.5, "spread": 0.25}
BROKEN = {"n": 2, "of": 9, "methods": ["istar", "project"]}
CHANGED = [("a", "wic", "lower", "undecided"), ("b", "stsb", "higher", "untested")]
FEW = {640: ["tokens", "site pooled"], 64: ["x"]}
MIXED = ("mixed_code", "changed_code", "limited_runs", "lost_runs")
SAID = [
    finding("not_finished", status="failed", error="no disk", last_step=39, has_checkpoint=True),
    finding("not_finished", status="running", error=None, last_step=None, has_checkpoint=False),
    finding("degenerate", reason="all of one class"),
    finding("not_finite", clouds=["layer_01/cls", "pooled/after"]),
    finding("not_a_number", keys=["val/loss", "train/loss"], more=3),
    finding("not_a_number", keys=["val/loss"], more=0),
    finding("best_on_dev", **BEST),
    finding("best_on_holdout", n_holdout=1200, **BEST),
    finding("nothing_to_select", select="best"),
    finding("stopped_early", step=40),
    finding("limited", part="9 of the 80 examples of test"),
    finding("lost_input", text="left out of test: 7 (no gold)"),
    finding("few_examples", n=277),
    finding("few_embeddings", small=FEW, share=10, least=3840),
    finding("no_isotropy"),
    finding("unlike", small_batch=None, **UNLIKE),
    finding("unlike", small_batch=1, **UNLIKE),
    finding("runs_missing", n=3, planned=64),
    finding("collapsed", changed=None, **BROKEN),
    finding("collapsed", changed=[], **{**BROKEN, "n": 1, "of": 1}),
    finding("collapsed", changed=CHANGED, **BROKEN),
    finding("one_seed"),
    finding("seeds_failed", counts=[(("wic", "a", "failed (OSError)"), 2)], n_seeds=8),
    finding("seeds_missing", counts=[(("wic", name, "not run"), 1) for name in "ab"], n_seeds=8),
    finding("changed", changes=["seeds 8-9 were added", "method b was added"]),
    *(finding(code, lines=["x: 2 runs", "y: 1 run"]) for code in MIXED),
    finding("mixed_data", task="wic", lines=["x: 2 runs", "y: 1 run"]),
    finding("mixed_drawn", task="wic", lines=["x: 2 runs", "y: 1 run"]),
    finding("no_runs"),
    finding("other_examples", baseline="none"),
    finding("some_collapsed", text="1 of 8 runs of method a collapsed", no_claim=True, mark=" †"),
    finding("failed", n=1, n_seeds=8),
    finding("fewer_pairs", n=5, baseline="none"),
    finding("no_both", both="CI over seeds and examples", why="3 of 8 runs kept no predictions"),
    finding("undefined_resamples", n=12),
    finding("cannot_reach", n=8, m=9, level=".050"),
]


def test_every_finding_as_a_sentence():
    file = findings.TEMPLATES.loader.searchpath[0] + "/findings.j2"
    with open(file, encoding="utf-8") as source:
        macros = set(re.findall(r"macro (\w+)\(", source.read()))
    assert macros - {"best", "counts_of"} == {code for code, _ in SAID}
    same_text("findings.txt", "\n".join(sentences(SAID)) + "\n")


@pytest.fixture
def logged(tmp_path):
    """The record and the logged rows of a run, of many examples and few dimensions."""
    folder = write_run(tmp_path / "run", snapshots=False)
    result = read_result(folder) | {"n_rows": {"dev": 5000}, "width": 64}
    return result, read_records(folder / "metrics.jsonl")


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"select": "best", "n_candidates": 7}, Finding("best_on_dev", {"step": 40, "n": 7})),
        (
            {"select": "holdout", "n_candidates": 7, "n_rows": {"dev": 5000, "holdout": 80}},
            Finding("best_on_holdout", {"n_holdout": 80, "step": 40, "n": 7}),
        ),
        ({"config": {"training": {"select": "best"}}}, finding("nothing_to_select", select="best")),
        ({"n_rows": {"dev": 999}}, finding("few_examples", n=999)),
        ({"stopped_early": True}, finding("stopped_early", step=40)),
        (
            {"limited_evaluation": {"test": {"scored": 9, "of": 80}}},
            finding("limited", part="9 of the 80 examples of test"),
        ),
        (
            {"lost_input": {"test": {"left_out": {"no gold": 7}}}},
            finding("lost_input", text="left out of test: 7 (no gold)"),
        ),
    ],
)
def test_warnings(logged, more, wanted):
    result, rows = logged
    assert warnings(result, rows) == []
    assert warnings(result | more, rows) == [wanted]


def test_values_that_are_not_numbers_are_named(logged):
    result, rows = logged
    place, nan = "layer_02/cls", float("nan")
    broken = {f"isotropy/m{k}/{place}": nan for k in range(7)}
    lost = {"step": 60, f"isotropy/n_rows_not_finite/{place}": 640, **broken}
    of_clouds, of_keys = warnings(result, [*rows, lost])[:2]
    assert of_clouds == finding("not_finite", clouds=[place])
    assert of_keys == finding("not_a_number", keys=sorted(broken)[:5], more=2)
    assert warnings(result, rows[:0]) == [finding("no_isotropy")]


@pytest.mark.parametrize(
    ("gap", "spread", "is_reported"),
    [(0.2, 1.1, False), (2.1, 1.0, True), (0.0, 2.1, True), (0.0, 0.4, True), (None, None, False)],
)
@pytest.mark.parametrize("small_batch", [None, 1])
def test_a_layer_that_is_frozen_by_other_embeddings_than_those_of_dev_is_reported(
    gap, spread, is_reported, small_batch
):
    own = {} if gap is None else {"val/pooled/queue_gap": gap, "val/pooled/queue_spread": spread}
    rows = [{"step": 0, "val/pooled/queue_gap": 9.0, "val/pooled/queue_spread": 9.0}]
    rows.append({"step": 8, "val/accuracy": 0.5, **own})  # the first evaluation does not count
    config = {"isotropy": {"rho": 0.5}}  # a layer of one's own may leave out the defaults
    config |= {"data": {"batch_size": small_batch}} if small_batch else {}
    result = {"steps": 8, "config": config}
    values = {"site": "pooled", "gap": gap, "spread": spread, "small_batch": small_batch}
    found = [one for one in warnings(result, rows) if one.code == "unlike"]
    assert found == [finding("unlike", **values)] * is_reported
    for other in ({"stats": "start"}, {"eval_stats": "refit"}, {"eval_stats": "batch"}):
        layer = config["isotropy"] | other  # its map is of other embeddings than the queue's
        of_other = warnings(result | {"config": config | {"isotropy": layer}}, rows)
        assert all(one.code != "unlike" for one in of_other)


def test_of_several_layers_the_first_is_frozen_on_its_queue():
    row = {f"val/{site}/queue_gap": 9.0 for site in ("pooled", "tokens", "layer_10", "layer_2")}
    result = {"steps": 0, "config": {"isotropy": {"stats": "queue", "eval_stats": "frozen"}}}
    (found,) = [
        one
        for one in warnings(result, [{"step": 0, "val/accuracy": 0.5} | row])
        if one.code == "unlike"
    ]
    assert found.values["site"] == "layer_2"


def test_few_embeddings_for_their_width_are_reported(tmp_path):
    folder = write_run(tmp_path / "run", snapshots=False, sites=("pooled", "tokens"))
    result, rows = read_result(folder), read_records(folder / "metrics.jsonl")
    small = {640: ["first token (CLS)", "mean of tokens", "site pooled", "site tokens"]}
    for width, clouds in ((384, small | {2048: ["tokens"]}), (100, small), (64, None)):
        found = [one for one in warnings(result | {"width": width}, rows) if "few_emb" in one.code]
        values = {"small": clouds, "share": 10, "least": 10 * width}
        assert found == [finding("few_embeddings", **values)] * bool(clouds)


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_a_run_that_stopped_is_reported_with_where_it_goes_on(has_checkpoint):
    rows = [{"step": 0, "val/loss": 0.5}, {"step": 39, "train/loss": 0.5}]
    values = {"status": "failed", "error": "no disk", "has_checkpoint": has_checkpoint}
    result = {"status": "failed", "error": "no disk"}
    assert faults(result, rows, has_checkpoint) == [finding("not_finished", last_step=39, **values)]
    assert faults(result)[0].values["last_step"] is None
    broken = {"status": "finished", "degenerate": True, "degenerate_reason": "one class"}
    assert faults(broken) == [finding("degenerate", reason="one class")]
    assert faults({"status": "finished"}) == []
