"""`results_csv` and `readme_blocks`: a row a run from records, numbers of a page from the rows."""

import json
import math
import shutil

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr, t

from isotrain.cli import main
from isotrain.runs.files import read_records, read_result
from isotrain.runs.predictions import read_predictions
from isotrain.studies.record import read_plan
from tools.experiment_picture import by_layer
from tools.readme_blocks import filled
from tools.results_csv import results

NONE, MEAN, OTHER = (0.50, 0.52, 0.55), (0.53, 0.54, 0.57), (0.60, 0.50, 0.55)
START = (0.40, 0.44, 0.45)


@pytest.fixture
def folder(tmp_path):
    """An experiment of two tasks; the other one is a tenth higher with `mean` alone."""
    rows = [
        (task, method, seed, scores[seed] + shift, START[seed], 0.1 * (seed + 1) * (1 + shift))
        for task, shifts in (("a", (0, 0, 0)), ("b", (0, 0.1, 0)))
        for method, scores, shift in zip(
            ("none", "mean", "other"), (NONE, MEAN, OTHER), shifts, strict=True
        )
        for seed in range(3)
    ]
    columns = ["task", "method", "seed", "test/accuracy", "before/test/accuracy"]
    table = pd.DataFrame(rows, columns=[*columns, "isotropy/mean_cosine/pooled/after"])
    table["collapsed"] = (table["method"] == "other").astype(int) * (table["seed"] == 1)
    table.to_csv(tmp_path / "results.csv", index=False)
    (tmp_path / "study.yaml").write_text("baseline: none\nmargin: 0.05\n")
    return tmp_path


def half_width(values):
    return t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))


def said(folder, spec):
    text = filled(f"x <!-- {spec} -->old<!-- / --> y", folder)
    return text.removeprefix(f"x <!-- {spec} -->").removesuffix("<!-- / --> y")


SCORE = "score=test/accuracy task=a"


def test_means_and_paired_differences_are_those_of_the_formulas(folder):
    differences = np.subtract(MEAN, NONE)
    low, high = (100 * (differences.mean() + s * half_width(differences)) for s in (-1, 1))
    assert said(folder, f"mean {SCORE} method=none") == (
        f"{100 * np.mean(NONE):.1f} ± {100 * half_width(NONE):.1f}"
    )
    ends = f"[{low:+.1f}, {high:+.1f}]".replace("-", "−")
    assert said(folder, f"diff {SCORE} method=mean") == f"+2.3 {ends}"
    assert said(folder, f"change {SCORE} method=mean") == "+2.3"
    assert said(folder, f"change {SCORE} method=mean of=other") == "−0.3"
    assert said(folder, f"change {SCORE} method=mean seeds=0,2") == "+2.5"
    assert said(folder, f"tasks {SCORE} minus=b method=mean") == "−10.0"  # equal in each seed


def test_values_before_training_gains_ranges_and_counts(folder):
    assert said(folder, f"value {SCORE} method=none step=0") == "43.0"
    assert said(folder, "value score=gain:test/accuracy task=a method=none") == "9.3"
    assert said(folder, f"range {SCORE} method=other") == "50.0 to 60.0"
    assert said(folder, f"count {SCORE} method=other ; collapsed") == "3, 1"
    cosine = "score=isotropy/mean_cosine/pooled/after task=b"
    assert said(folder, f"value {cosine} method=none / method=mean") == ".20 / .22"
    assert said(folder, f"times {cosine} method=other") == "0.5 to 1.5"
    assert said(folder, "times score=1-isotropy/mean_cosine/pooled/after task=b method=none") == (
        "0.9 to 1.1"
    )


def test_p_values_are_corrected_and_equivalence_has_the_margin_of_the_study(folder):
    pairs = [np.subtract(x, NONE) for x in (MEAN, OTHER)]
    p = [2 * t.sf(abs(d.mean()) / (d.std(ddof=1) / math.sqrt(3)), 2) for d in pairs]
    smallest = min(1.0, 2 * min(p))
    assert said(folder, f"holm {SCORE} method=mean methods=mean,other") == (
        f"{smallest:.3f}".removeprefix("0")
    )
    error = pairs[0].std(ddof=1) / math.sqrt(3)
    tost = t.cdf((abs(pairs[0].mean()) - 0.05) / error, 2)
    assert said(folder, f"tost {SCORE} method=mean") == f"{tost:.3f}".removeprefix("0")


def test_a_table_has_a_cell_for_each_row_and_column_and_is_written_once(folder):
    spec = (
        "<!-- table\ncolumns: {A: task=a, B: task=b}\nrows:\n"
        '  "`mean`": change score=test/accuracy method=mean\n  words: ["=one", "="]\n-->'
    )
    page = filled(f"before\n\n{spec}\nold\n<!-- / -->\n\nafter", folder)
    assert page.endswith(
        "\n\n| | A | B |\n| --- | --- | --- |\n| `mean` | +2.3 | +12.3 |\n| words | one | |\n\n"
        "<!-- / -->\n\nafter"
    )
    assert filled(page, folder) == page


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("mean score=test/acuracy task=a method=none", "no column .*nearest are test/accuracy"),
        (f"mean {SCORE} method=nothing", "no runs of nothing in a"),
        (f"average {SCORE} method=none", "begins with one of mean, value, diff"),
        (f"mean {SCORE} method=none seed=1", "no argument seed"),
        (f"mean {SCORE} method=none step=9", "step=0 is the value before training"),
        ("table\ncolumns: {A: task=a}\nrow: {x: =y}\n", "a table has columns and rows"),
    ],
)
def test_what_a_block_cannot_say_is_an_error(folder, spec, message):
    with pytest.raises(ValueError, match=message):
        said(folder, spec)


def test_a_block_without_an_end_is_an_error(folder):
    with pytest.raises(ValueError, match="a block ends with <!-- / -->, one of mean does not"):
        filled(f"x <!-- mean {SCORE} method=none --> y", folder)


def test_a_paired_difference_is_of_the_same_seeds(folder):
    table = pd.read_csv(folder / "results.csv", keep_default_na=False)
    table[(table["method"] != "mean") | (table["seed"] != 2)].to_csv(folder / "fewer.csv")
    with pytest.raises(ValueError, match="needs the same seeds of both"):
        said(folder, f"diff {SCORE} method=mean file=fewer.csv")
    assert said(folder, f"change {SCORE} method=mean seeds=0-1 file=fewer.csv") == "+2.5"
    table.loc[(table["method"] == "mean") & (table["seed"] == 2), "test/accuracy"] = None
    table.to_csv(folder / "undefined.csv")
    with pytest.raises(ValueError, match="no value of test/accuracy for seeds 2"):
        said(folder, f"mean {SCORE} method=mean file=undefined.csv")


@pytest.fixture(scope="module")
def experiment(tmp_path_factory, data_dir):
    """A finished study, the same without training, and their data of two genres."""
    place = tmp_path_factory.mktemp("experiment")
    data = shutil.copytree(data_dir, place / "data")
    for split in ("dev", "test"):
        file = data / "stsb" / f"{split}.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        for k, line in enumerate(lines):
            line["genre"] = ("main-news", "main-captions", "main-captions")[k % 3]
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    study = (
        "overrides: [encoder=tiny, encoder.width=16, task=stsb, task.form=bi, pooling=mean, "
        "data.batch_size=8, report=false, trainer.accelerator=cpu, checkpoint.final=false, "
        "trainer.max_steps={}]\ntasks: {{few: [data.n_train=32], all: []}}\n"
        "methods: {{none: [isotropy=none], mean: [isotropy=frozen_mean]}}\n"
        "baseline: none\nseeds: [4]\n"
    )
    given = ["source=local", f"source.root={data}", f"output_dir={place / 'runs'}"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["isotrain"])
        patch.setattr("isotrain.commands.report._draw", lambda *_: [])
        for name, steps in (("trained", 3), ("untrained", 0)):
            (place / f"{name}.yaml").write_text(study.format(steps))
            assert main(["run", str(place / f"{name}.yaml"), *given]) == 0
    return place, place / "runs" / "studies"


@pytest.mark.slow
def test_results_are_whole_or_said_to_be_partial(experiment, monkeypatch, tmp_path):
    place, studies = experiment
    monkeypatch.delenv("ISOTRAIN_DATA_DIR", raising=False)
    moved = shutil.copytree(place / "runs", tmp_path / "runs") / "studies" / "trained"
    (lost, *_) = (job.folder for job in read_plan(moved).jobs if job.method == "mean")
    (lost / "result.json").unlink()
    with pytest.raises(ValueError, match=r"1 of the 4 of .*, the first is few, mean, seed 4"):
        results(moved)
    assert len(results(moved, is_partial=True)) == 3
    whole = results(studies / "trained")
    assert len(whole) == 4
    pd.testing.assert_frame_equal(
        whole[whole.index != 1].reset_index(drop=True), results(moved, is_partial=True)
    )
    with pytest.raises(ValueError, match=r"has no study.json; give RUNS/studies/NAME"):
        results(place)


@pytest.mark.slow
def test_genres_of_other_data_are_an_error(experiment, monkeypatch):
    place, studies = experiment
    file = place / "data" / "stsb" / "test.jsonl"
    other = shutil.copytree(place / "data", place / "other") / "stsb" / "test.jsonl"
    other.write_text("".join(reversed(file.read_text().splitlines(keepends=True))))
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(place / "other"))
    with pytest.raises(ValueError, match=r"genres must be of the data that the run had, .*test"):
        results(studies / "trained")


@pytest.mark.slow
def test_a_row_has_the_scores_of_its_run_before_and_after(experiment, monkeypatch):
    place, studies = experiment
    monkeypatch.setenv("ISOTRAIN_DATA_DIR", str(place / "data"))
    table = results(studies / "trained", studies / "untrained", also="/tokens$")
    assert list(zip(table["task"], table["method"], strict=True)) == [
        (task, method) for task in ("few", "all") for method in ("none", "mean")
    ]
    records = [read_result(file.parent) for file in place.glob("runs/stsb/*/result.json")]
    genres = np.array([("news", "captions", "captions")[k % 3] for k in range(32)])
    for row in table.to_dict("records"):
        own = {
            r["config"]["trainer"]["max_steps"]: r
            for r in records
            if r["method"] == row["method"]
            and (r["config"]["data"]["n_train"] == 32) == (row["task"] == "few")
        }
        assert row["steps"] == 3
        for key in ("val/spearman", "test/spearman", "test/loss"):
            assert row[key] == own[3]["scores"][key]
            assert row[f"before/{key}"] == own[0]["scores"][key]
        (folder,) = [
            file.parent
            for file in place.glob(f"runs/stsb/{row['method']}-*/result.json")
            if json.loads(file.read_text()) == own[3]
        ]
        first = read_records(folder / "metrics.jsonl", last_step=0)[0]
        for key in ("isotropy/mean_cosine/pooled/after", "isotropy/mean_cosine/layer_01/tokens"):
            assert row[f"before/{key}"] == first[key]
            assert row[key] == own[3]["scores"][key]
        of = read_predictions(folder, "test")
        rho = {
            name: spearmanr(of.label[genres == name], of.prediction[genres == name]).statistic
            for name in ("news", "captions")
        }
        assert row["test/spearman/main-news"] == pytest.approx(rho["news"])
        n = (genres == "news").sum()
        within = (n * rho["news"] + (32 - n) * rho["captions"]) / 32
        assert row["test/spearman/within"] == pytest.approx(within)
        assert "before/test/spearman/within" in row


def test_lines_over_layers_are_means_over_seeds_and_the_baseline_before():
    key = "isotropy/mean_cosine/layer_{}/cls"
    runs = pd.DataFrame({"method": ["none"] * 3 + ["layer"] * 2, "seed": [0, 1, 2, 0, 1]})
    runs[key.format("00")] = [0.1, 0.2, 0.3, 0.5, 0.7]
    runs["before/" + key.format("00")] = [0.9, 0.9, 0.9, 0.8, 0.8]
    runs[key.format("01")] = [0.1, 0.2, 0.3, None, None]
    found = by_layer(runs, key, ["none", "layer", "absent"])
    lines = {(row["line"], row["layer"]): row["mean"] for row in found}
    assert lines == pytest.approx(
        {("untrained", 0): 0.9, ("none", 0): 0.2, ("none", 1): 0.2, ("layer", 0): 0.6}
    )
    half = t.ppf(0.975, 2) * 0.1 / 3**0.5
    assert found[1]["high"] - found[1]["mean"] == pytest.approx(half)
    assert found[-1]["high"] is None, "two seeds have no interval"
    with pytest.raises(ValueError, match="with --also"):
        by_layer(runs, "isotropy/isoscore/layer_{}/cls", ["none"])
