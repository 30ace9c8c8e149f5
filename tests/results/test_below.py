"""`isotrain report DIR`: runs of studies, sweeps and single runs, in one table."""

import csv
import json
import shutil

from filelock import FileLock

from isotrain.cli import main
from isotrain.results.below import find_runs, write_runs
from isotrain.results.groups import FinishedRun, differing, group_table
from isotrain.results.runs import Run
from isotrain.runs.files import write_json


def leave(folder, method="none", seed=0, accuracy=0.5, **more):
    """A finished run as it stands on disk."""
    config = {"seed": seed, "task": {"form": "cross", "seed": seed}, "output_dir": str(folder)}
    config |= more.pop("config", {})
    config["task"]["_target_"] = f"isotrain.tasks.{folder.parent.name}.Task"
    folder.mkdir(parents=True)
    content = {
        **{"status": "finished", "monitor": "val/accuracy", "n_rows": {"dev": 9, "test": 0}},
        **{"scores": {"val/accuracy": accuracy}, "method": method, "seed": seed, "config": config},
        **{"data": "demo", "finished_at": "2026-01-01"},
    }
    write_json(folder / "result.json", {**content, **more})


def test_parts_go_by_the_name_that_was_chosen(tmp_path, capsys):
    target = "isotrain.transforms.cluster_pca.ClusterPCA"
    for method, n in (("clip", 3), ("mean", 0)):
        layer = {"isotropy": {"_target_": target, "n_components": n}, "names": {"isotropy": method}}
        leave(tmp_path / "wic" / f"{method}-0", method=method, config=layer)
    write_runs(tmp_path, tmp_path / "out")
    message = [line[-1] for line in cells(capsys.readouterr().out)]
    assert message == [
        f"isotropy={a}, isotropy.n_components={n}" for a, n in (("clip", 3), ("mean", 0))
    ]


def cells(text):
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in lines][2:]


def test_what_differs_makes_groups_and_seeds_do_not(tmp_path, capsys):
    runs = tmp_path / "runs"
    for seed in range(3):
        leave(runs / "wic" / f"none-{seed}", seed=seed, accuracy=0.6 + 0.01 * seed)
        bi = {"task": {"form": "bi", "seed": seed}}
        leave(runs / "sweep" / "wic" / f"none-b{seed}", seed=seed, accuracy=0.7, config=bi)
    leave(runs / "wic" / "zca-0", method="zca", accuracy=0.65)
    leave(runs / "wic" / "zca-1", method="zca", accuracy=0.45, steps=0)
    assert main(["report", str(runs)]) == 0
    out = runs / "collected"
    text = (out / "groups.md").read_text()
    assert text in capsys.readouterr().out
    assert cells(text) == [
        ["wic", "none", "accuracy on dev", "9", "3", "70.0", "", "task.form=bi"],
        ["wic", "none", "accuracy on dev", "9", "3", "61.0 ± 2.5", "", "task.form=cross"],
        ["wic", "zca", "accuracy on dev", "9", "1", "65.0", "", "task.form=cross"],
        ["wic", "zca (untrained)", "accuracy on dev", "9", "1", "45.0", "", "task.form=cross"],
    ]
    assert main(["report", str(runs), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert (len(content["runs"]), content["notes"]) == (8, [])
    assert content["runs"][0]["scores"]["val/accuracy"] == 0.6
    lines = list(csv.DictReader((out / "runs.csv").read_text().splitlines()))
    assert len(lines) == 8
    assert [line["task.form"] for line in lines[:2]] == ["cross", "bi"]
    assert "output_dir" not in lines[0]
    assert "task.seed" not in lines[0]


def test_trials_of_searches_are_no_results(tmp_path, capsys):
    for seed in range(2):
        leave(tmp_path / "wic" / f"none-{seed}", seed=seed, accuracy=0.6)
        for lr in ("1", "2"):
            of_a_search = {"config": {"lr": lr}, "search": "few"}
            folder = tmp_path / "wic" / f"few-{lr}{seed}"
            leave(folder, "few", seed, accuracy=0.9, **of_a_search)
    pruned = {"config": {"lr": "3"}, "search": "few", "status": "interrupted"}
    leave(tmp_path / "wic" / "few-30", "few", **pruned)
    assert main(["report", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "# Runs: 6 finished, 4 of them trials of searches" in text
    results, _, trials = text.partition("## Trials of searches, chosen by this score: no results")
    assert "| dev score " in results
    assert cells(results) == [["wic", "none", "accuracy on dev", "9", "2", "60.0", "", ""]]
    assert "### wic, few: 3 configurations tried" in trials
    assert [(line[1], line[4], line[-1]) for line in cells(trials)] == [
        *(("few", "2", "lr=1"), ("few", "2", "lr=2"))
    ]
    lines = list(csv.DictReader((tmp_path / "collected" / "runs.csv").read_text().splitlines()))
    assert [line["search"] for line in lines] == ["few"] * 4 + [""] * 2


def test_a_dev_score_that_selected_its_weights_says_so(tmp_path, capsys):
    for seed in (0, 1):
        leave(tmp_path / "wic" / f"none-{seed}", seed=seed, select="best", n_candidates=12)
    write_runs(tmp_path, tmp_path / "out")
    (line,) = cells(capsys.readouterr().out)
    assert line[2] == "accuracy on dev, best of 12"


def test_the_score_on_test_has_a_column(tmp_path, capsys):
    for seed, test in enumerate((0.5, 0.6, None)):
        scores = {"val/accuracy": 0.5, "test/accuracy": test}
        n_rows = {"dev": 9, "test": 14}
        leave(tmp_path / "wic" / f"none-{seed}", seed=seed, scores=scores, n_rows=n_rows)
        leave(tmp_path / "wic" / f"zca-{seed}", "zca", seed, scores=scores | {"test/accuracy": 1.0})
    assert main(["report", str(tmp_path)]) == 0
    assert [line[6] for line in cells(capsys.readouterr().out)] == [
        *("55.0 (too few seeds) (N = 14, n = 2)", "100.0 (N = 0)"),
    ]


def test_runs_that_have_not_finished_are_listed_with_how_far_they_are(tmp_path, capsys):
    leave(tmp_path / "wic" / "none-0")
    for name, status in (("a", "running"), ("b", "running"), ("c", "interrupted")):
        leave(tmp_path / "wic" / name, status=status, config={"lr": name})
        (tmp_path / "wic" / name / "metrics.jsonl").write_text('{"step": 7}\n')
    leave(tmp_path / "wic" / "d", status="interrupted", search="few", config={"lr": "d"})
    (tmp_path / "wic" / "e").mkdir()
    with FileLock(tmp_path / "wic" / "a" / ".lock"), FileLock(tmp_path / "wic" / "e" / ".lock"):
        assert main(["report", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "Not finished, or left out:" in text
    for line in (
        "wic/a: running (step 7)",
        "wic/b: interrupted (no checkpoint)",  # nobody is at it, whatever it says
        "wic/c: interrupted (no checkpoint)",
        "wic/d: stopped (no checkpoint, trial of search few: pruned by it, or interrupted)",
        "wic/e: running (starting)",
    ):
        assert f"- {line}\n" in text


def test_what_is_left_out_is_reported(tmp_path, capsys):
    leave(tmp_path / "wic" / "none-0", environment={"git": "0a1b"})
    leave(tmp_path / "wic" / "none-1", seed=1, environment={"git": "2c3d-dirty"})
    leave(tmp_path / "wic" / "none-2", status="failed", error="OSError: /secret")
    leave(tmp_path / "wic" / "none-3")
    (tmp_path / "wic" / "none-3" / "result.json").write_text("{")
    leave(tmp_path / "wic" / "none-4")
    content = json.loads((tmp_path / "wic" / "none-4" / "result.json").read_text())
    del content["config"]
    write_json(tmp_path / "wic" / "none-4" / "result.json", content)
    leave(tmp_path / "wic" / ".hidden")
    (tmp_path / "tails").mkdir()
    write_json(tmp_path / "tails" / "result.json", {"status": "finished", "analysis": "tails"})
    assert main(["report", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "# Runs: 2 finished" in text
    assert "- wic/none-2: failed (OSError)" in text
    assert "- wic/none-3: damaged: result.json (invalid JSON" in text
    assert "- wic/none-4: damaged: result.json (config is missing)" in text
    assert "- 2c3d+: wic none 1" in text
    assert "hidden" not in text
    assert "tails" not in text, "an analysis is no run"


def test_the_same_run_in_two_places_counts_once(tmp_path):
    leave(tmp_path / "a" / "wic" / "none-0", accuracy=0.5, finished_at="2026-01-02")
    leave(tmp_path / "b" / "wic" / "none-0", accuracy=0.6, finished_at="2026-01-03")
    leave(tmp_path / "c" / "wic" / "none-0", accuracy=0.7, finished_at="2026-01-01")
    found, message, _ = find_runs(tmp_path)
    assert [one.run.scores["val/accuracy"] for one in found] == [0.6]
    assert message == [
        "a/wic/none-0: the same run as b/wic/none-0, which finished later and counts",
        "c/wic/none-0: the same run as b/wic/none-0, which finished later and counts",
    ]
    shutil.rmtree(tmp_path / "b")
    assert [one.run.scores["val/accuracy"] for one in find_runs(tmp_path).runs] == [0.5]


def test_nothing_to_tabulate(tmp_path, capsys):
    assert main(["report", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert f"no finished run below {tmp_path}" in message
    assert not list(tmp_path.iterdir())


def test_runs_of_other_data_are_another_group():
    one = Run("wic", "none", 0, {"val/loss": 1.0}, {"val/loss": 9}, data="a")
    found = [FinishedRun(run, {}) for run in (one, one._replace(seed=1, data="b"))]
    lines = group_table(found)[1:]
    assert [(line[-1], line[4]) for line in lines] == [("data=a", "1"), ("data=b", "1")]


def test_only_keys_that_follow_the_seed_everywhere_are_left_out():
    runs = [Run("wic", "none", seed, {}, {}) for seed in (0, 1)]
    same = {"lr": "1", "seed": "0", "source.seed": "0", "isotropy.seed": "0", "n": "0"}
    other = {"lr": "1", "seed": "1", "source.seed": "0", "isotropy.seed": "1", "n": "1"}
    found = [FinishedRun(run, keys) for run, keys in zip(runs, (same, other), strict=True)]
    assert differing(found) == [{"n": "0"}, {"n": "1"}]
    apart = [found[0], FinishedRun(runs[1], {**other, "source.seed": "5"})]
    assert [list(keys) for keys in differing(apart)] == [["n", "source.seed"]] * 2


def test_a_seed_of_a_part_that_follows_the_runs_splits_no_group():
    keys = [{"isotropy.seed": str(seed), "lr": "1"} for seed in (0, 1, 2)]
    entries = [
        FinishedRun(Run("wic", "clip", seed, {}, {"val/loss": 9}), own)
        for seed, own in zip((0, 1, 2, 3), [*keys, {"isotropy.seed": "7", "lr": "1"}], strict=True)
    ]
    lines = group_table(entries)[1:]
    assert [(line[-1], line[4]) for line in lines] == [
        ("isotropy.seed=7", "0"),
        ("isotropy.seed=seed", "0"),
    ]


def test_a_part_that_others_lack_is_reported_by_its_option_alone():
    metric = "metric.lid.function."
    lid = {f"{metric}_target_": "isotrain.metrics.lid.lid"}
    loss = {"objective.cosreg._target_": "isotrain.objectives.cosreg.CosReg"}
    loss["objective.cosreg.weight"] = "1"
    keys = [{**lid, f"{metric}k": "100"}, {**lid, f"{metric}k": "50"}, {"lr": "1", **loss}]
    found = [FinishedRun(Run("wic", "none", 0, {}, {"val/loss": 9}), own) for own in keys]
    message = [line[-1] for line in group_table(found)[1:]]
    assert sorted(message) == [
        *("lr=1, objective=cosreg", "metric=lid, metric.lid.function.k=100"),
        "metric=lid, metric.lid.function.k=50",
    ]
