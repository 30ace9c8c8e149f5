"""What a composed configuration must fulfil, judged before anything heavy is imported."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError

from isotrain.config.binding import binding_mistakes, nearest
from isotrain.config.redaction import literal_secrets
from isotrain.config.schema import SECTIONS
from isotrain.config.targets import class_constant, is_allowed, targets

NEEDED = (
    *("task", "encoder", "pooling", "isotropy", "freezing", "source"),
    *("optimizer", "schedule", "trainer"),
)
LEAST = {  # smallest legal value of a key
    "data.batch_size": 1,
    "data.eval_batch_size": 1,
    "training.prefill_batches": 1,
    "training.warmup_fraction": 0,
    "monitor.max_rows": 2,
    "checkpoint.every_steps": 0,
    "trainer.accumulate_grad_batches": 1,
    "threads": 1,
    "seed": 0,
}


def check(cfg: DictConfig) -> None:
    """Refuse a configuration that cannot run, every mistake at once.

    Raises:
        ValueError: the mistakes, one a line; `mistakes_in` says which there are.
    """
    if mistakes := mistakes_in(cfg):
        raise ValueError("\n".join(mistakes))


def mistakes_in(cfg: DictConfig) -> list[str]:
    """What is wrong with a configuration: keys, types, targets, and keys that do not go together.

    A mistake states the rule, what was given, and the fix.
    """
    if missing := missing_keys(cfg):
        return [f"{key} has no value; set {key}=..." for key in missing]
    content, mistakes = _resolved(cfg)
    mistakes += _unknown_keys(content)
    unresolved = OmegaConf.to_container(cfg, resolve=False)
    mistakes += [
        f"{key} is a secret, and a command line, a job file and a sweep would show it; give a "
        f"reference to the environment: '{key}=${{oc.env:NAME}}'"
        for key in literal_secrets(unresolved)
    ]
    if empty := [g for g in NEEDED if not (content[g] or {}).get("_target_")]:
        return mistakes + [
            f"{group} must be one of its options, with a _target_" for group in empty
        ]
    for path, node in targets(content):
        if is_allowed(str(node["_target_"])):
            mistakes += binding_mistakes(path, node)
        else:
            mistakes.append(
                f"{path}._target_={node['_target_']} is not allowed: a target is a function or "
                "class defined in isotrain, or in a package of yours that ISOTRAIN_ALLOW=<package> "
                "names, or an optimizer of torch, or a logger of pytorch_lightning (a package of "
                "yours must be importable: install it, or set PYTHONPATH)"
            )
    mistakes += [
        f"{key} must be at least {least}, got {value}"
        for key, least in LEAST.items()
        if (value := OmegaConf.select(cfg, key)) is not None and value < least
    ]
    if content["training"]["warmup_fraction"] > 1:
        mistakes.append("training.warmup_fraction is a share of all steps: at most 1")
    mistakes += _site_mistakes(content)
    headline = content["monitor"]["headline"]
    if headline is not None and headline not in content["metric"]:
        mistakes.append(
            f"monitor.headline={headline} is not measured; choose one of "
            f"{', '.join(content['metric'])}, or add it to metric=[...]"
        )
    mistakes += _trainer_mistakes(content["trainer"], content["optimizer"])
    return mistakes + _batch_mistakes(content)


def missing_keys(cfg: DictConfig) -> list[str]:
    """Keys that must be given and are not; nothing is resolved."""
    found: list[str] = []
    waiting: list[tuple[str, Any]] = [("", OmegaConf.to_container(cfg, resolve=False))]
    while waiting:
        path, node = waiting.pop()
        if isinstance(node, dict):
            waiting += [(f"{path}.{key}" if path else str(key), v) for key, v in node.items()]
        elif node == "???":
            found.append(path)
    return sorted(found)


def _resolved(cfg: DictConfig) -> tuple[dict[str, Any], list[str]]:
    """The plain content, with what could not be resolved left as it is and named."""
    content: dict[str, Any] = {}
    mistakes = []
    whole = OmegaConf.to_container(cfg, resolve=False, enum_to_str=True)
    assert isinstance(whole, dict)
    for key in map(str, whole):
        try:
            value = cfg[key]
            if OmegaConf.is_config(value):
                content[key] = OmegaConf.to_container(value, resolve=True, enum_to_str=True)
            else:
                content[key] = getattr(value, "value", value)  # an enumeration as its name
        except InterpolationResolutionError as error:
            content[key] = whole[key]
            variable = re.search(r"Environment variable '(\w+)'", str(error))
            if variable and variable[1] == "ISOTRAIN_DATA_DIR":
                mistakes.append(
                    "source=local reads the folder that ISOTRAIN_DATA_DIR names, and it is not "
                    "set; export ISOTRAIN_DATA_DIR=<folder with rte/, wic/, stsb/>, or use "
                    "source=hub or source=demo"
                )
            elif variable:
                mistakes.append(f"{key} reads the environment variable {variable[1]}; set it")
            else:
                mistakes.append(f"{error.full_key or key}: {str(error).splitlines()[0]}")
    return content, mistakes


def _unknown_keys(content: dict[str, Any]) -> list[str]:
    """Keys that `+key=value` slipped past the schema."""
    found = []
    for section, schema in SECTIONS.items():
        node, legal = content[section] if section else content, [f.name for f in fields(schema)]
        found += [
            f"{section or 'a run'} has no key {key}; {nearest(key, legal)}"
            for key in sorted(set(node) - set(legal))
        ]
    return found


def _site_mistakes(content: dict[str, Any]) -> list[str]:
    site: Sequence[str] = content["site"]
    pools_special = content["pooling"]["_target_"].endswith((".ClsPooling", ".LastPooling"))
    pools_spans = content["pooling"]["_target_"].endswith(".SpanPooling")
    mistakes = []
    if not site or len(set(site)) != len(site):
        mistakes.append(f"site must name each place once and at least one, got {site}")
    if odd := [s for s in site if not re.fullmatch(r"pooled|tokens|layer_[1-9]\d*", s)]:
        mistakes.append(f"site must be pooled, tokens or layer_k (k from 1), got {', '.join(odd)}")
    if content["rows"] == "no_special":
        if set(site) <= {"pooled"}:
            mistakes.append(
                f"rows=no_special chooses the rows of a token site, and site={site} has none; add "
                "tokens or layer_k, or use rows=all"
            )
        elif set(site) <= {"pooled", "tokens"} and pools_special:
            mistakes.append(
                "rows=no_special leaves CLS untouched, and the token that ends a sentence, so with "
                "pooling=cls or last a layer at tokens would do nothing; use pooling=mean or "
                "spans, or rows=all"
            )
    if pools_spans and class_constant(content["task"]["_target_"], "n_spans") == 0:
        task = content["task"]["_target_"].rpartition(".")[2]
        mistakes.append(f"pooling=spans needs target words, and task {task} has none; use cls")
    return mistakes


def _trainer_mistakes(trainer: dict[str, Any], optimizer: dict[str, Any]) -> list[str]:
    mistakes = []
    if trainer.get("num_nodes", 1) != 1:
        mistakes.append("trainer.num_nodes must be 1: several machines are not tested")
    if trainer.get("max_epochs", -1) == -1 and trainer.get("max_steps", -1) == -1:
        mistakes.append("trainer.max_epochs and max_steps are both -1: training would never end")
    if str(trainer.get("precision")).startswith("16") and optimizer.get("fused"):
        mistakes.append(
            "trainer.precision=16-mixed cannot clip gradients with a fused optimizer; add "
            "optimizer.fused=false, or use bf16-mixed"
        )
    return mistakes


def _batch_mistakes(content: dict[str, Any]) -> list[str]:
    """A batch that is too small for statistics of the batch: the layer would do next to nothing."""
    layer, site = content["isotropy"], content["site"]
    if layer.get("stats") != "batch" or "pooled" not in site or "n_clusters" not in layer:
        return []
    spans = content["pooling"]["_target_"].endswith(".SpanPooling")
    per_example = 2 if spans or content["task"].get("form") == "bi" else 1
    batch, k = content["data"]["batch_size"], layer["n_clusters"]
    devices = str(content["trainer"].get("devices", 1))
    shares = 1 if content["sync"] or not devices.isdigit() else int(devices)
    batch //= max(1, shares)
    rows = batch * per_example / k
    removed = math.floor(layer["rho"] * (rows - 1) + 1e-9)
    sizes = f"data.batch_size={batch * shares}"
    sizes += f" over {shares} processes (sync=false)" if shares > 1 else ""
    sizes += f" × {per_example} vectors" if per_example > 1 else ""
    shared = f"{sizes} over isotropy.n_clusters={k} leaves {rows:.3g} rows a cluster"
    if rows < layer["min_rows"]:
        least = math.ceil(layer["min_rows"] * k / per_example) * shares
        return [
            f"{shared}, fewer than isotropy.min_rows={layer['min_rows']}: clusters would borrow "
            f"the statistics of all rows; use data.batch_size={least} or more, fewer clusters, or "
            "isotropy.stats=queue"
        ]
    if layer["n_components"] > 0 and removed < 1:
        least = math.ceil((1 / layer["rho"] + 1) * k / per_example) * shares
        return [
            f"{shared}, of which floor(rho·(n−1)) = floor({layer['rho']}·{rows - 1:.3g}) = "
            f"{removed} directions may be removed; use data.batch_size={least} or more, fewer "
            "clusters, or isotropy.stats=queue"
        ]
    return []
