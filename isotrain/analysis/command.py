"""`isotrain analyze analysis=NAME …`: validate, run and report an analysis."""

import os
from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig, OmegaConf, open_dict

from isotrain.config.analysis import ANALYSIS
from isotrain.config.check import check
from isotrain.config.compose import compose_run, key_of
from isotrain.config.parts import check_recorded
from isotrain.config.shipped import names, text_of
from isotrain.console import FAILED, print_error, reject, spinner
from isotrain.encoders.start import start_file
from isotrain.runs.files import read_result


def main(overrides: Sequence[str], config_dir: str | None = None) -> int:
    """Exit code: 0 success; 1 failed midway; 2 cannot run, and nothing is written."""
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
    cfg, errors = _checked(overrides, config_dir)
    if cfg is None or errors:
        return reject(errors)
    options = [] if config_dir is None else [f"--config-dir={config_dir}"]
    return _analyze(cfg, [*options, *overrides])


def _checked(
    overrides: Sequence[str], config_dir: str | None
) -> tuple[DictConfig | None, list[str]]:
    """The configuration of a command line and its validation errors, keys before parts."""
    ANALYSIS.register()
    try:
        cfg = compose_run(overrides, config_dir, root="analyze")
        if cfg.from_run is not None:
            path = Path(cfg.from_run).expanduser()
            run = read_result(path if path.is_dir() else path.parent)
            names_encoder = any(key_of(text).partition(".")[0] == "encoder" for text in overrides)
            if not names_encoder and (encoder := run.get("config", {}).get("encoder")):
                check_recorded({"encoder": encoder})
                with open_dict(cfg):
                    cfg.encoder = OmegaConf.create(encoder)
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
        analyze(cfg, arguments)
    except (ValueError, OSError) as error:
        if os.environ.get("HYDRA_FULL_ERROR") == "1":
            raise
        if isinstance(error, CannotRunError):
            return reject(str(error))
        print_error("the analysis stopped", str(error).splitlines())
        return FAILED
    return 0
