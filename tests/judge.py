"""All that a check finds in a configuration, without looking for files."""

from isotrain.config.check import mistakes_in, part_mistakes
from isotrain.config.command import TRAIN, check_jobs


def all_mistakes(cfg):
    """What the keys show, or else what the imported parts show."""
    return mistakes_in(cfg) or part_mistakes(cfg)


def check(cfg):
    """As `isotrain.training.requirements.check`, whatever data and weights this machine has."""
    if mistakes := all_mistakes(cfg):
        raise ValueError("\n".join(mistakes))


def check_command(overrides, config_dir=None, multirun=False, root=TRAIN):
    """As `isotrain.config.command.check_command`, with what imported parts show."""
    jobs, mistakes = check_jobs(overrides, config_dir, multirun, root)
    if not mistakes:
        parts = (text for job in jobs for text in part_mistakes(job.cfg, root.schema))
        mistakes = list(dict.fromkeys(parts))
    return next((job.cfg for job in jobs), None), mistakes
