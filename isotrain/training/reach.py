"""How high in a model the losses of a run look: what stands above has no gradient. L blocks.

Heights go with the forward pass: 0 = embeddings, l = block l, L + 1 = the norm behind block L and
the layer at `tokens`, L + 2 = the layer at `pooled`, L + 3 = the head. A layer at `layer_k` acts
on what enters block k + 1, and stands as high as that.
"""

from __future__ import annotations

from collections.abc import Mapping

from isotrain.encoders.freezing import Plan, levels
from isotrain.model import IsotropicModel, block_of
from isotrain.places import place
from isotrain.training.extra_losses import reads_of
from isotrain.types import Encoder, Objective, Task


def height_of_place(text: str, n_blocks: int) -> int:
    """The height of a place that objectives read; of `all/…`, that of the last block.

    >>> [height_of_place(text, 6) for text in ("layer_2/cls", "all/tokens", "before", "pooled")]
    [2, 6, 7, 8]
    """
    outside = {"before": n_blocks + 1, "pooled": n_blocks + 2}
    found = place(text)
    return outside.get(found.name) or max(found.blocks(n_blocks))


def height_of_site(site: str, n_blocks: int) -> int:
    """The height of an isotropy layer.

    >>> [height_of_site(site, 6) for site in ("layer_2", "tokens", "pooled")]
    [3, 7, 8]
    """
    return (block_of(site, n_blocks) or n_blocks) + 1 + (site == "pooled")


def highest_read(task: Task, objectives: Mapping[str, Objective], n_blocks: int) -> int:
    """The height of the highest part that a loss depends on.

    The loss of a task reaches the head; without one, the objectives reach the highest place that
    any of them of a weight other than 0 reads; −1 = nothing.
    """
    if task.has_loss:
        return n_blocks + 3
    weighted = [objective for objective in objectives.values() if objective.weight != 0]
    reads = [text for objective in weighted for text in reads_of(objective)]
    return max((height_of_place(text, n_blocks) for text in reads), default=-1)


def within_reach(plan: Plan, encoder: Encoder, height: int) -> Plan:
    """The plan without what stands above `height`, which no process may wait for."""
    level_of = levels(encoder)
    return {
        first: frozenset(name for name in names if level_of[name] <= height)
        for first, names in plan.items()
    }


def freeze_above(model: IsotropicModel, height: int) -> None:
    """Let no isotropy layer train that stands above `height`, nor a head."""
    n_blocks = model.encoder.n_blocks
    for site, layer in model.transforms.items():
        if height_of_site(site, n_blocks) > height:
            layer.requires_grad_(False)
    if height < n_blocks + 3:
        model.head.requires_grad_(False)
