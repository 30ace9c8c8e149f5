"""Write `results.csv` of an experiment from the records of its runs: a row for each run.

    python tools/results_csv.py experiments/NAME/study.yaml [--untrained STUDY] [--also REGEX]
        [--config-dir DIR] [OVERRIDE ...]

with the overrides that the study was run with (`source=local output_dir=RUNS`). Columns:

- `task`, `method`, `seed`, `steps`, `commit` (code of the run), `collapsed` (1: its predictions are
  constant).
- A column for each score after training (`val/` is dev), `before/...` for the same at step 0. Test
  has a value at step 0 if the run scored it (`training.test_untrained`), or with `--untrained`: a
  study without training steps, whose run of equal data, layer and seed gives it.
- On STS-B, if `ISOTRAIN_DATA_DIR` has its files: Spearman in each genre
  (`test/spearman/main-captions`), and `test/spearman/within`, their mean weighted by examples.
- IsoScore (bias-corrected), mean cosine and ln I(W) less its null of the last layer in the pooled
  view, of its tokens, and of both sides of each isotropy layer; with `--also`, other isotropy keys.

Six significant digits. A study with results of other studies (shared runs) finds them in the
same output folder.
"""

import argparse
import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import spearmanr  # type: ignore[import-untyped]

from isotrain.commands.targets import Named, resolve
from isotrain.config.compose import recorded
from isotrain.jobs.archive import Archive, Job, locate, seeded
from isotrain.runs.files import read_records, read_result
from isotrain.runs.keys import SIDES, last_layer, parse_key, shown_view
from isotrain.runs.predictions import read_predictions
from isotrain.studies.results import LESS_NULL, SPLITS, VIEWS_OF, Run, collect, finite

METRICS = ("isoscore_corrected", "mean_cosine", LESS_NULL)
NOT_SCORES = ("n_rows", "spread", "predicted_majority_share")
STSB = "isotrain.tasks.stsb.STSB"
NO_PART_OF_THE_START = ("trainer", "optimizer", "schedule", "checkpoint", "training", "report")


def main() -> None:
    """Write the file beside the study and print its size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", type=Path)
    parser.add_argument("overrides", nargs="*")
    parser.add_argument("--untrained", type=Path)
    parser.add_argument("--also", default="$^")
    parser.add_argument("--config-dir")
    args = parser.parse_intermixed_args()
    if not os.environ.get("ISOTRAIN_DATA_DIR"):
        print("ISOTRAIN_DATA_DIR is not set: no scores by genre of STS-B")
    table = results(args.study, args.overrides, args.untrained, args.also, args.config_dir)
    path = args.study.parent / "results.csv"
    table.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")
    print(f"{path}: {len(table)} runs, {len(table.columns)} columns")


def results(
    study: Path,
    overrides: Sequence[str],
    untrained: Path | None = None,
    also: str = "$^",
    config_dir: str | None = None,
) -> pd.DataFrame:
    """A row for each finished run of a study, in plan order."""
    starts = {}
    if untrained:
        jobs, runs = finished(untrained, overrides)
        starts = {start_of(jobs[key(run)]): after(run) for run in runs}
    jobs, runs = finished(study, overrides, config_dir)
    rows = []
    for run in runs:
        result = read_result(run.folder)
        own = {
            "task": run.task,
            "method": run.arm,
            "seed": run.seed,
            "steps": result["steps"],
            "commit": run.code,
            "collapsed": int(bool(run.degenerate)),
        }
        first = at_step_0(run)
        before = scores_of(first) | starts.get(start_of(jobs[key(run)]), {})
        kept = isotropy_keys(run.scores, result["config"], also)
        own |= {f"before/{name}": value for name, value in before.items()} | after(run)
        own |= {f"before/{name}": first[name] for name in kept if name in first}
        own |= {name: run.scores[name] for name in kept if name in run.scores}
        rows.append(own)
    table = pd.DataFrame(rows)
    named = [name for name in table if name.partition("/")[1]]
    return table[[name for name in table if name not in named] + sorted(named, key=position)]


def finished(
    study: Path, overrides: Sequence[str], config_dir: str | None = None
) -> tuple[dict[tuple[str, str, int], Job], list[Run]]:
    """The planned runs of a study by task, method and seed; the finished ones."""
    given = resolve(Named(str(study), overrides, config_dir))
    runs, gaps = collect(locate(given.jobs, Archive(given.folder)))
    if gaps:
        print(f"{len(gaps)} of {len(given.jobs)} runs have no result; the first is {gaps[0]}")
    return {(job.task, job.arm, job.seed): job for job in given.jobs}, runs


def key(run: Run) -> tuple[str, str, int]:
    """Task, method and seed of a run."""
    return run.task, run.arm, run.seed


def start_of(job: Job) -> str:
    """What a run computes before its first step, as text: encoder, data, layer and seed."""
    content: dict[str, Any] = dict(recorded(seeded(job.cfg, job.seed)))
    return json.dumps({k: v for k, v in content.items() if k not in NO_PART_OF_THE_START})


def at_step_0(run: Run) -> dict[str, float]:
    """Every finite value logged before the first training step."""
    first = read_records(run.folder / "metrics.jsonl", last_step=0)
    return finite({name: value for record in first for name, value in record.items()})


def scores_of(record: Mapping[str, float]) -> dict[str, float]:
    """The task scores and losses among logged values."""
    parts = {name: name.split("/") for name in record}
    return {
        name: record[name]
        for name, of in parts.items()
        if of[0] in SPLITS and len(of) == 2 and of[1] not in NOT_SCORES
    }


def after(run: Run) -> dict[str, float]:
    """The scores of a finished run, on STS-B also by genre."""
    found = scores_of(run.scores)
    if read_result(run.folder)["config"]["task"]["_target_"] == STSB:
        for stage, split in SPLITS.items():
            found |= {
                f"{stage}/spearman/{name}": value for name, value in by_genre(run, split).items()
            }
    return found


def by_genre(run: Run, split: str) -> dict[str, float]:
    """Spearman in each genre of STS-B and, as `within`, their mean weighted by examples."""
    file = Path(os.environ.get("ISOTRAIN_DATA_DIR", "")) / "stsb" / f"{split}.jsonl"
    predictions = read_predictions(run.folder, split)
    if predictions is None or not file.is_file():
        return {}
    lines = file.read_text(encoding="utf-8").splitlines()
    genres = pd.Series([json.loads(line)["genre"] for line in lines])
    of = pd.DataFrame({"label": predictions.label, "prediction": predictions.prediction})
    groups = of.groupby(genres[predictions.index].to_numpy())
    found = {str(g): float(spearmanr(x["label"], x["prediction"])[0]) for g, x in groups}
    sizes = groups.size()
    within = sum(found[str(genre)] * n for genre, n in sizes.items()) / sizes.sum()
    return {**found, "within": float(within)}


def isotropy_keys(scores: Mapping[str, float], config: Mapping[str, Any], also: str) -> list[str]:
    """The isotropy keys to keep."""
    curves = {name: curve for name in scores if (curve := parse_key(name))}
    last = last_layer(curves.values())
    pooling = str(config["pooling"]["_target_"]).rpartition(".")[2]
    views = {curve.view for curve in curves.values() if curve.where == last}
    shown = {
        (last, view) for view in ("tokens", shown_view(views, VIEWS_OF.get(pooling, "tokens")))
    }
    return [
        name
        for name, of in curves.items()
        if (of.metric in METRICS and (of.view in SIDES or (of.where, of.view) in shown))
        or re.search(also, name)
    ]


def position(name: str) -> tuple[bool, str, bool]:
    """Where a column stands: scores first, each after its value before training."""
    own = name.removeprefix("before/")
    return own.startswith("isotropy/"), own, own == name


if __name__ == "__main__":
    main()
