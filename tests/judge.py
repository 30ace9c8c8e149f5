"""All that a check finds in a configuration, without looking for files."""

from isotrain.config.analysis import ANALYSIS
from isotrain.config.check import mistakes_in, part_mistakes
from isotrain.config.compose import ConfigError, compose_run
from isotrain.config.schema import RUN


def all_mistakes(cfg, schema=RUN):
    """What the keys show, or else what the imported parts show."""
    return mistakes_in(cfg, schema) or part_mistakes(cfg, schema)


def check(cfg):
    """As `isotrain.training.requirements.check`, whatever data and weights this machine has."""
    if mistakes := all_mistakes(cfg):
        raise ValueError("\n".join(mistakes))


def judged(overrides, config_dir=None, root="train"):
    """The configuration of a command line, None if it does not compose; and every mistake."""
    schema = RUN if root == "train" else ANALYSIS
    schema.register()
    try:
        cfg = compose_run(overrides, config_dir, root)
    except ConfigError as error:
        return None, str(error).splitlines()
    return cfg, all_mistakes(cfg, schema)
