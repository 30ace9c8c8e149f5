"""Seconds to collect 1,000 finished runs and to report a study of them, as commands.

    python benchmarks/bench_collect.py
    python benchmarks/bench_collect.py --runs 200

The runs are written, not trained: two tasks × five methods × seeds, each with a `result.json` of
about 100 kB (every metric at every place of 12 blocks), predictions for 638 rows of dev and, for
the curves of the page, `metrics.jsonl` of six evaluations. Printed is the median of `--rounds`
`isotrain collect` and `isotrain report`, with the interpreter's start in it, and how long
reading and parsing alone take.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
from timing import head, interleaved, ms, row, seconds_of

from isotrain.config.compose import plain
from isotrain.jobs.archive import Job
from isotrain.runs.files import read_result, write_result
from isotrain.runs.predictions import Predictions, write_predictions
from isotrain.studies.definition import load_study
from isotrain.studies.plan import plan_jobs

METHODS = ["none", "zca", "standardize", "iso_bn", "batch_norm"]
METRICS = [f"metric_{number}" for number in range(32)]
DATA = "demo-v1-seed0"
N_DEV, N_EVALUATIONS = 638, 6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=1000, help="a multiple of 10")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        file, overrides = root / "thousand.yaml", [f"output_dir={root / 'runs'}"]
        file.write_text(
            "overrides: [encoder=tiny, source=demo]\n"
            "tasks: {wic: [task=wic], rte: [task=rte]}\n"
            f"methods: {{{', '.join(f'{method}: [isotropy={method}]' for method in METHODS)}}}\n"
            f"baseline: none\nseeds: {list(range(given.runs // 10))}\n"
        )
        jobs: list[Job] = []
        planning = seconds_of(lambda: jobs.extend(plan_jobs(load_study(str(file)), overrides)))
        jobs = [job.on_data(DATA) for job in jobs]
        for job in jobs:
            write_run(job)
        size = (jobs[0].folder / "result.json").stat().st_size
        reading = seconds_of(lambda: [read_result(job.folder) for job in jobs])
        print(f"{len(jobs)} runs, result.json {size / 1e3:.0f} kB")
        head("what", "s")
        row("reading and parsing every result.json", f"{reading:.1f}")
        row("planning the study", f"{planning:.1f}")
        commands = {
            "isotrain collect": ["collect", str(root / "runs"), "--out", str(root / "out")],
            "isotrain report": ["report", str(file), *overrides],
        }
        times = interleaved(
            given.rounds, {title: partial(call, command) for title, command in commands.items()}
        )
        for title in commands:
            row(title, f"{ms(times, title) / 1e3:.1f}")


def write_run(job: Job) -> None:
    """A finished run as it stands on disk, drawn by its seed."""
    generator = np.random.default_rng([job.seed, hash_of(job.task), hash_of(job.method)])
    places = [
        f"layer_{layer:02d}/{view}" for layer in range(13) for view in ("cls", "tokens", "mean")
    ] + ["pooled/before", "pooled/after"]
    keys = [f"isotropy/{metric}/{place}" for metric in METRICS for place in places]
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
        **{"status": "finished", "method": job.method, "seed": job.seed, "config": plain(job.cfg)},
        **{"monitor": "val/accuracy", "n_rows": {"dev": N_DEV, "test": 0}, "data": DATA},
        **{"headline": METRICS[:2], "environment": {"git": "0a1b2c3d4e5f"}},
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
