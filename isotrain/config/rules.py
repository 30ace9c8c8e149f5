"""Rules across the keys of a run: one function each, which yields a message if violated.

A message states the rule, the given value, and the fix. `FACTS` need only the keys,
`FACTS_OF_PARTS` also the imported classes of the parts.
"""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from isotrain.config.compose import method_mistakes, method_of
from isotrain.config.read_points import read_point
from isotrain.config.schema import n_processes, number_asked_for
from isotrain.config.signatures import constant, parameters_of

Content = dict[str, Any]
Parts = Mapping[str, Any]  # path of a node to its imported class or function
NO_FREEZING = "isotrain.encoders.freezing.freeze_nothing"
NO_ADAPTERS = "isotrain.encoders.adapters.no_adapters"
MIN_ROWS = 4  # of isotrain.geometry.cluster_pca, which needs torch
SHARE = "share_of_task_gradient"


# Of the keys


def one_size(content: Content) -> Iterator[str]:
    """A share and a number of training examples exclude each other."""
    data = content["data"]
    if data["n_train"] is not None and data["fraction"] != 1:
        yield (
            f"data.fraction={data['fraction']} and data.n_train={data['n_train']} both say how "
            "many examples are kept; give one of them"
        )


def name_of_folder(content: Content) -> Iterator[str]:
    """A method names a folder."""
    yield from method_mistakes(method_of(content))


def whole_evaluations(content: Content) -> Iterator[str]:
    """A limited evaluation is a random subset, not Lightning's first batches."""
    for split, key in (("val", "data.n_dev"), ("test", "data.n_test")):
        if limit := content["trainer"].get(f"limit_{split}_batches"):
            yield (
                f"trainer.limit_{split}_batches={limit} would score the batches that come first; "
                f"use {key}=N, a fixed random subset of N examples, the same in every run"
            )


def sites(content: Content) -> Iterator[str]:
    """Sites of isotropy layers must exist; without one a run would be its own baseline."""
    if not content["site"]:
        yield "site must name at least one place, got []"
    names = [str(site) for site in content["site"]]
    if odd := [name for name in names if not re.fullmatch(r"pooled|tokens|layer_[1-9]\d*", name)]:
        yield f"site must be pooled, tokens or layer_k (k from 1), got {', '.join(odd)}"


def read_points(content: Content) -> Iterator[str]:
    """Read points of objectives must exist."""
    for name, node in _nodes(content, "objective"):
        reads = node.get("reads", ["pooled"])
        if not isinstance(reads, list) or not reads:
            yield f"objective.{name}.reads must be a list of read points, got {reads}"
            continue
        for text in reads:
            try:
                read_point(str(text))
            except ValueError as error:
                yield f"objective.{name}.reads: {error}"
        if "before" in reads and "pooled" not in content["site"]:
            yield (
                f"objective.{name}.reads=[before] is the input of the isotropy layer at pooled, "
                f"and site={content['site']} has none there; add pooled to site, or read [pooled]"
            )


def one_choice_of_what_trains(content: Content) -> Iterator[str]:
    """Adapters freeze the encoder themselves."""
    peft, freezing = (content[group]["_target_"] for group in ("peft", "freezing"))
    if peft != NO_ADAPTERS and freezing != NO_FREEZING:
        yield (
            "peft trains its adapters and freezes the rest of the encoder; leave freezing=none, "
            "or use peft=none"
        )


def devices(content: Content) -> Iterator[str]:
    """The number of processes must be a number."""
    try:
        number_asked_for(content["trainer"].get("devices", 1))
    except ValueError as error:
        yield str(error)


def strategy(content: Content) -> Iterator[str]:
    """Several processes have the whole model each."""
    if (given := content["trainer"].get("strategy", "auto")) not in ("auto", "ddp"):
        yield (
            f"trainer.strategy must be auto or ddp, got {str(given)[:80]}: each process has the "
            "whole model, as layers, objectives and checkpoints need"
        )


def an_end(content: Content) -> Iterator[str]:
    """Training must end."""
    trainer = content["trainer"]
    if trainer.get("max_epochs", -1) in (-1, None) and trainer.get("max_steps", -1) == -1:
        yield "trainer.max_epochs and max_steps set no end: training would never end; set one"


def precision(content: Content) -> Iterator[str]:
    """Half-precision weights would round labels, counts and optimizer state."""
    name = str(content["trainer"].get("precision"))
    if name in ("16-true", "bf16-true"):
        mixed = name.replace("true", "mixed")
        yield f"trainer.precision={name} would round labels and counts; use {mixed}"


def weights_of_objectives(content: Content) -> Iterator[str]:
    """Compared gradients need the range of float32."""
    training = content["training"]
    name = str(content["trainer"].get("precision"))
    if training["objective_weight_as"] == SHARE and name in ("16", "16-mixed"):
        yield (
            f"training.objective_weight_as={SHARE} measures gradients before they are scaled, and "
            f"trainer.precision={name} rounds small ones to 0; use bf16-mixed or 32-true"
        )


# Of the keys and the classes of the parts


def untouched_tokens(content: Content, parts: Parts) -> Iterator[str]:
    """A token layer must change the token that the pooling reads."""
    only_tokens = "tokens" in content["site"] and set(content["site"]) <= {"pooled", "tokens"}
    reads = constant(parts["pooling"], "reads")
    if content["rows"] == "no_special" and only_tokens and reads in ("first", "last"):
        yield (
            "rows=no_special leaves CLS and SEP untouched, so with pooling=cls or last a layer at "
            "tokens would do nothing; use pooling=mean or spans, or rows=all"
        )


def protected_labels(content: Content, parts: Parts) -> Iterator[str]:
    """Protecting labels needs one embedding per example."""
    if not _protects_labels(content):
        return
    for given, is_several, way_out in (
        (f"site={content['site']}", content["site"] != ["pooled"], "site=[pooled]"),
        ("task.form=bi", content["task"].get("form") == "bi", "task.form=cross"),
        ("pooling=spans", _reads_spans(parts), "pooling=cls or mean"),
    ):
        if is_several:
            yield (
                "isotropy.protect_labels=true needs one embedding of each example, and "
                f"{given} gives several; use {way_out}, or isotropy.protect_labels=false"
            )


def _protects_labels(content: Content) -> bool:
    return bool(content["isotropy"].get("protect_labels"))


def target_words(_content: Content, parts: Parts) -> Iterator[str]:
    """A pooling of spans needs a task with target words."""
    if _reads_spans(parts) and constant(parts["task"], "n_spans") == 0:
        yield f"pooling=spans needs target words, and {_task(parts)} has none; use pooling=cls"


def something_to_learn(content: Content, parts: Parts) -> Iterator[str]:
    """A task without a loss needs an objective."""
    if constant(parts["task"], "has_loss") is not False:
        return
    nodes = [node for _, node in _nodes(content, "objective")]
    if all(node.get("weight") == 0 for node in nodes):
        yield f"{_task(parts)} has nothing to learn from without an objective" + (
            " of a weight other than 0" if nodes else "; add objective=[simcse]"
        )


def a_task_gradient(content: Content, parts: Parts) -> Iterator[str]:
    """Weights as shares of the task's gradient need a task with a loss."""
    is_share = content["training"]["objective_weight_as"] == SHARE
    if is_share and constant(parts["task"], "has_loss") is False:
        yield (
            f"training.objective_weight_as={SHARE}, and {_task(parts)} has no loss; use absolute"
        )


def labels_to_read(content: Content, parts: Parts) -> Iterator[str]:
    """Options that read or change training labels need a task with labels."""
    if constant(parts["task"], "has_loss") is not False:
        return
    asked: dict[str, str] = {}  # what needs labels, and the way out
    for name, node in _nodes(content, "objective"):
        if constant(parts.get(f"objective.{name}"), "needs") in ("classes", "scored_pairs"):
            asked[f"objective={name} reads labels"] = "use objective=[simcse]"
        if node.get("positive_labels") is not None:
            asked[f"objective.{name}.positive_labels chooses pairs by their label"] = "leave it out"
    if _protects_labels(content):
        asked["isotropy.protect_labels=true reads labels"] = "use isotropy.protect_labels=false"
    for key in ("label_skew", "label_noise", "hypothesis_only"):
        if content["data"].get(key):
            asked[f"data.{key} changes labels or pairs"] = "leave it out"
    if content["training"]["select"] == "holdout":
        asked["training.select=holdout scores training examples"] = "use training.select=best"
    if content["training"].get("solved_head"):
        asked["training.solved_head=true reads labels"] = "use training.solved_head=false"
    for given, way_out in asked.items():
        yield (
            f"{given}, and those of {_task(parts)} have no labels; {way_out}, or use a task with "
            "labels"
        )


def embeddings_of_a_batch(content: Content, parts: Parts) -> Iterator[str]:
    """Batch statistics need enough embeddings: two, or enough for each cluster."""
    defaults = {name: p.default for name, p in parameters_of(parts["isotropy"]).items()}
    layer = {**defaults, **content["isotropy"]}
    if layer.get("stats") != "batch" or "pooled" not in content["site"]:
        return
    per_example = 2 if _reads_spans(parts) or content["task"].get("form") == "bi" else 1
    shares = 1 if content["sync"] else n_processes(content["trainer"])
    batch = content["data"]["batch_size"] // shares
    has_clusters = {"n_clusters", "n_components", "rho"} <= defaults.keys()
    if not has_clusters and batch * per_example < 2:
        yield (
            f"data.batch_size={content['data']['batch_size']} leaves the isotropy layer one "
            "embedding a step, and isotropy.stats=batch estimates from several; use a larger "
            "data.batch_size, or isotropy.stats=queue"
        )
    if not has_clusters:
        return
    k, components, rho = layer["n_clusters"], layer["n_components"], layer["rho"]
    rows = batch * per_example / k
    least = max(MIN_ROWS, 1 / rho + 1 if components > 0 else 0)  # floor(rho·(n−1)) is at least 1
    enough = math.ceil(math.ceil(least * k - 1e-9) / per_example) * shares
    sizes = f"data.batch_size={batch * shares}"
    sizes += f" over {shares} processes (sync=false)" if shares > 1 else ""
    sizes += f" × {per_example} vectors" if per_example > 1 else ""
    if rows < least - 1e-9:
        yield (
            f"{sizes} over isotropy.n_clusters={k} leaves {rows:.3g} embeddings a "
            f"cluster, which needs {math.ceil(least - 1e-9)} at isotropy.rho={rho:g} (with fewer, "
            "no direction may be removed, or clusters fall back to global statistics); use "
            f"data.batch_size={enough} or more, fewer clusters, or isotropy.stats=queue"
        )


FACTS: tuple[Callable[[Content], Iterator[str]], ...] = (
    *(one_size, name_of_folder, whole_evaluations, sites, read_points),
    *(one_choice_of_what_trains, devices, strategy, an_end, precision, weights_of_objectives),
)
FACTS_OF_PARTS: tuple[Callable[[Content, Parts], Iterator[str]], ...] = (
    *(untouched_tokens, protected_labels, target_words, something_to_learn, labels_to_read),
    *(embeddings_of_a_batch, a_task_gradient),
)


def _nodes(content: Content, group: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The entries of a multi-entry group; other rules reject malformed entries."""
    return ((name, node) for name, node in content[group].items() if isinstance(node, dict))


def _reads_spans(parts: Parts) -> bool:
    return bool(constant(parts["pooling"], "reads") == "spans")


def _task(parts: Parts) -> str:
    return f"task={constant(parts['task'], 'name') or parts['task'].__name__}"
