"""The folder of a run for sentence-transformers: encoder, pooling and isotropy layers.

D width.
"""

from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer
from torch import nn
from torch.nn.functional import normalize

from isotrain.config.parts import OF_HYDRA
from isotrain.export.folders import POOLED, Folder, differences
from isotrain.export.folding import Affine, NotAffineError, folded, layer_sites
from isotrain.export.rebuilt import Rebuilt
from isotrain.export.sentence_module import IsotropyLayer, layer_class

PROMPTS = ("query", "document")  # names that encode_query and encode_document read


class SentencesFolder(Folder):
    """Encoder, pooling, and the layers: folded into one map, else as modules of isotrain.

    Raises:
        ValueError: a layer class that an export may not name.
    """

    name, tag = "sentence-transformers", "sentence-similarity"

    def __init__(self, rebuilt: Rebuilt) -> None:
        super().__init__(rebuilt)
        self.affine: Affine | None = None
        self.sites = layer_sites(rebuilt)
        self.prompts = prompts_of(rebuilt)
        self.summary = "encoder and pooling"
        try:
            self.affine = folded(rebuilt)
            self.summary += ", the isotropy layer folded into Dense modules" * bool(self.sites)
        except NotAffineError as error:
            layer_class(str(rebuilt.cfg.isotropy["_target_"]))
            self.summary += f", the isotropy layer as a module of isotrain: {error}"
        is_one = len(set(self.prompts.values())) == 1
        self.default = PROMPTS[0] if is_one else None
        self.usage = {
            "needs_isotrain": self.affine is None,
            "prompts": self.prompts,
            "default": self.prompts[PROMPTS[0]] if is_one else "",
        }

    def write(self, folder: Path) -> None:
        """Write all modules; the encoder is in the folder's root."""
        super().write(folder)
        rebuilt = self.rebuilt
        options = {"model_kwargs": {"dtype": torch.float32, "local_files_only": True}}
        encoder = Transformer(str(folder), max_seq_length=rebuilt.max_length, **options)
        pooling = Pooling(rebuilt.encoder.width, POOLED[type(rebuilt.model.pooling)][0])
        modules: list[nn.Module] = [encoder, pooling]
        if self.affine is not None:
            modules += _dense_modules(rebuilt, self.affine) if self.sites else []
        else:
            modules[1:1] = [_layer(rebuilt, "tokens")] if "tokens" in self.sites else []
            modules += [_layer(rebuilt, "pooled")] if "pooled" in self.sites else []
        model = SentenceTransformer(
            modules=modules,
            similarity_fn_name="cosine",
            device="cpu",
            prompts=self.prompts or None,
            default_prompt_name=self.default,
        )
        model.save(str(folder), create_model_card=False)

    @torch.no_grad()
    def check(self, folder: Path) -> str:
        """`differences` of the reloaded folder's text vectors from the run's pooled vectors."""
        rebuilt, prompts = self.rebuilt, self.prompts
        is_custom = self.affine is None  # the only class not from sentence-transformers
        model = SentenceTransformer(
            str(folder), device="cpu", trust_remote_code=is_custom, local_files_only=True
        ).eval()
        ways = [model.encode_query, model.encode_document] if prompts else [model.encode]
        pairs = []
        for output, dtype in ((rebuilt.single, torch.float32), (rebuilt.double, torch.float64)):
            model = model.to(dtype=dtype)
            vectors = []
            for number, (texts, *_) in enumerate(rebuilt.texts):
                prompt = prompts.get(PROMPTS[number], "")
                bare_texts = [text.removeprefix(prompt) for text in texts]
                vectors.append(ways[number % len(ways)](bare_texts, convert_to_tensor=True))
            pairs.append((output.pooled.transpose(0, 1).flatten(0, 1), torch.cat(vectors)))
        differences(*((normalize(run), normalize(copy)) for run, copy in pairs))  # as for cosines
        return differences(*pairs)


def prompts_of(rebuilt: Rebuilt) -> dict[str, str]:
    """`task.prefix` as prompts: of a query the first, of a document the last; empty without any."""
    prefixes = [str(prefix) for prefix in getattr(rebuilt.task, "prefix", ())]
    return dict(zip(PROMPTS, (prefixes[0], prefixes[-1]), strict=True)) if any(prefixes) else {}


@torch.no_grad()
def _dense_modules(rebuilt: Rebuilt, affine: Affine) -> list[nn.Module]:
    """Two maps: x − c, and (x − c) A + f(c), with c the mean of the pooled vectors of dev."""
    # In one map, the common mean would cancel only after rounding: cosines were off by 4e-6.
    model, batch = rebuilt.model, rebuilt.batch
    pooled_BPD = model.pooling(model.encoder(batch, {}).last, batch)
    centre_D = pooled_BPD.double().mean(dim=(0, 1)).float().double()
    centring = Affine(torch.eye(len(centre_D), dtype=torch.float64), -centre_D)
    return [_dense(centring), _dense(Affine(affine.matrix_DE, affine(centre_D[None])[0]))]


def _dense(affine: Affine) -> nn.Module:
    weight_ED, bias_E = affine.matrix_DE.T.contiguous().float(), affine.bias_E.float()
    n_out, n_in = weight_ED.shape
    return Dense(n_in, n_out, activation_function=None, init_weight=weight_ED, init_bias=bias_E)


def _layer(rebuilt: Rebuilt, site: Any) -> nn.Module:
    node: Any = OmegaConf.to_container(rebuilt.cfg.isotropy, resolve=True)
    arguments = {key: value for key, value in node.items() if key not in OF_HYDRA}
    special = rebuilt.encoder.tokenizer("")["input_ids"]
    left_out = {*special} if site == "tokens" and rebuilt.model.rows == "no_special" else ()
    width = rebuilt.encoder.width
    layer = IsotropyLayer(node["_target_"], arguments, width, site, tuple(sorted(left_out)))
    layer.put(rebuilt.model.transforms[site].state_dict())
    return layer
