"""What a run lost of its input: one count, in the same words everywhere."""

import pytest

from isotrain.results.findings import finding, warnings
from isotrain.runner import folder_of, run
from isotrain.runs.files import read_records, read_result
from isotrain.runs.lost_input import lost_input, lost_text
from isotrain.types import Example


def test_reasons_of_a_split_and_of_none_are_kept():
    found = lost_input({"dev": [Example([], [], [], None, 0, 0)]}, {"test: at: last": 2, "odd": 1})
    assert found == {"test": {"left_out": {"at: last": 2}}, "": {"left_out": {"odd": 1}}}
    assert lost_text(found) == "left out of test: 2 (at: last); left out: 1 (odd)"
    assert lost_text(lost_input({"dev": []}, {})) == ""


@pytest.mark.parametrize("cached", [True, False])
def test_the_record_the_line_and_the_page_agree(composed, small, tmp_path, capsys, cached):
    """The fixture data hide the gold of RTE's test; 35 tokens hold some pairs of sentences."""
    own = ("task=rte", "metric=[]", "trainer.max_steps=1", "data.n_train=50", "threads=1")
    cfg = composed(*small, *own, "task.max_length=35", f"output_dir={tmp_path}")
    cfg.cache_dir = str(tmp_path / "cache") if cached else None
    for _ in range(2):  # with a cache, the second reads it
        cfg.rerun = True
        run(cfg)
        folder = folder_of(cfg)
        result, printed = read_result(folder), capsys.readouterr().out
        lost = result["lost_input"]
        assert set(lost) == {"train", "dev", "test"}
        assert lost["train"]["examples"] == 50
        n_train, n_dev = (lost[s]["lost"]["cut at task.max_length=35"] for s in ("train", "dev"))
        assert 0 < n_train < 50
        assert 0 < n_dev < 32
        assert lost["test"] == {"left_out": {"no gold": 32}}
        message = (
            f"{n_train} of 50 training examples cut at task.max_length=35; {n_dev} of 32 dev "
            "examples cut at task.max_length=35; left out of test: 32 (no gold)"
        )
        assert f"input: {message}\n" in printed
        found = warnings(result, read_records(folder / "metrics.jsonl"))
        assert finding("lost_input", text=message) in found
    run(composed(*small, *own, f"output_dir={tmp_path}"))
    assert "cut" not in capsys.readouterr().out
