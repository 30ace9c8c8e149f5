"""What a study costs beyond the work of its runs: 20 tiny runs, two at a time.

    python benchmarks/bench_study.py

A run's own work is `timings_s.total` of its record: from its check and build to its last score. The
rest is the command's start and planning, the start of the workers, pages of runs, the study's
tables and page, and slots that wait. `--command` is the program of another checkout.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from timing import head, row

N_AT_ONCE = 2
STUDY = """
overrides: [encoder=tiny, source=demo, trainer.accelerator=cpu, trainer.max_steps=4,
            data.n_train=64, report=false]
tasks: {rte: [task=rte]}
methods: {none: [isotropy=none], mean: [isotropy=mean]}
baseline: none
seeds: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--command", default=f"{sys.executable} -m isotrain run")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        file = root / "twenty.yaml"
        file.write_text(STUDY)
        line = [*shlex.split(given.command), str(file), "-j", str(N_AT_ONCE)]
        began = time.time()
        subprocess.run([*line, f"output_dir={root / 'runs'}"], check=True, stdout=sys.stderr)
        wall = time.time() - began
        own = [
            json.loads(path.read_text())["timings_s"]["total"]
            for path in root.glob("runs/rte/*/result.json")
        ]
        folder = root / "runs" / "studies" / "twenty"
        first = (folder / "study.json").stat().st_mtime - began  # written before the launch
        last = max(path.stat().st_mtime for path in (folder / "logs").iterdir()) - began
    n, work = len(own), sum(own)
    print(f"{n} runs, {N_AT_ONCE} at a time; load {os.getloadavg()[0]:.1f}\n")
    head("what", "s")
    row("whole command", f"{wall:.1f}")
    row("before the first run", f"{first:.1f}")
    row("after the last run", f"{wall - last:.1f}")
    row("own work of all runs", f"{work:.1f}")
    row("beyond it, for each run, while runs are at work", f"{extra(last - first, work, n):.2f}")
    row("beyond it, for each run, of the whole command", f"{extra(wall, work, n):.2f}")
    print(f"\nwall time of the command over own work: {wall / work:.2f}")


def extra(wall: float, work: float, n: int) -> float:
    """Seconds of a slot for each run that are not its own work."""
    return (N_AT_ONCE * wall - work) / n


if __name__ == "__main__":
    main()
