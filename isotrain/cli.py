"""Commands: `isotrain train | demo`. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import sys

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from isotrain.config import check, conf_folder, register

USAGE = """isotrain: fine-tune encoders with isotropy layers and watch every layer

  isotrain train task=wic encoder=minilm isotropy=cluster_pca   one run (python train.py ...)
  isotrain train --help                                         all keys with their values
  isotrain demo                                                 two small runs, compared
"""


def train() -> None:
    """One run, or several with `-m`, from the overrides of the command line."""
    register()
    hydra.main(version_base="1.3", config_path=conf_folder(), config_name="train")(_job)()


def main() -> None:
    """The `isotrain` program."""
    command, arguments = (sys.argv[1] if len(sys.argv) > 1 else "--help"), sys.argv[2:]
    if command == "train":
        sys.argv = ["isotrain train", *arguments]
        train()
    elif command == "demo":
        from isotrain.demo import demo

        demo(arguments)
    elif command in ("-h", "--help", "help"):
        print(USAGE)
    else:
        print(f"isotrain: no command {command!r}\n\n{USAGE}", file=sys.stderr)
        sys.exit(2)


def _job(cfg: DictConfig) -> dict[str, float]:
    try:
        check(cfg)
    except ValueError as mistakes:
        print(f"isotrain: this configuration cannot run\n{mistakes}", file=sys.stderr)
        sys.exit(2)
    from isotrain.run import run

    return run(cfg, arm=str(HydraConfig.get().runtime.choices["isotropy"]))
