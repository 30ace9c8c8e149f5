"""`isotrain analyze analysis=NAME …`: validate, run and report an analysis."""

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from types import FrameType

from omegaconf import DictConfig

from isotrain.analysis.start import with_encoder_of_run
from isotrain.config.analysis import ANALYSIS
from isotrain.config.check import check
from isotrain.config.compose import compose_run
from isotrain.config.shipped import names, text_of
from isotrain.console import FAILED, print_error, reject, spinner
from isotrain.encoders.start import start_file


def main(overrides: Sequence[str], config_dir: str | None = None) -> int:
    """Exit code: 0 success; 2 cannot run, nothing is written; 128 + n after signal n.

    1 if it failed midway, or if results miss published figures with `check=published`.
    """
    if not overrides or overrides[0] == "list":
        for name in names("analysis"):
            print(f"{name:20} {text_of('analysis', name).splitlines()[0].lstrip('# ')}")
        return 0
    if overrides[0] == "keys":
        if len(overrides) != 2:
            return reject("give one analysis: analyze keys contextuality")
        try:
            print(text_of("analysis", overrides[1]), end="")
        except ValueError as error:
            return reject(str(error))
        return 0
    try:
        with _signals_as_errors():
            cfg, mistakes = _checked(overrides, config_dir)
            if cfg is None or mistakes:
                return reject(mistakes)
            own = [] if config_dir is None else [f"--config-dir={config_dir}"]
            return _analyze(cfg, [*own, *overrides])
    except KeyboardInterrupt as stop:
        print("isotrain: stopped; the same command resumes", file=sys.stderr)
        return 128 + int(*stop.args or (signal.SIGINT,))


def _checked(
    overrides: Sequence[str], config_dir: str | None
) -> tuple[DictConfig | None, list[str]]:
    """The configuration of a command line and its validation errors, keys before parts."""
    if odd := [text for text in overrides if "=" not in text]:
        near = get_close_matches(odd[0], names("analysis"), n=1)
        hint = f"did you mean analysis={near[0]}?" if near else "give keys as key=value"
        return None, [f"{odd[0]} is no key=value; {hint}"]
    ANALYSIS.register()
    try:
        cfg = compose_run(overrides, config_dir, root="analyze")
        if cfg.from_run is not None:
            cfg = with_encoder_of_run(cfg, overrides)
            start_file(cfg.from_run, cfg.encoder, "from_run")
        check(cfg, ANALYSIS)
    except ValueError as error:
        return None, str(error).splitlines()
    return cfg, []


def _analyze(cfg: DictConfig, arguments: Sequence[str]) -> int:
    """Run the analysis and report its outcome; HYDRA_FULL_ERROR=1 shows a traceback."""
    with spinner("importing torch and transformers"):
        from isotrain.analysis.run import analyze
        from isotrain.runs.record import CannotRunError
    try:
        folder, wrong = analyze(cfg, arguments)
    except (ValueError, OSError) as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        if isinstance(error, CannotRunError):
            return reject(str(error))
        print_error("the analysis stopped", str(error).splitlines())
        return FAILED
    if wrong:
        print_error("outside of the published figures", [*wrong, str(folder)])
    return FAILED if wrong else 0


@contextmanager
def _signals_as_errors() -> Iterator[None]:
    """Within the block, Ctrl-C and SIGTERM raise, so locks and open files are released."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt(number)

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
