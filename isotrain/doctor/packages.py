"""What is installed: Python, isotrain, what it needs, and what its extras would add."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement

from isotrain.console import install
from isotrain.doctor.line import Line

OLDEST = (3, 11)
SHOWN = ("torch", "pytorch-lightning", "transformers", "datasets", "hydra-core", "wandb")
ENABLES = {  # by extra
    "demo": "encoder=minilm without the hub, and the demo on a real encoder",
    "tensorboard": "logger=[tensorboard]",
    "peft": "peft=lora, peft=ia3",
    "tune": "searches",
    "plugins": "callbacks and losses for the Trainers of transformers and sentence-transformers",
    "export": "isotrain export for sentence-transformers",
    "dev": "make check",
}
CONSTRAINTS = Path(__file__).resolve().parents[2] / "constraints.txt"  # in a clone


def packages() -> Iterator[Line]:
    """Python, isotrain, its requirements (most of them in one line, where all is well), extras."""
    python = platform.python_version()
    old = sys.version_info < OLDEST
    yield Line("packages", "python", python, "use Python 3.11 or newer" if old else "", old)
    try:
        yield Line("packages", "isotrain", version("isotrain"))
        required = [Requirement(text) for text in requires("isotrain") or ()]
    except PackageNotFoundError:
        fix = "pip install -e . in the clone: without it requirements are unknown"
        yield Line("packages", "isotrain", "a folder, not installed", fix)
        return
    tested = proven_versions()
    n_others = 0
    for one in required:
        if one.marker is not None and not one.marker.evaluate({"extra": ""}):
            continue
        line = _required(one, tested)
        if line.fix or one.name in SHOWN:
            yield line
        else:
            n_others += 1
    yield Line("packages", "others", f"{n_others} more requirements, as they should be")
    yield from _extras(required)


def proven_versions(file: Path = CONSTRAINTS) -> dict[str, str]:
    """The versions that the tests ran on, by package; none outside of a clone."""
    if not file.is_file():
        return {}
    lines = file.read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if "==" in line and not line.startswith("#"))
    return {name.strip().lower(): number.strip() for name, number in pairs}


def _required(one: Requirement, tested: dict[str, str]) -> Line:
    number = _installed(one.name)
    if number is None:
        return Line("packages", one.name, "missing", f"pip install '{one}'", stops=True)
    if not one.specifier.contains(number, prereleases=True):
        wants = f"{number}, and isotrain needs {one.specifier}"
        return Line("packages", one.name, wants, f"pip install '{one}'", stops=True)
    known = tested.get(one.name.lower())
    if known is None or number.partition("+")[0] == known:
        return Line("packages", one.name, number)
    return Line("packages", one.name, f"{number} (allowed; the tests ran on {known})")


def _extras(required: list[Requirement]) -> Iterator[Line]:
    """An extra that is not whole is an offer, not a fault."""
    by_extra: dict[str, list[Requirement]] = {}
    for one in required:
        for extra in ENABLES:
            if one.marker is not None and one.marker.evaluate({"extra": extra}):
                by_extra.setdefault(extra, []).append(one)
    for extra, wanted in by_extra.items():
        missing = [one.name for one in wanted if not _is_met(one)]
        found = f"lacks {', '.join(missing)}" if missing else "installed"
        offer = f"; {install(extra)}" if missing else ""
        yield Line("extras", extra, f"{found}: {ENABLES[extra]}{offer}")


def _is_met(one: Requirement) -> bool:
    number = _installed(one.name)
    return number is not None and one.specifier.contains(number, prereleases=True)


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
