"""Command-line parser of `isotrain`: every command with its options and an example.

A command's module is imported when it is called; `--help` needs only the standard library.
"""

import os
import re
import sys
from argparse import ArgumentParser, Namespace, RawTextHelpFormatter
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from signal import SIGINT
from textwrap import indent
from typing import Any, NamedTuple, NoReturn

from isotrain.console import FAILED, UserError, guarded, is_lost, nearest, reject

LAUNCHERS = ["joblib", "slurm", "ray"]  # of Hydra
FORMATS = ["transformers", "sentence-transformers"]  # of an export


class Command(NamedTuple):
    """A command of `isotrain`."""

    function: str  # module:name
    does: str
    examples: Sequence[str]
    arguments: Sequence[tuple[str, dict[str, Any]]] = ()  # flags, and options of argparse


CONFIG_DIR = ("--config-dir -cd", {"metavar": "DIR", "help": "more config groups, of yours"})
JSON = ("--json", {"action": "store_true", "dest": "as_json", "help": "print the runs as JSON"})
RUN = ("folder", {"type": Path, "metavar": "RUN", "help": "of a finished run"})
RUNS = (
    ("target", {"metavar": "NAME", "help": "study, search, or a folder of runs or of one run"}),
    JSON,
)


def _overrides(text: str) -> tuple[str, dict[str, Any]]:
    return "overrides", {"nargs": "*", "metavar": "key=value", "help": text}


COMMANDS = {
    "train": Command(
        "app:main",
        "Train one run, or with -m several: a Hydra application. All arguments are Hydra's.",
        [
            "task=wic isotropy=clip encoder=minilm source=demo",
            "-m isotropy=none,clip seed=0,1,2 hydra/launcher=joblib hydra.launcher.n_jobs=2",
            "--cfg job",
        ],
    ),
    "run": Command(
        "commands.plans:run",
        "Run what is missing of a study (methods x tasks x seeds, to a table) or a search.\n"
        "Without a name: list those that there are. Other arguments are those of train.",
        ["smoke -j 2", "mine.yaml --launcher slurm", "mine.yaml trainer.max_epochs=1 --list"],
        [
            (
                "target",
                {"metavar": "NAME", "nargs": "?", "help": "study, search, or its yaml file"},
            ),
            (
                "-j --jobs",
                {
                    "type": int,
                    "metavar": "N",
                    "help": "runs at a time (1; --launcher joblib: one a core; slurm: 256)",
                },
            ),
            (
                "--launcher",
                {"choices": LAUNCHERS, "help": "what starts the runs (joblib where -j is given)"},
            ),
            (
                "--list",
                {"action": "store_true", "dest": "only_list", "help": "show the runs, no more"},
            ),
            CONFIG_DIR,
        ],
    ),
    "evaluate": Command(
        "commands.evaluate:evaluate",
        "Evaluate a finished run on dev and test with the weights in its weights.safetensors, on\n"
        "its own data or on what key=value names.",
        ["runs/rte/none-0123456789", "runs/rte/none-0123456789 source=demo"],
        [RUN, _overrides("overrides"), CONFIG_DIR, JSON],
    ),
    "status": Command(
        "commands.plans:status",
        "Show how far the runs are, and the time left. Nothing is started; 1 where one failed.",
        ["smoke", "runs/studies/smoke"],
        RUNS,
    ),
    "report": Command(
        "commands.plans:report",
        "Draw the page of a run; write the tables of a study or search, as far as it is; tabulate\n"
        "every finished run below another folder into runs.csv and groups.md.",
        ["smoke", "runs/rte/none-0123456789", "runs"],
        [
            *RUNS,
            ("--figures", {"action": "store_true", "help": "also its charts: png, svg and pdf"}),
            ("--wandb", {"metavar": "PROJECT", "help": "send a finished run to W&B as well"}),
            (
                "--out",
                {"type": Path, "metavar": "DIR", "help": "of a folder's tables (FOLDER/collected)"},
            ),
        ],
    ),
    "analyze": Command(
        "analysis.command:main",
        "Run a published analysis of any encoder: tables, charts and a page in\n"
        "<output_dir>/analysis/NAME/<encoder>-<hash>/. `list` shows the analyses, `keys NAME` the\n"
        "keys of one. Others are encoder, source, from_run=RUN (its encoder before and after\n"
        "training), rerun=true.",
        ["list", "analysis=contextuality encoder=minilm source=demo"],
        [_overrides("or list; or keys NAME"), CONFIG_DIR],
    ),
    "export": Command(
        "export.command:export",
        "Write a finished run as a folder for transformers (the encoder, and the head of a\n"
        "classifier) and as one for sentence-transformers, each with a model card; by default\n"
        "both where possible. What is written is loaded again and compared on 64 dev examples.",
        ["runs/rte/none-0123456789"],
        [
            RUN,
            (
                "--to",
                {"type": Path, "metavar": "DIR", "help": "of the folders written (RUN/export)"},
            ),
            (
                "--format",
                {
                    **{"nargs": 1, "choices": FORMATS, "default": FORMATS, "dest": "format_names"},
                    "help": "only this one",
                },
            ),
        ],
    ),
    "doctor": Command(
        "doctor:doctor", "Show what is in reach, and what to do about the rest.", [""]
    ),
    "demo": Command(
        "commands.demo:main",
        "Train two small runs, isotropy layer off and on, and compare them.",
        ["seed=1"],
        [_overrides("overrides of both runs")],
    ),
}


@guarded()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run `isotrain`; the exit code. Arguments default to those of the process."""
    if os.name != "posix":
        sys.exit("isotrain runs on Linux and macOS; on Windows use WSL (the Linux subsystem)")
    try:
        options = vars(parsed(sys.argv[1:] if arguments is None else arguments))
    except SystemExit as stop:  # after --help or an error
        return int(stop.code or 0)
    module, _, name = options.pop("function").partition(":")
    try:
        code = int(getattr(import_module(f"isotrain.{module}"), name)(**options))
        return FAILED if is_lost() and options.get("as_json") else code
    except (KeyboardInterrupt, SystemExit) as stop:
        if KeyboardInterrupt in (type(stop), type(stop.__context__)):  # Lightning exits with 1
            return 128 + SIGINT
        raise
    except (UserError, OSError) as error:
        return reject(str(error))


def parsed(arguments: Sequence[str]) -> Namespace:
    """Parse a command line: the command's function as `module:name`, and its arguments."""
    name, *rest = arguments or ["--help"]
    if name == "train":  # Hydra reads its arguments
        return Namespace(function="app:main", arguments=rest)
    program, commands = parsers()
    if name in ("-sc", "--shell-completion"):  # of the command that its script completes
        if re.match(r"\S+\s+train\s|$", os.environ.get("COMP_LINE", "")):
            return Namespace(function="app:main", arguments=[name, *rest])
        print(*commands)
        sys.exit()
    if name == "run":
        options, hydra_arguments = commands[name].parse_known_args(rest)
        return Namespace(**vars(options), arguments=hydra_arguments)
    if name in commands:
        return commands[name].parse_intermixed_args(rest)
    if not name.startswith("-"):
        program.error(f"no command {name!r}; {nearest(name, [*commands], 'there are')}")
    return program.parse_args([name])


def parsers() -> tuple[ArgumentParser, dict[str, ArgumentParser]]:
    """The main parser, whose help has the usage of all commands, and the parser of each command."""
    commands: dict[str, ArgumentParser] = {}
    for name, command in COMMANDS.items():
        parser = commands[name] = _Parser(
            prog=f"isotrain {name}",
            description=command.does,
            epilog="\n  ".join(["examples:", *(f"isotrain {name} {x}" for x in command.examples)]),
            formatter_class=RawTextHelpFormatter,
            allow_abbrev=False,
        )
        parser.set_defaults(function=command.function)
        for flags, options in command.arguments:
            parser.add_argument(*flags.split(), **options)
    usages = (
        f"{parser.format_usage().removeprefix('usage: ')}{indent(str(parser.description), '    ')}"
        for parser in commands.values()
    )
    program = _Parser(
        prog="isotrain",
        usage="isotrain COMMAND ...",
        description="Fine-tune encoders with isotropy layers and watch every layer.",
        epilog="\n\n".join(["commands (isotrain COMMAND --help tells more):", *usages]),
        formatter_class=RawTextHelpFormatter,
    )
    program.add_argument("--version", action="version", version=version("isotrain"))
    return program, commands


class _Parser(ArgumentParser):
    """Report errors as all commands do, with the nearest option."""

    def error(self, message: str) -> NoReturn:
        """Exit code 2."""
        _, is_unknown, arguments = message.partition("unrecognized arguments: ")
        if is_unknown:
            option = arguments.split()[0].partition("=")[0]
            message += f"; {nearest(option, [*self._option_string_actions])}"
        sys.exit(reject(message))
