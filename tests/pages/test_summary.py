"""What a run prints: its scores, losses and isotropy in twenty lines, and every layer of a demo."""

from pathlib import Path

import pytest

from isotrain.pages.summary import MOST_LINES, print_layers, print_scores, print_summary
from tests.stored_texts import same_text

VIEWS = ("cls", "tokens", "mean")
METRICS = ("isoscore_corrected", "mean_cosine", "partition", "outlier_dims_mean_share_1")


def logged(step, value, sites=("layer_1", "pooled"), bare=()):
    """A row of an evaluation; the isotropy of the n-th cloud is `value` + n/100."""
    clouds = [f"layer_{layer:02d}/{view}" for layer in range(3) for view in VIEWS]
    clouds += [f"{site}/{side}" for site in sites for side in ("before", "after")]
    clouds += [f"{site}/after" for site in bare]
    row = {"step": step, "val/accuracy": value}
    for number, cloud in enumerate(clouds):
        for metric in METRICS:
            row[f"isotropy/{metric}/{cloud}"] = value + number / 100
        row[f"isotropy/n_rows/{cloud}"] = 1000 + number
        row[f"isotropy/partition_null_low/{cloud}"] = -0.34
        row[f"isotropy/partition_null_high/{cloud}"] = -0.27
    return row


ROWS = [logged(0, 0.25), {"step": 1, "train/loss": 0.7}, logged(2, 0.5)]
RESULT = {
    "status": "finished",
    "seed": 3,
    "steps": 2,
    "n_rows": {"train": 9000, "dev": 277, "test": 0},
    "monitor": "val/accuracy",
    "scores": {"val/accuracy": 0.5},
    "timings_s": {"total": 12.3},
    "headline": ["isoscore_corrected", "mean_cosine"],
}


LOSSES = [
    *ROWS,
    {"step": 9, "train/simcse": 0.75, "train/task_loss": 1.5},
    {
        "step": 19,
        "train/simcse": 0.5,
        "train/task_loss": 1,
        "train/istar": 1.125,
        "train/simcse/n": 7,
    },
]
SCORES = {"val/accuracy": 0.5, "test/accuracy": 0.25}
CASES = {  # what differs from `RESULT`, and the logged rows
    "isotropy and files": ({}, ROWS),
    "N is what was evaluated, where that is logged": (
        {"scores": SCORES | {"val/n_rows": 64.0}, "n_rows": {"dev": 277, "test": 1400}},
        ROWS,
    ),
    "both were evaluated in part": (
        {"scores": SCORES | {"val/n_rows": 64, "test/n_rows": 128}},
        ROWS,
    ),
    "losses of objectives have their own steps": (
        {"config": {"objective": {"simcse": {}, "istar": {}}}},
        LOSSES,
    ),
    "without objectives there are none": ({}, LOSSES),
    "an evaluation without training has one column": ({"steps": 0, "scores": SCORES}, ROWS[:1]),
}


@pytest.fixture
def printed(capsys, tmp_path):
    """Lines of what a function prints."""

    def of(function, *given):
        function(*given)
        return capsys.readouterr().out.replace(f"{tmp_path}/", "").splitlines()

    return of


def test_what_is_printed_of_a_run(printed, tmp_path):
    folder = tmp_path / "none-0123"
    folder.mkdir()
    for name in ("metrics.jsonl", "result.json", "report.html"):
        (folder / name).touch()
    lines = []
    for title, (more, rows) in CASES.items():
        lines += ["", f"# {title}", *printed(print_summary, RESULT | more, rows, folder)]
    scores = {**SCORES, "val/top-1": 0.25, "test/f1/macro": 0.75, "val/n_rows": 64.0}
    counters = {"val/pooled/rows_borrowed": 2.0, "val/layer_2/age": 3.0}
    lines += ["", "# scores", *printed(print_scores, "run", scores | counters, {"test": 9})]
    layers = {"none": ROWS, "cluster_pca": [logged(0, 0.1), logged(2, 0.75)]}
    lines += ["", "# layers of two methods", *printed(print_layers, layers, RESULT)]
    assert max(len(line) for line in lines if "  " in line) <= 100
    same_text("printed.txt", "".join(f"{' '.join(line.split())}\n" for line in lines))


@pytest.mark.parametrize("n_sites", [0, 3, 4, 13])
@pytest.mark.parametrize("n_objectives", [0, 9])
def test_twenty_lines_whatever_is_measured(printed, n_sites, n_objectives):
    sites = [f"layer_{k}" for k in range(n_sites)]
    names = [f"objective_{k}" for k in range(n_objectives)]
    rows = [logged(step, 0.5, sites) for step in (0, 2)]
    rows.append({"step": 1, **{f"train/{name}": 1.0 for name in names}})
    more = {"select": "best", "selected_step": 2, "n_candidates": 3, "stopped_early": True}
    more |= {"degenerate": True, "degenerate_reason": "one class", "headline": list(METRICS)}
    more |= {"scores": SCORES, "config": {"objective": dict.fromkeys(names)}}
    lines = printed(print_summary, RESULT | more, rows, Path("none-0123"))
    assert len(lines) <= MOST_LINES
    assert max(len(line) for line in lines if "  " in line) <= 100
    clouds = [line for line in lines if line.startswith("layer_")]
    n_left_out = 3 + 2 * n_sites - len(clouds)
    assert len(clouds) >= 1
    if n_left_out:
        assert f"and {n_left_out} more" in [line.strip() for line in lines]
        assert len(lines) == MOST_LINES or len(clouds) == 1, "no line is given away"
