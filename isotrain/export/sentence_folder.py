"""Write a sentence-transformers folder: encoder, pooling and isotropy layers.

A = Q·B sequences, B examples, D width.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn
from torch.nn.functional import normalize

from isotrain.config.parts import OF_HYDRA
from isotrain.console import install
from isotrain.export.folding import Affine, NotAffineError, folded, layer_sites
from isotrain.export.formats import CannotExportError, Differences, Format, differences, refusing
from isotrain.export.rebuilt import Rebuilt
from isotrain.export.transformers_folder import POOLED, write_tokenizer
from isotrain.model.heads import ScaledCosineHead

NEEDS = "sentence_transformers"


class Plan(NamedTuple):
    """The modules after the encoder."""

    mode: str  # pooling mode
    affine: Affine | None  # all layers as one map of the pooled vector; None: isotrain modules
    reason: str  # why they are not one map
    sites: list[str]


def sentences_format(rebuilt: Rebuilt, isotropy: DictConfig) -> Format:
    """The format of encoder, pooling and isotropy layers.

    Raises:
        CannotExportError: as `plan_sentences`.
    """
    plan = plan_sentences(rebuilt, isotropy)
    what = f"encoder and pooling{rebuilt.note}"
    if plan.affine is None:
        what += f", the isotropy layer as a module of isotrain: {plan.reason}"
    elif plan.sites:
        what += ", the isotropy layer folded into Dense modules"
    if isinstance(rebuilt.model.head, ScaledCosineHead):
        what += "; without scale and bias of the cosine (task.scaled_cosine), which keep its ranks"
    return Format(
        "sentence-transformers",
        "sentence-similarity",
        what,
        lambda folder: usage(folder, plan),
        lambda folder: write_sentences(folder, rebuilt, plan, isotropy),
        lambda folder: check_sentences(folder, rebuilt, plan),
    )


def plan_sentences(rebuilt: Rebuilt, isotropy: DictConfig) -> Plan:
    """Fold the layers into one map if they are affine, else keep them as modules.

    Raises:
        CannotExportError: a run whose vectors are not of single sentences, a layer class that an
            export may not name, or the package is missing.
    """
    if rebuilt.task.form != "bi":
        raise CannotExportError(
            "format=sentence-transformers has a vector for each sentence, and form=cross reads two "
            "as one sequence; train with task.form=bi"
        )
    kind: Any = type(rebuilt.model.pooling)
    if kind not in POOLED:
        raise CannotExportError(
            "format=sentence-transformers has the poolings cls, mean and last, and this run has "
            f"{kind.__name__}; train with one of these"
        )
    if find_spec(NEEDS) is None:
        raise CannotExportError(
            "format=sentence-transformers needs the package sentence-transformers; "
            f"{install('export')}, or give --format transformers"
        )
    sites = layer_sites(rebuilt)
    try:
        return Plan(POOLED[kind][0], folded(rebuilt), "", sites)
    except NotAffineError as error:
        reason = str(error)
    from isotrain.export.sentence_module import layer_class

    with refusing("format=sentence-transformers keeps a layer by the name of its class"):
        layer_class(str(isotropy["_target_"]))
    return Plan(POOLED[kind][0], None, reason, sites)


def write_sentences(folder: Path, rebuilt: Rebuilt, plan: Plan, isotropy: DictConfig) -> None:
    """Write all modules; the encoder is in the folder's root."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    rebuilt.network.save_pretrained(folder)
    write_tokenizer(folder, rebuilt)
    options = {"model_kwargs": {"dtype": torch.float32, "local_files_only": True}}
    modules: list[nn.Module] = [
        Transformer(str(folder), max_seq_length=rebuilt.max_length, **options),
        Pooling(rebuilt.model.encoder.width, plan.mode),
    ]
    if plan.affine is None:
        if "tokens" in plan.sites:
            modules.insert(1, _module(rebuilt, "tokens", isotropy))
        if "pooled" in plan.sites:
            modules.append(_module(rebuilt, "pooled", isotropy))
    elif plan.sites:
        modules += _folded(rebuilt, plan.affine)
    model = SentenceTransformer(modules=modules, similarity_fn_name="cosine", device="cpu")
    model.save(str(folder), create_model_card=False)


@torch.no_grad()
def check_sentences(folder: Path, rebuilt: Rebuilt, plan: Plan) -> Differences:
    """Differences of the reloaded folder's text vectors from the run's pooled vectors."""
    from sentence_transformers import SentenceTransformer

    ours = plan.affine is None  # the only class not from sentence-transformers
    model = SentenceTransformer(
        str(folder), device="cpu", trust_remote_code=ours, local_files_only=True
    ).eval()
    texts = [text for columns in rebuilt.texts for text in columns[0]]

    pairs = []
    for output, dtype in ((rebuilt.single, torch.float32), (rebuilt.double, torch.float64)):
        found_AD = model.to(dtype=dtype)(model.preprocess(texts))["sentence_embedding"]
        pairs.append((output.pooled.transpose(0, 1).flatten(0, 1), found_AD))
    found = differences(*pairs)
    differences(*((normalize(one), normalize(other)) for one, other in pairs))  # as seen by cosines
    return found


def usage(folder: Path, plan: Plan) -> str:
    """Example code that encodes two sentences."""
    trusted, note = "", ""
    if plan.affine is None:
        trusted = ", trust_remote_code=True"
        note = (
            "\n\nIt needs isotrain installed. sentence-transformers asks for `trust_remote_code` "
            "at every class that is not its own; this folder holds no code."
        )
    return f"""```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer({str(folder)!r}{trusted})
vectors = model.encode(["A dog is barking.", "A dog makes a noise."])
print(model.similarity(vectors, vectors))
```{note}"""


@torch.no_grad()
def _folded(rebuilt: Rebuilt, affine: Affine) -> list[nn.Module]:
    """Two maps: x − c, and (x − c) A + f(c), with c the mean of the pooled vectors of dev."""
    # In one map, the common mean would cancel only after rounding: cosines were off by 4e-6.
    model, batch = rebuilt.model, rebuilt.batch
    pooled_BPD = model.pooling(model.encoder(batch, {}).last, batch)
    centre_D = pooled_BPD.double().mean(dim=(0, 1)).float().double()
    centring = Affine(torch.eye(len(centre_D), dtype=torch.float64), -centre_D)
    return [_dense(centring), _dense(Affine(affine.matrix_DE, affine(centre_D[None])[0]))]


def _dense(affine: Affine) -> nn.Module:
    from sentence_transformers.sentence_transformer.modules import Dense

    n_in, n_out = affine.matrix_DE.shape
    return Dense(
        n_in,
        n_out,
        activation_function=nn.Identity(),
        init_weight=affine.matrix_DE.T.contiguous().float(),
        init_bias=affine.bias_E.float(),
    )


def _module(rebuilt: Rebuilt, site: Literal["pooled", "tokens"], isotropy: DictConfig) -> nn.Module:
    from isotrain.export.sentence_module import IsotropyLayer

    node: Any = OmegaConf.to_container(isotropy, resolve=True)
    arguments = {key: value for key, value in node.items() if key not in OF_HYDRA}
    added = ()
    if site == "tokens" and rebuilt.model.rows == "no_special":
        added = tuple(sorted(set(rebuilt.model.encoder.tokenizer("")["input_ids"])))
    made = IsotropyLayer(
        str(isotropy["_target_"]), arguments, rebuilt.model.encoder.width, site, added
    )
    made.put(rebuilt.model.transforms[site].state_dict())
    return made
