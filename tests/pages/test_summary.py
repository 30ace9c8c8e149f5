"""What a run prints: its scores, losses and isotropy in twenty lines, and every layer of a demo."""

import pytest

from isotrain.pages.summary import MOST_LINES, print_layers, print_scores, print_summary

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


@pytest.fixture
def printed(capsys, tmp_path):
    """The lines of a summary, of cells that two blanks or more separate."""

    def of(rows, folder=tmp_path / "none-0123", **more):
        print_summary({**RESULT, **more}, rows, folder)
        return capsys.readouterr().out.splitlines()

    return of


def cells(lines, start):
    """The cells of the one line that begins so."""
    (line,) = (line for line in lines if line.startswith(start))
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_scores_isotropy_and_files(capsys, tmp_path):
    folder = tmp_path / "none-0123"
    folder.mkdir()
    for name in ("metrics.jsonl", "result.json", "report.html"):
        (folder / name).touch()
    print_summary(RESULT, ROWS, folder)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].strip() == "none-0123, seed 3"
    assert cells(lines, "val/accuracy") == [
        *("val/accuracy (N = 277)", "0.2500", "0.5000", "0.4415 to 0.5585"),
    ]
    assert cells(lines, "  ") == ["step 0", "step 2", "95 % CI"]
    assert cells(lines, "isotropy on dev") == ["isotropy on dev", "N", *METRICS[:2]]
    both = ["0.3300 → 0.5800"] * 2
    assert cells(lines, "layer_02 mean") == ["layer_02 mean", "1,008", *both]
    assert cells(lines, "pooled after") == ["pooled after", "1,012", *["0.3700 → 0.6200"] * 2]
    names = [line.split("  ")[0] for line in lines if line.startswith(("layer", "pooled"))]
    clouds = [*(f"layer_02 {view}" for view in VIEWS), "layer_1 before", "layer_1 after"]
    assert names == [*clouds, "pooled before", "pooled after"]  # the last layer alone
    files = "report.html (every layer, site and metric), metrics.jsonl, result.json"
    assert lines[-1] == f"{folder}: {files}; 12 s"


def test_n_is_what_was_evaluated_where_that_is_logged(printed):
    scores = {"val/accuracy": 0.5, "test/accuracy": 0.25, "val/n_rows": 64.0}
    lines = printed(ROWS, scores=scores, n_rows={"train": 9, "dev": 277, "test": 1400})
    assert cells(lines, "val/accuracy")[0] == "val/accuracy (N = 64)"
    assert cells(lines, "test/accuracy") == [
        *("test/accuracy (N = 1,400)", "0.2500", "0.2280 to 0.2733"),
    ]
    lines = printed(ROWS, scores={**scores, "test/n_rows": 128.0})
    assert cells(lines, "test/accuracy")[0] == "test/accuracy (N = 128)"


def test_losses_of_objectives_have_their_own_steps(printed):
    rows = [*ROWS]
    for step, value in ((9, 0.75), (19, 0.5)):
        rows.append({"step": step, "train/simcse": value, "train/task_loss": 2 * value})
    rows[-1]["train/istar"] = 0.125
    rows[-1]["train/simcse/n_lost"] = 7.0
    config = {"objective": {"simcse": {}, "istar": {}}}
    lines = printed(rows, config=config)
    assert cells(lines, "train/simcse") == ["train/simcse (steps 9 and 19)", "0.7500", "0.5000"]
    assert cells(lines, "train/task") == ["train/task_loss (steps 9 and 19)", "1.5000", "1.0000"]
    assert cells(lines, "train/istar") == ["train/istar (step 19)", "0.1250"]
    assert not [line for line in printed(rows) if line.startswith("train/")]  # no objective


@pytest.mark.parametrize("n_sites", [0, 3, 4, 13])
@pytest.mark.parametrize("n_objectives", [0, 9])
def test_twenty_lines_whatever_is_measured(printed, n_sites, n_objectives):
    sites = [f"layer_{k}" for k in range(n_sites)]
    names = [f"objective_{k}" for k in range(n_objectives)]
    rows = [logged(step, 0.5, sites) for step in (0, 2)]
    rows.append({"step": 1, **{f"train/{name}": 1.0 for name in names}})
    lines = printed(
        rows,
        scores={"val/accuracy": 0.5, "test/accuracy": 0.5},
        config={"objective": dict.fromkeys(names)},
        **{"select": "best", "selected_step": 2, "n_candidates": 3, "stopped_early": True},
        **{"degenerate": True, "degenerate_reason": "one class"},
        headline=list(METRICS),
    )
    assert len(lines) <= MOST_LINES
    assert max(len(line) for line in lines if "  " in line) <= 100
    clouds = [line for line in lines if line.startswith("layer_")]
    n_left_out = 3 + 2 * n_sites - len(clouds)
    assert len(clouds) >= 1
    if n_left_out:
        assert cells(lines, "and ") == [f"and {n_left_out} more"]
        assert len(lines) == MOST_LINES or len(clouds) == 1, "no line is given away"


ROWS_OF_FOUR = [*ROWS, logged(4, 0.25), logged(2, 0.5)]  # the selected weights once more


def test_an_evaluation_without_training_has_one_column(printed):
    lines = printed(ROWS[:1], steps=0, scores={"val/accuracy": 0.25, "test/accuracy": 0.125})
    assert cells(lines, "  ") == ["step 0", "95 % CI"]
    assert cells(lines, "val/accuracy")[1] == "0.2500"
    assert cells(lines, "test/accuracy")[1] == "0.1250"
    assert cells(lines, "pooled after")[2] == "0.3700"


def test_every_score_of_an_evaluation_and_no_counter(capsys):
    scores = {"val/accuracy": 0.5, "val/top-1": 0.25, "test/f1/macro": 0.75, "val/n_rows": 64.0}
    print_scores(
        "run", {**scores, "val/pooled/rows_borrowed": 2.0, "val/layer_2/age": 3.0}, {"test": 9}
    )
    lines = capsys.readouterr().out.splitlines()
    named = [line.split(" (N = ")[0].strip() for line in lines if "N =" in line]
    assert named == ["test/f1/macro", "val/accuracy", "val/top-1"]


def test_layers_of_two_methods_side_by_side(capsys):
    print_layers({"none": ROWS, "cluster_pca": [logged(0, 0.1), logged(2, 0.75)]}, RESULT)
    lines = capsys.readouterr().out.splitlines()
    assert sum("every layer, end of training" in line for line in lines) == 2  # of the headline
    assert sum("N = 1,000" in line for line in lines) == 2
    rows = [line for line in lines if line.startswith("layer_")]
    assert len(rows) == 2 * 3  # the layers, not the site layer_1
    assert rows[0].split() == [
        "layer_00", "0.5000", "0.7500", "0.5100", "0.7600", "0.5200", "0.7700",
    ]  # fmt: skip
    assert max(map(len, lines)) <= 100
