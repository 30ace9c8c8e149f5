"""`isotrain doctor`: what is installed and in reach, and what to do about the rest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from isotrain.console import FAILED, reject
from isotrain.doctor.line import Line
from isotrain.runs.secrets import redacted

HELP = """isotrain doctor [--network] [--json] [output_dir=DIR]: what is here, and what is not

  --network        ask the Hugging Face hub, for a few seconds at most
  --json           the same as JSON, for a report of a bug; secrets are left out
  output_dir=DIR   where runs will be written; runs, by default

Exit code 0 when `isotrain demo` can run, 1 when it cannot.
"""
OUTPUT_DIR = "output_dir="


def main(arguments: Sequence[str]) -> int:
    """Print the lines of every part; 1 where one of them stops the demo."""
    if {"-h", "--help"} & set(arguments):
        print(HELP)
        return 0
    given = [text for text in arguments if text.startswith(OUTPUT_DIR)]
    if unknown := set(arguments) - {"--network", "--json", *given}:
        takes = "--network, --json and output_dir=..."
        return reject(f"isotrain doctor takes {takes}, got {', '.join(sorted(unknown))}")
    lines = list(examined("--network" in arguments, given))
    can_run = not any(line.stops for line in lines)
    if "--json" in arguments:
        content = {"demo_can_run": can_run, "lines": [line._asdict() for line in lines]}
        print(json.dumps(content, indent=2))
    else:
        for part, of_part in groupby(lines, key=lambda line: line.part):
            print(part, *map(_text, of_part), sep="\n")
        print(f"\nisotrain demo {'can' if can_run else 'cannot'} run")
    return 0 if can_run else FAILED


def examined(network: bool, overrides: Sequence[str] = ()) -> Iterator[Line]:
    """Every line, without secrets; what a missing package keeps from being looked at says so."""
    output_dir = Path((overrides or [f"{OUTPUT_DIR}runs"])[-1].removeprefix(OUTPUT_DIR))

    def packages() -> Iterator[Line]:
        from isotrain.doctor import packages

        return packages.packages()

    def data() -> Iterator[Line]:
        from isotrain.doctor import reach

        return reach.data()

    def reach() -> Iterator[Line]:
        from isotrain.doctor import reach

        yield from reach.encoders()
        yield from reach.hub(network)

    def machine() -> Iterator[Line]:
        from isotrain.doctor import machine

        yield from machine.threads()
        yield from machine.devices()
        yield from machine.space(output_dir)
        yield from machine.slurm()

    def tracking() -> Iterator[Line]:
        from isotrain.doctor import tracking

        return tracking.tracking()

    def demo() -> Iterator[Line]:
        from isotrain.demo import demo_mistakes

        mistakes = demo_mistakes(overrides)
        for mistake in mistakes:
            yield Line("demo", "isotrain demo", "cannot run", mistake, stops=True)
        if not mistakes:
            yield Line("demo", "isotrain demo", "nothing is missing")

    for part in (packages, data, reach, machine, tracking, demo):
        for line in _whole(part):
            yield Line(*redacted(line))


def _whole(part: Callable[[], Iterator[Line]]) -> Iterator[Line]:
    try:
        yield from part()
    except ImportError as error:
        fix = "pip install -e . in the clone of isotrain"
        yield Line(part.__name__, "import", str(error), fix, stops=True)
    except OSError as error:
        fix = "give this user the right to look there, or choose another place"
        yield Line(part.__name__, "a place", str(error), fix, stops=True)


def _text(line: Line) -> str:
    fix = f" -> {line.fix}" if line.fix else ""
    return f"  {line.mark:2} {line.name:17} {line.found}{fix}"
