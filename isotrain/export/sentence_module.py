"""An isotropy layer as a module of sentence-transformers, with frozen statistics.

A sequences, T tokens, N embeddings, D width.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
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
    home, _, _ = target.rpartition(".")
    if not (home.startswith("isotrain.transforms.") or is_allowed(target)):
        raise ValueError(
            "the layer must be one of isotrain.transforms, declared by an installed package, or of "
            f"a package in ISOTRAIN_ALLOW, got {target}; name its package there if you trust it"
        )
    found = load(target)
    if not isinstance(found, type) or not issubclass(found, nn.Module):
        raise ValueError(
            f"the layer must be a class of torch modules, and {target} is none; make it a subclass "
            "of torch.nn.Module"
        )
    return found


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

    def get_embedding_dimension(self) -> int:
        """D."""
        return self.width

    def save(self, output_path: str, *_: Any, safe_serialization: bool = True, **__: Any) -> None:
        """Write `config.json` and the frozen statistics, without the queue's embeddings."""
        self.save_config(output_path)
        kept = {k: x.contiguous() for k, x in self.layer.state_dict().items() if _is_kept(k)}
        save_file(kept, Path(output_path) / WEIGHTS)

    @classmethod
    def load(  # type: ignore[override]
        cls, model_name_or_path: str, subfolder: str = "", **options: Any
    ) -> IsotropyLayer:
        """Load the module from a folder or the hub.

        Raises:
            ValueError: statistics are missing or have other shapes.
        """
        known = ("token", "cache_folder", "revision", "local_files_only")
        hub = {key: options[key] for key in known if key in options}
        config = cls.load_file_path(model_name_or_path, "config.json", subfolder, **hub)
        weights = cls.load_file_path(model_name_or_path, WEIGHTS, subfolder, **hub)
        if config is None or weights is None:
            raise ValueError(
                f"{model_name_or_path}/{subfolder} must hold config.json and {WEIGHTS}, it does "
                "not; export the run again"
            )
        module = cls(**json.loads(Path(config).read_text(encoding="utf-8")))
        module.put(load_file(weights))
        return module

    def put(self, state: Mapping[str, Tensor]) -> None:
        """Load the statistics of another instance of this layer."""
        kept = {k: x for k, x in state.items() if _is_kept(k)}
        missing, unexpected = self.layer.load_state_dict(kept, strict=False)
        if absent := [k for k in missing if _is_kept(k)] + unexpected:
            raise ValueError(f"statistics do not fit the layer: {', '.join(absent)}; export again")


def _is_kept(name: str) -> bool:
    return not name.startswith(QUEUE)
