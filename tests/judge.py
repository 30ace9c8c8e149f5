"""What the check of a configuration says, without making its parts."""

from isotrain.config.analysis import ANALYSIS
from isotrain.config.check import check
from isotrain.config.compose import ConfigError, compose_run
from isotrain.config.schema import RUN


def errors_of(cfg, schema=RUN):
    """A line for each error; none where the check passes."""
    try:
        check(cfg, schema)
    except ValueError as error:
        return str(error).splitlines()
    return []


def judged(overrides, config_dir=None, root="train"):
    """The configuration of a command line, None if it does not compose; and every error."""
    schema = RUN if root == "train" else ANALYSIS
    schema.register()
    try:
        cfg = compose_run(overrides, config_dir, root)
    except ConfigError as error:
        return None, str(error).splitlines()
    return cfg, errors_of(cfg, schema)
