"""Seconds to look at a study of 1,000 finished runs: report of it and of its runs, and status.

    python benchmarks/bench_collect.py
    python benchmarks/bench_collect.py --runs 200

The runs are written, not trained: two tasks × five methods × seeds, each with a `result.json` of
8 metrics (as many as by default; `--metrics 32` for all) at the 41 places of 12 blocks, predictions
for 638 rows of dev and, for the curves of the page, `metrics.jsonl` of six evaluations. Printed is
the median of `--rounds`, with the interpreter's start in it, and how long reading and parsing alone
take.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from timing import head, interleaved, ms, row, seconds_of

from isotrain.config.compose import compose_run, plain
from isotrain.runs.files import read_result, write_result
from isotrain.runs.predictions import Predictions, write_predictions
from isotrain.studies.call import Job
from isotrain.studies.definition import Study
from isotrain.studies.record import write_plan

METHODS = ["none", "zca", "standardize", "iso_bn", "batch_norm"]
DATA = "demo-v1-seed0"
N_DEV, N_EVALUATIONS = 638, 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000, help="a multiple of 10")
    parser.add_argument("--metrics", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        metrics = [f"metric_{number}" for number in range(given.metrics)]
        study, folder = study_of(given.runs // 10), root / "runs" / "studies" / "thousand"
        jobs = []
        for task, method, overrides in study.pairs:
            config = plain(compose_run(overrides))
            for seed in study.seeds:
                place = root / "runs" / task / f"{method}-{seed:010d}"
                job = Job(task, method, seed, place)
                write_run(job, {**config, "seed": seed}, metrics)
                jobs.append(job)
        call_of_it = SimpleNamespace(
            **{"folder": folder, "kind": "study", "name": "thousand", "config_dir": None},
            **{"overrides": [], "arguments": []},
        )
        write_plan(call_of_it, "thousand.yaml", study, jobs)
        size = (jobs[0].folder / "result.json").stat().st_size
        reading = seconds_of(lambda: [read_result(job.folder) for job in jobs])
        print(f"{len(jobs)} runs, result.json {size / 1e3:.0f} kB")
        head("what", "s")
        row("reading and parsing every result.json", f"{reading:.1f}")
        commands = {
            "isotrain status": ["status", str(folder)],
            "isotrain report": ["report", str(folder)],
            "isotrain report runs": ["report", str(root / "runs"), "--out", str(root / "out")],
        }
        times = interleaved(
            given.rounds, {title: partial(call, command) for title, command in commands.items()}
        )
        for title in commands:
            row(title, f"{ms(times, title) / 1e3:.1f}")


def study_of(n_seeds: int) -> Study:
    """Two tasks, five methods."""
    return Study(
        name="thousand",
        overrides=("encoder=tiny", "source=demo"),
        tasks={task: (f"task={task}",) for task in ("wic", "rte")},
        methods={method: (f"isotropy={method}",) for method in METHODS},
        baseline="none",
        seeds=tuple(range(n_seeds)),
    )


def write_run(job: Job, config: dict[str, Any], metrics: list[str]) -> None:
    """A finished run as it stands on disk, drawn by its seed."""
    generator = np.random.default_rng([job.seed, hash_of(job.task), hash_of(job.method)])
    places = [
        f"layer_{layer:02d}/{view}" for layer in range(13) for view in ("cls", "tokens", "mean")
    ] + ["pooled/before", "pooled/after"]
    keys = [f"isotropy/{metric}/{place}" for metric in metrics for place in places]
    isotropy = dict(zip(keys, generator.random(len(keys)).tolist(), strict=True))
    counts = {f"isotropy/n_rows/{place}": 1024.0 for place in places}
    label = np.arange(N_DEV) % 2.0
    predicted = np.where(generator.random(N_DEV) < 0.7, label, 1 - label)
    accuracy = float((label == predicted).mean())
    job.folder.mkdir(parents=True)
    write_predictions(job.folder, "dev", Predictions(np.arange(N_DEV), label, predicted))
    rows = [{"step": step, **isotropy, **counts} for step in range(N_EVALUATIONS)]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (job.folder / "metrics.jsonl").write_text(text, encoding="utf-8")
    content = {
        **{"status": "finished", "method": job.method, "seed": job.seed, "config": config},
        **{"monitor": "val/accuracy", "n_rows": {"dev": N_DEV, "test": 0}, "data": DATA},
        **{"headline": metrics[:2], "environment": {"git": "0a1b2c3d4e5f"}},
        **{"scores": {"val/accuracy": accuracy, "val/loss": 0.7, **isotropy, **counts}},
        "finished_at": f"2026-01-01T00:00:{job.seed % 60:02d}+00:00",
    }
    write_result(job.folder, content)


def hash_of(text: str) -> int:
    """The same number in every process."""
    return int.from_bytes(text.encode()[:8], "big")


def call(command: list[str]) -> None:
    """A command of isotrain, which must end well."""
    subprocess.run(
        [sys.executable, "-m", "isotrain", *command],
        stdout=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
    )


if __name__ == "__main__":
    main()
