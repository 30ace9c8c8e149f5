"""Write `results.csv` of an experiment from the records of its runs: a row for each run.

    python tools/results_csv.py experiments/NAME RUNS/studies/NAME [--untrained RUNS/studies/OTHER]
        [--also REGEX] [--partial]

The second folder has the `study.json` of the study that was run. Columns:

- `task`, `method`, `seed`, `steps`, `commit` (code of the run), `collapsed` (1: its predictions are
  constant).
- A column for each score after training (`val/` is dev), `before/...` for the same at step 0. Test
  has a value at step 0 if the run scored it (`training.test_untrained`), or with `--untrained`: a
  study without training steps, whose run of equal data, layer and seed gives it.
- On STS-B, if `ISOTRAIN_DATA_DIR` has its files: Spearman in each genre
  (`test/spearman/main-captions`), and `test/spearman/within`, their mean weighted by examples.
- IsoScore (bias-corrected), mean cosine and ln I(W) less its null of the last layer in the pooled
  view, of its tokens, and of both sides of each isotropy layer; with `--also`, other isotropy keys.

Every run of the study must have finished, unless `--partial` is given. Six significant digits.
"""

import argparse
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr  # type: ignore[import-untyped]

from isotrain.config.compose import task_name, without_locations
from isotrain.results.runs import LESS_NULL, SPLITS, VIEWS_OF, Run, collect, finite
from isotrain.runs.files import read_records, read_result
from isotrain.runs.keys import SIDES, last_layer, parse_key, shown_view
from isotrain.runs.predictions import read_predictions
from isotrain.runs.stored import PlanError
from isotrain.studies.definition import Study
from isotrain.studies.record import read_plan

METRICS = ("isoscore_corrected", "mean_cosine", LESS_NULL)
NOT_SCORES = ("n_rows", "spread", "predicted_majority_share")
NO_PART_OF_THE_START = {  # keys that change nothing before the first step
    *("optimizer", "schedule", "checkpoint", "report", "speed"),
    *(f"trainer.{key}" for key in ("max_steps", "max_epochs", "gradient_clip_val")),
    *(f"trainer.{key}" for key in ("val_check_interval", "check_val_every_n_epoch")),
    *(f"trainer.{key}" for key in ("accumulate_grad_batches", "log_every_n_steps")),
    *(f"training.{key}" for key in ("warmup_fraction", "head_lr_factor", "layer_decay")),
    *("training.test_untrained", "training.select", "callbacks"),
    *("training.objective_weight_as", "training.objective_weight_schedule"),
}


def main() -> None:
    """Write the file beside the study and print its size."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("experiment", type=Path)
    parser.add_argument("study", type=Path)
    parser.add_argument("--untrained", type=Path)
    parser.add_argument("--also", default="$^")
    parser.add_argument("--partial", action="store_true")
    args = parser.parse_args()
    if not os.environ.get("ISOTRAIN_DATA_DIR"):
        print("ISOTRAIN_DATA_DIR is not set: no scores by genre of STS-B")
    try:
        table = results(args.study, args.untrained, args.also, is_partial=args.partial)
    except (PlanError, ValueError) as error:
        parser.error(str(error))
    path = args.experiment / "results.csv"
    table.to_csv(path, index=False, float_format="%.6g", lineterminator="\n")
    print(f"{path}: {len(table)} runs, {len(table.columns)} columns")


def results(
    study: Path, untrained: Path | None = None, also: str = "$^", is_partial: bool = False
) -> pd.DataFrame:
    """A row for each finished run of a study's folder, by task, method and seed.

    Raises:
        ValueError: no run has finished, or some have not and `is_partial` is false.
    """
    starts = {}
    if untrained:
        starts = {start_of(run): after(run) for run in finished(untrained, is_partial)}
    runs, n_without = finished(study, is_partial), 0
    rows = []
    for run in runs:
        result = read_result(run.folder)
        row = {
            "task": run.task,
            "method": run.method,
            "seed": run.seed,
            "steps": result["steps"],
            "commit": run.code,
            "collapsed": int(bool(run.degenerate)),
        }
        first = at_step_0(run)
        own = starts.get(start_of(run), {}) if starts else {}
        n_without += not own
        before = scores_of(first) | own
        keys = isotropy_keys(run.scores, result["config"], also)
        row |= {f"before/{name}": value for name, value in before.items()} | after(run)
        row |= {f"before/{name}": first[name] for name in keys if name in first}
        row |= {name: run.scores[name] for name in keys if name in run.scores}
        rows.append(row)
    if untrained and n_without:
        print(f"{n_without} of {len(runs)} runs have no counterpart in {untrained}")
    table = pd.DataFrame(rows)
    named = [name for name in table if name.partition("/")[1]]
    return table[[name for name in table if name not in named] + sorted(named, key=position)]


def finished(study: Path, is_partial: bool) -> list[Run]:
    """The finished runs of a study's folder, by task, method and seed."""
    plan = read_plan(study)
    if plan is None:
        raise ValueError(f"{study} has no study.json; give RUNS/studies/NAME")
    runs, gaps = collect(plan.jobs)
    if not runs or (gaps and not is_partial):
        raise ValueError(
            f"results are of finished runs; {len(gaps)} of the {len(plan.jobs)} of {study} are "
            f"not, the first is {gaps[0]}; run them, or give --partial for the others"
        )
    return sorted(runs, key=lambda run: position_in(plan.study, run))


def position_in(study: Study, run: Run) -> tuple[int, int, int]:
    """Where a run stands: by task, then by method, then by seed."""
    tasks, methods = list(study.tasks), list(study.methods)
    return tasks.index(run.task), methods.index(run.method), study.seeds.index(run.seed)


def start_of(run: Run) -> str:
    """What a run computes before its first step, as text: encoder, data, layer, head and seed."""
    content = without_locations(read_result(run.folder)["config"])
    start = {
        name: value
        for name, value in content.items()
        if name not in NO_PART_OF_THE_START and name.split(".")[0] not in NO_PART_OF_THE_START
    }
    return json.dumps(start, default=str, sort_keys=True)


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
    scores = scores_of(run.scores)
    if task_name(read_result(run.folder)["config"]) == "stsb":
        for stage, split in SPLITS.items():
            scores |= {
                f"{stage}/spearman/{name}": value for name, value in by_genre(run, split).items()
            }
    return scores


def by_genre(run: Run, split: str) -> dict[str, float]:
    """Spearman in each genre of STS-B and, as `within`, their mean weighted by examples."""
    file = Path(os.environ.get("ISOTRAIN_DATA_DIR", "")) / "stsb" / f"{split}.jsonl"
    predictions = read_predictions(run.folder, split)
    if predictions is None or not file.is_file():
        return {}
    lines = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    scores = np.array([line["score"] for line in lines])[predictions.index] / 5
    if not np.allclose(scores, predictions.label, atol=1e-6):
        raise ValueError(
            f"genres must be of the data that the run had, {file} has other scores than "
            f"{run.folder}: set ISOTRAIN_DATA_DIR to that folder, or unset it"
        )
    genres = pd.Series([line["genre"] for line in lines])
    of = pd.DataFrame({"label": predictions.label, "prediction": predictions.prediction})
    groups = of.groupby(genres[predictions.index].to_numpy())
    rho = {str(g): float(spearmanr(x["label"], x["prediction"])[0]) for g, x in groups}
    sizes = groups.size()
    within = sum(rho[str(genre)] * n for genre, n in sizes.items()) / sizes.sum()
    return {**rho, "within": float(within)}


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
    column = name.removeprefix("before/")
    return column.startswith("isotropy/"), column, column == name


if __name__ == "__main__":
    main()
