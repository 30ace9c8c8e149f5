"""`isotrain analyze analysis=NAME …`: an analysis of an encoder, checked, measured, told."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from difflib import get_close_matches

from isotrain.config.command import ANALYZE, check_command
from isotrain.config.redaction import redacted
from isotrain.config.several_runs import names, text_of
from isotrain.files import encoder_mistakes
from isotrain.progress import working

HELP = """isotrain analyze analysis=NAME [encoder=…] [source=…] [key=value …]

  analysis=NAME     {names}
  encoder=…         any encoder of `isotrain train`, or static (encoder.path=vectors.txt)
  source=…          hub | local (ISOTRAIN_DATA_DIR) | demo
  from_run=DIR      measure the encoder of a finished run before and after its training
  check=published   exit code 1 where a figure lies outside the tolerance of a published one
  --config-dir=DIR  a folder with config groups of your own, such as DIR/analysis/mine.yaml

  isotrain analyze list           what there is, with the question each one answers
  isotrain analyze keys NAME      the keys of an analysis, with what they mean
"""
REFUSED, FAILED = 2, 1
CONFIG_DIR = "--config-dir="


def main(arguments: Sequence[str]) -> int:
    """0 when the analysis is done; 1 outside of published figures; 2 where it cannot run."""
    if not arguments or {"-h", "--help"} & set(arguments):
        print(HELP.format(names=", ".join(names("analysis"))))
        return 0
    if arguments[0] == "list":
        return _list()
    if arguments[0] == "keys":
        return _keys(arguments[1:])
    overrides = [text for text in arguments if not text.startswith(CONFIG_DIR)]
    own = [text.removeprefix(CONFIG_DIR) for text in arguments if text.startswith(CONFIG_DIR)]
    if odd := [text for text in overrides if "=" not in text]:
        near = get_close_matches(odd[0], names("analysis"), n=1)
        hint = f"; did you mean analysis={near[0]}?" if near else ""
        return _refuse([f"{odd[0]} is no key=value{hint}"])
    cfg, mistakes = check_command(overrides, own[-1] if own else None, root=ANALYZE)
    if cfg is not None:
        from isotrain.analysis.start import with_encoder_of_run  # a run's own encoder

        if not mistakes:
            cfg = with_encoder_of_run(cfg, overrides)
            mistakes = encoder_mistakes(cfg)
    if mistakes:
        return _refuse(mistakes)
    assert cfg is not None
    with working("importing torch and transformers"):
        from isotrain.analysis.run import analyze
        from isotrain.record import CannotRunError
    try:
        folder, wrong = analyze(cfg, arguments)
    except CannotRunError as error:
        return _refuse(str(error).splitlines())
    except KeyboardInterrupt:
        print("isotrain: stopped; the same command goes on", file=sys.stderr)
        return 128 + signal.SIGINT
    if wrong:
        print("isotrain: outside of the published figures", *wrong, sep="\n  ", file=sys.stderr)
        print(f"  {folder}", file=sys.stderr)
    return FAILED if wrong else 0


def _refuse(lines: Sequence[str]) -> int:
    print("isotrain: this cannot run", *redacted(list(lines)), sep="\n  ", file=sys.stderr)
    return REFUSED


def _list() -> int:
    for name in names("analysis"):
        first = text_of("analysis", name).splitlines()[0].lstrip("# ")
        print(f"{name:20} {first}")
    return 0


def _keys(arguments: Sequence[str]) -> int:
    if len(arguments) != 1:
        return _refuse(["give one analysis: isotrain analyze keys contextuality"])
    try:
        print(text_of("analysis", arguments[0]), end="")
    except ValueError as error:
        return _refuse([str(error)])
    return 0
