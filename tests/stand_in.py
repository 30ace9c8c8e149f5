"""What studies and searches of fake runs share: the start of a script that plays a run."""

from __future__ import annotations

from copy import deepcopy

from isotrain.config.command import check_command
from isotrain.config.schema import NOT_CONTENT

# It imports nothing of isotrain, which takes longer than all else (`python -I -S`), and finds the
# folder of its run by itself: `job`, `cfg`, `name` and `folder` are there for what follows.
OPENING = (
    f"""
NOT_CONTENT = {NOT_CONTENT}
"""
    + r"""
import hashlib, json, os, signal, sys, time
from pathlib import Path

def note(what):
    with open(os.environ["JOURNAL"], "a") as journal:
        journal.write(f"{what} {Path(sys.argv[1]).stem} {os.getpid()}\n")

def read_job():
    text = Path(sys.argv[1]).read_text()
    config = json.loads(text)["config"]
    text = text.replace('"${seed}"', str(config["seed"]))
    return json.loads(text.replace("${output_dir}", config["output_dir"]))

def content(config, path=""):
    found = {}
    for name, value in config.items():
        key = f"{path}{name}"
        if key not in (*NOT_CONTENT, "source.root"):
            is_group = isinstance(value, dict) and value
            found |= content(value, f"{key}.") if is_group else {key: value}
    return found

def digits(of):
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()

def folder_of(job):
    name = digits([digits(content(job["config"])), os.environ.get("DATA", "demo-v1-seed0")])[:10]
    return Path(job["config"]["output_dir"]) / "rte" / f"{job['arm']}-{name}"
"""
)


known = {}  # commands that were judged before, which takes long, without their output folder


def judged(overrides, config_dir=None):
    """`check_command`, once for each command."""
    text = [override for override in overrides if not override.startswith("output_dir=")]
    if (*text, config_dir) not in known:
        known[*text, config_dir] = check_command(text, config_dir)
    cfg, mistakes = deepcopy(known[*text, config_dir])
    for override in overrides:
        if cfg is not None and override.startswith("output_dir="):
            cfg.output_dir = override.partition("=")[2]
    return cfg, mistakes
