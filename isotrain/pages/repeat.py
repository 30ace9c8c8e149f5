"""How to repeat or resume a run: the command, where to run it, what is not recorded."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from isotrain.config.compose import dotted, key_of
from isotrain.runs.secrets import HIDDEN

NOT_ALONE = ("rerun", "study", "search", "trial")  # keys that a run of a plan has


def repeat(folder: Path, result: Mapping[str, Any]) -> dict[str, Any]:
    """The command that repeats a run, with its caveats, for `run.html`."""
    config, overrides = result["config"], result.get("overrides") or ()
    run_folder = Path(str(config.get("output_dir", "runs"))).joinpath(*folder.resolve().parts[-2:])
    is_finished = result.get("status") == "finished"
    hidden = [key for key, value in dotted(config).items() if HIDDEN in str(value)]
    init_from = config.get("init_from")
    return {
        "command": train_command(overrides, config, is_finished)
        if overrides
        else python_command(run_folder),
        "from_python": not overrides,
        "is_finished": is_finished,
        "folder": run_folder,
        "hidden": hidden,
        "is_hidden": bool(hidden) or HIDDEN in str(overrides),
        "mark": HIDDEN,
        "start": init_from if init_from and not Path(str(init_from)).is_absolute() else None,
    }


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


def train_command(overrides: Sequence[str], config: Mapping[str, Any], rerun: bool = False) -> str:
    """`isotrain train` with the overrides of a run, and the number of threads.

    >>> train_command(["task=wic", "site=[layer_1, pooled]"], {"threads": 2}, rerun=True)
    "isotrain train task=wic 'site=[layer_1, pooled]' threads=2 rerun=true"
    >>> train_command(["task=wic", "seed=3", "study=smoke"], {})  # a run of a study, alone
    'isotrain train task=wic seed=3'
    """
    arguments = [text for text in overrides if key_of(text) not in NOT_ALONE]
    if config.get("threads") and not any(argument.startswith("threads=") for argument in arguments):
        arguments.append(f"threads={config['threads']}")
    arguments += ["rerun=true"] if rerun else []
    return shlex.join(["isotrain", "train", *arguments])
