"""How to repeat or resume a run: the command, where to run it, what is not recorded."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from isotrain.config.compose import dotted
from isotrain.pages.page import piece
from isotrain.runs.secrets import HIDDEN


def repeat(folder: Path, result: Mapping[str, Any]) -> Markup:
    """The command and its notes, from the record of a run."""
    config, overrides = result["config"], result.get("overrides") or ()
    base = Path(str(config.get("output_dir", "runs")))
    own = base.joinpath(*folder.resolve().parts[-2:])
    where = "Run it in the folder that this run was started in: paths are relative to that one."
    if overrides:
        finished = result.get("status") == "finished"
        command, place = train_command(overrides, config, finished), "the command"
        into = (
            f"It trains anew, into a folder in {own.parent}/ that is named by the isotropy layer, "
            "the objectives and a hash of the configuration, and replaces what is there."
            if finished
            else f"It resumes this run from its last checkpoint, in {own}/, or starts it anew."
        )
    else:
        command, place = python_command(own), "a copy of result.json"
        into = f"It started from Python. It trains anew, into {own}/, and replaces what is there."
    notes = [f"{where} {into}"]
    hidden = [key for key, value in dotted(config).items() if HIDDEN in str(value)]
    if hidden or HIDDEN in str(overrides):
        notes.append(
            f"Not recorded, as it may be secret: {', '.join(hidden) or 'a part of the command'}. "
            f"Put the values in place of {HIDDEN} in {place}"
            + (" and give the copy." if not overrides else ".")
        )
    start = config.get("init_from")
    if start and not Path(str(start)).is_absolute():
        notes.append(f"The encoder starts from {start}, which has to be in that folder too.")
    return piece("code", text=command) + piece("items", texts=notes)


def python_command(folder: Path) -> str:
    """The configuration of a record, trained from Python."""
    lines = (
        "from pathlib import Path",
        "from isotrain.config.compose import config_of",
        "from isotrain.runner import run",
        "from isotrain.runs.files import read_result",
        f"cfg = config_of(read_result(Path({str(folder)!r})))",
        "cfg.rerun = True",
        "run(cfg)",
    )
    return "\n".join(lines)


def train_command(overrides: Sequence[str], config: Mapping[str, Any], rerun: bool) -> str:
    """`isotrain train` with the overrides of a run, and whatever else its results depend on.

    That is the number of threads, and in front the user packages that must be allowed.

    >>> train_command(["task=wic", "site=[layer_1, pooled]"], {"threads": 2}, rerun=True)
    "isotrain train task=wic 'site=[layer_1, pooled]' threads=2 rerun=true"
    """
    words = [text for text in overrides if not text.startswith("rerun=")]
    if config.get("threads") and not any(text.startswith("threads=") for text in words):
        words.append(f"threads={config['threads']}")
    words += ["rerun=true"] if rerun else []
    return shlex.join(["isotrain", "train", *words])
