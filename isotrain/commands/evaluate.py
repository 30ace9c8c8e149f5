"""`isotrain evaluate`: score a finished run on dev and test."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from omegaconf import DictConfig

from isotrain.commands.plans import job_of, print_json
from isotrain.commands.train import LOADING
from isotrain.config.check import check
from isotrain.config.compose import (
    compose_run,
    config_of,
    content_hash,
    key_of,
    plain,
)
from isotrain.config.parts import check_recorded
from isotrain.console import say, spinner
from isotrain.pages.summary import print_scores
from isotrain.runs.files import WEIGHTS_FILE, trained_run
from isotrain.runs.lost_input import lost_text
from isotrain.runs.stored import PlanError

CONFIG_DIR = "--config-dir="


def evaluate(
    folder: Path,
    overrides: Sequence[str],
    config_dir: str | None = None,
    as_json: bool = False,
) -> int:
    """The exit code of `isotrain evaluate`."""
    scores, n_rows, notes = evaluated(folder, overrides, config_dir)
    if as_json:
        print_json([(job_of(folder), "finished", scores)], notes)
        return 0
    for note in notes:
        say(note)
    print_scores(str(folder), scores, n_rows)
    return 0


def evaluated(
    folder: Path, overrides: Sequence[str], config_dir: str | None = None
) -> tuple[dict[str, float], dict[str, int], list[str]]:
    """Scores of a finished run with its weights, number of examples, and what to know of them.

    The loss of a regression is left out where the scale of its labels is not that of the run.

    Raises:
        UserError: it is none, its data are gone, or it cannot be evaluated with the overrides.
    """
    result = trained_run(folder)
    cfg = composed_again(folder, result, overrides, config_dir)
    if "classes" in cfg.task and cfg.task.classes is None:  # not those of other data
        cfg.task.classes = result["classes"]
    with spinner(LOADING):
        import pytorch_lightning as pl
        import torch

        from isotrain.build import build
        from isotrain.model.checkpoint import load_weights
        from isotrain.runner import quiet
        from isotrain.training.loggers.jsonl import scores_of
        from isotrain.training.revision import revision
    parts = [text for text in str(result["data"]).split("; ") if not text.startswith("init_from ")]
    keys = {key_of(text) for text in overrides}
    moves = keys & {"data.path", "data.hub"} or {"source", "task"} & {k.split(".")[0] for k in keys}
    if not moves and (current := revision(cfg)) != "; ".join(parts):
        raise PlanError(
            f"{folder} was scored on {'; '.join(parts)}, and there is {current} now; put the data "
            "back, or give source=... to score it on others"
        )
    quiet()
    torch.set_num_threads(cfg.threads)
    pl.seed_everything(cfg.seed, workers=True, verbose=False)
    with TemporaryDirectory() as scratch:
        cfg.output_dir, cfg.cache_dir = scratch, None
        try:
            experiment = build(cfg, Path(scratch), None)
            module, data, trainer = experiment.module, experiment.data, experiment.trainer
            if (classes := [*module.task.data_set.classes]) != result["classes"]:
                raise PlanError(
                    f"the run predicts the classes {result['classes']}, in this order, and the "
                    f"data have {classes}; give task.classes=[...] in the order of the run"
                )
            load_weights(module, folder / WEIGHTS_FILE)
            module.selected_step = result["steps"]
            lost = {split: losses for split, losses in data.lost_input.items() if split != "train"}
            trainer.validate(module, datamodule=data, verbose=False)
            scores = scores_of(trainer, ("val/", "holdout/"))
            if data.n_rows["test"]:
                trainer.test(module, datamodule=data, verbose=False)
                scores |= scores_of(trainer, ("test/",))
        except (ValueError, RuntimeError, OSError) as error:
            raise PlanError(f"{folder} cannot be evaluated so: {error}") from error
    notes = [f"input: {text}"] if (text := lost_text(lost)) else []
    own, scale = result["scale"], module.task.scale
    if own and scale and own != [*scale]:
        scores = {key: value for key, value in scores.items() if not key.endswith("/loss")}
        ends = [f"{low:g} to {high:g}" for low, high in (scale, own)]
        notes.append(f"no loss: scores from {ends[0]} are labels from 0 to 1, in the run {ends[1]}")
    return scores, data.n_rows, notes


def composed_again(
    folder: Path, result: Mapping[str, Any], overrides: Sequence[str], config_dir: str | None
) -> DictConfig:
    """The configuration that a run records, with further overrides and without loggers.

    Raises:
        PlanError: it names code that a record may not run, or its overrides give another
            configuration.
        ConfigError: the further ones do not apply.
    """
    run_overrides = [text for text in result["overrides"] if not text.startswith(CONFIG_DIR)]
    dirs = [
        text.removeprefix(CONFIG_DIR) for text in result["overrides"] if text not in run_overrides
    ]
    config_dir = config_dir or (dirs[-1] if dirs else None)
    try:
        recorded = config_of(result)
    except ValueError as error:
        raise PlanError(str(error)) from error
    if not run_overrides:  # of a run from Python: there is nothing to compose
        if overrides:
            raise PlanError(
                f"{folder} was made in Python and records no overrides; evaluate it without others"
            )
        recorded.init_from, recorded.callbacks, recorded.logger = None, {}, {}
        return recorded
    run_overrides = [f"threads={recorded.threads}", *run_overrides]
    if recorded.data.revision:
        run_overrides.append(f"data.revision={recorded.data.revision}")
    replica = compose_run(run_overrides, config_dir)
    try:
        check_recorded(plain(replica))  # a record's overrides are data, too
    except ValueError as error:
        raise PlanError(str(error)) from error
    check(replica)
    replica.source = recorded.source  # its data may have moved
    if content_hash(replica) != content_hash(recorded):
        raise PlanError(
            f"the overrides that {folder} records no longer give its configuration; evaluate it "
            "with the version of isotrain and the --config-dir that it was made with"
        )
    cfg = compose_run([*run_overrides, *overrides, "logger=[]"], config_dir)
    check(cfg)
    cfg.init_from, cfg.callbacks, cfg.logger = None, {}, {}
    return cfg
