"""An isotropy layer as a module of sentence-transformers, with frozen statistics.

A sequences, T tokens, N embeddings, D width.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from sentence_transformers.sentence_transformer.modules import Module
from torch import Tensor, nn

from isotrain.config.parts import is_allowed, load
from isotrain.geometry.rows import put_rows, take_rows

QUEUE = "queue."  # training embeddings, unused in prediction
WEIGHTS = "model.safetensors"


def layer_class(target: str) -> type[nn.Module]:
    """The layer class named by a folder; nothing is called.

    Raises:
        ValueError: it is neither in `isotrain.transforms` nor allowed (`config.parts.is_allowed`),
            or is not an nn.Module class.
    """
    module, _, _ = target.rpartition(".")
    may_load = module.startswith("isotrain.transforms.") or is_allowed(target)
    candidate = load(target) if may_load else None
    if not (isinstance(candidate, type) and issubclass(candidate, nn.Module)):
        raise ValueError(
            "the layer must be a torch module of isotrain.transforms, declared by an installed "
            f"package, or of a package in ISOTRAIN_ALLOW, got {target}; name its package there if "
            "you trust it"
        )
    return candidate


class IsotropyLayer(Module):
    """A run's layer after `Pooling` (site pooled), or between encoder and `Pooling` (tokens).

    `SentenceTransformer(folder, trust_remote_code=True)` loads it from a folder written by
    `isotrain export`: sentence-transformers requires that argument for classes of other packages.
    The folder contains no code; the class is that of the installed isotrain, and `layer_class`
    validates the layer's class.

    The statistics stay frozen, in training mode too; gradients pass through.

    Args:
        target: class of the layer, such as isotrain.transforms.cluster_pca.ClusterPCA.
        arguments: of that class, except the width.
        width: D.
        site: pooled | tokens.
        left_out: token ids whose embeddings a layer at tokens leaves unchanged.

    Raises:
        ValueError: a class that `layer_class` rejects, or an unknown site.
    """

    config_keys = ["target", "arguments", "width", "site", "left_out"]  # noqa: RUF012

    def __init__(
        self,
        target: str,
        arguments: Mapping[str, Any],
        width: int,
        site: Literal["pooled", "tokens"] = "pooled",
        left_out: tuple[int, ...] = (),
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if site not in ("pooled", "tokens"):
            raise ValueError(f"site must be pooled or tokens, got {site!r}")
        self.target, self.arguments = target, dict(arguments)
        self.width, self.site, self.left_out = width, site, tuple(left_out)
        self.layer = layer_class(target)(width=width, **self.arguments).eval()

    def forward(self, features: dict[str, Any], **_: Any) -> dict[str, Any]:
        """The features with transformed sentence vectors, or transformed token states."""
        if self.site == "pooled":
            vectors_AD = features["sentence_embedding"]
            return {**features, "sentence_embedding": self.layer(vectors_AD)}
        states_ATD: Tensor = features["token_embeddings"]
        mask_AT = features["attention_mask"].bool()
        if self.left_out:
            special = torch.tensor(self.left_out, device=mask_AT.device)
            mask_AT = mask_AT & ~torch.isin(features["input_ids"], special)
        rows_ND = self.layer(take_rows(states_ATD, mask_AT))
        return {**features, "token_embeddings": put_rows(states_ATD, mask_AT, rows_ND)}

    def train(self, mode: bool = True) -> IsotropyLayer:
        """Set training mode for the other modules; the layer stays frozen."""
        super().train(mode)
        self.layer.eval()
        return self

    def save(self, output_path: str, *_: Any, safe_serialization: bool = True, **__: Any) -> None:
        """Write `config.json` and, as safetensors, the frozen statistics without the queue's."""
        self.save_config(output_path)
        state = self.layer.state_dict().items()
        tensors = {name: x.contiguous() for name, x in state if not name.startswith(QUEUE)}
        save_file(tensors, Path(output_path) / WEIGHTS)

    @classmethod
    def load(  # type: ignore[override]
        cls, model_name_or_path: str, subfolder: str = "", **options: Any
    ) -> IsotropyLayer:
        """Load the module from a folder or the hub."""
        keys = ("token", "cache_folder", "revision", "local_files_only")
        hub = {key: options[key] for key in keys if key in options}
        module = cls(**cls.load_config(model_name_or_path, subfolder, **hub))
        module.put(cls.load_torch_weights(model_name_or_path, subfolder, **hub))
        return module

    def put(self, state: Mapping[str, Tensor]) -> None:
        """Load the statistics of another instance of this layer; none may be missing."""
        queue = {k: x for k, x in self.layer.state_dict().items() if k.startswith(QUEUE)}
        self.layer.load_state_dict({**state, **queue})
