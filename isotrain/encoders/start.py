"""Initial weights of an encoder: from a finished run (`init_from`), or re-initialised blocks.

torch is imported lazily: `start_file` is one of the early checks.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf

from isotrain.runs.files import WEIGHTS_FILE, trained_run
from isotrain.runs.secrets import redacted

if TYPE_CHECKING:
    from isotrain.encoders.base import Encoder

NO_ADAPTERS = "no_adapters"
ENCODER = "model.encoder."  # prefix of the encoder's weights in the checkpoint of a run


def start_file(run: str | None, encoder: DictConfig, key: str = "init_from") -> Path | None:
    """Resolve and validate the checkpoint of a run, given by folder or file; None without a run.

    Raises:
        ValueError: there is no such run, it is not finished, has no weights, or its encoder's keys
            differ from `encoder`.
    """
    if run is None:
        return None
    path = Path(run).expanduser()
    folder = path.parent if path.name == WEIGHTS_FILE else path
    result = trained_run(folder, f"{key}={run}")
    if NO_ADAPTERS not in str(result["config"].get("peft", NO_ADAPTERS)):
        raise ValueError(f"{key}={run} trained adapters, which start no run; train it without")
    run_config = result["config"]["encoder"]
    config = redacted(OmegaConf.to_container(encoder, resolve=True))
    if keys := [k for k in {**run_config, **config} if run_config.get(k) != config.get(k)]:
        diff = ", ".join(f"{k}={run_config.get(k)} there and {config.get(k)} here" for k in keys)
        raise ValueError(
            f"{key}={run}: that run trained another encoder (encoder.{diff}); use the same "
            "encoder keys"
        )
    return folder / WEIGHTS_FILE


def reinit_blocks(encoder: Encoder, n_blocks: int) -> None:
    """Re-initialise the top `n_blocks` blocks as for training from scratch.

    The architecture's initialiser draws from torch's global random state; all other tensors stay
    bit-identical. Zhang et al. (2021) try 1 to 6 blocks, against unstable fine-tuning.

    Raises:
        ValueError: the encoder has fewer blocks.

    >>> from isotrain.encoders.tiny import build_tiny
    >>> encoder = build_tiny(width=8, n_blocks=3, n_heads=1)
    >>> before = {name: p.detach().clone() for name, p in encoder.named_parameters()}
    >>> reinit_blocks(encoder, 1)
    >>> {name.split(".")[3] for name, p in encoder.named_parameters() if not p.equal(before[name])}
    {'2'}
    """
    if not 0 <= n_blocks <= encoder.n_blocks:
        raise ValueError(
            f"training.reinit_blocks must lie in 0 to {encoder.n_blocks} for this encoder, "
            f"got {n_blocks}"
        )
    model = encoder.model
    # transformers initialises modules not marked as initialised, by rules that may be in enclosing
    # modules; it uses this for weights missing from a checkpoint.
    top = encoder.blocks[encoder.n_blocks - n_blocks :]
    reset_ids = {id(tensor) for block in top for tensor in (*block.parameters(), *block.buffers())}
    for tensor in (*model.parameters(), *model.buffers()):
        tensor._is_hf_initialized = id(tensor) not in reset_ids
    for module in model.modules():
        module._is_hf_initialized = False
    model.initialize_weights()
