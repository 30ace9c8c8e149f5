"""Write and check a folder of a run: for transformers, or for sentence-transformers.

A = Q·B sequences, B examples, T tokens, D width, C outputs.
"""

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from omegaconf import DictConfig, OmegaConf
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import normalize
from transformers import AutoModel, AutoTokenizer

from isotrain.config.parts import OF_HYDRA
from isotrain.console import install
from isotrain.export.folding import Affine, NotAffineError, folded, head_map, layer_sites
from isotrain.export.rebuilt import Rebuilt
from isotrain.export.source_run import RoundTripError
from isotrain.model.heads import ScaledCosineHead
from isotrain.model.pooling import ClsPooling, LastPooling, MeanPooling

TOLERANCE = 1e-6  # in float64, relative to the largest number or 1
ROUNDED = 1e-5  # in float32, likewise; or
TIMES = 10  # times the run's own difference between float32 and float64


class Differences(NamedTuple):
    """Largest differences between a run and its reloaded export."""

    single: float  # both computed in float32, as in use
    single_limit: float  # upper bound of `single`
    double: float  # both in float64: from the weights, without rounding of sums
    limit: float  # upper bound of `double`
    n_rows: int

    def __str__(self) -> str:
        return (
            f"largest difference {self.double:.1g} (limit {self.limit:.1g}); in float32, with the "
            f"rounding of sums, {self.single:.1g} (limit {self.single_limit:.1g})"
        )


def differences(single: tuple[Tensor, Tensor], double: tuple[Tensor, Tensor]) -> Differences:
    """Largest differences in float32 and in float64; both are checked.

    In float64 only the weights differ; the tolerance is 1e-6 of the largest number, or of 1. In
    float32 the order of sums differs too; the tolerance is 1e-5 of the largest number, or ten times
    the run's own difference between float32 and float64.

    Raises:
        RoundTripError: shapes differ, or numbers differ by more.
    """
    (run_32, own_32), (run_64, own_64) = single, double
    if run_64.shape != own_64.shape:
        raise RoundTripError(
            f"what was written gives {tuple(own_64.shape)}, the run {tuple(run_64.shape)}: its "
            "tokenizer does not give the token ids of the run"
        )
    scale = max(1.0, float(run_64.abs().max()))
    rounding = float((run_32 - run_64).abs().max())
    found = Differences(
        float((run_32 - own_32).abs().max()),
        max(ROUNDED * scale, TIMES * rounding),
        float((run_64 - own_64).abs().max()),
        TOLERANCE * scale,
        len(run_64),
    )
    if not (found.double <= found.limit and found.single <= found.single_limit):
        raise RoundTripError(f"what was written differs from the run: {found}")
    return found


class Format(NamedTuple):
    """A folder to write."""

    name: str  # transformers | sentence-transformers
    tag: str  # pipeline tag of the hub
    what: str  # one line, for the terminal and the card
    usage: Callable[[Path], str]  # markdown: runnable code, and notes
    write: Callable[[Path], None]
    check: Callable[[Path], Differences]  # loads the written folder


ALL_TEXTS = "text"  # name of the prompt of every text
HEAD = "head.safetensors"  # weight [C, D] and bias [C], of the pooled embedding
POOLED: dict[type, tuple[str, str]] = {  # sentence-transformers' name; code for the model card
    ClsPooling: ("cls", "states[:, 0]"),
    LastPooling: (
        "lasttoken",
        'states[range(len(states)), inputs["attention_mask"].sum(1) - 1]',
    ),
    MeanPooling: (
        "mean",
        '(states * (mask := inputs["attention_mask"][..., None])).sum(1) / mask.sum(1)',
    ),
}
WAYS = (
    "layers like isotropy=all_but_the_top and zca are one map, and format=sentence-transformers "
    "(task.form=bi) keeps this one as it is"
)


def transformers_format(rebuilt: Rebuilt) -> Format:
    """The format of encoder and head, or of the encoder alone and why.

    Raises:
        ValueError: neither: a layer at tokens belongs to what the encoder gives.
    """
    head, what = None, "encoder and head"
    try:
        head = linear_head(rebuilt)
        if layer_sites(rebuilt):
            what += ", the isotropy layer folded into the head"
    except NotAffineError as error:
        if "tokens" in layer_sites(rebuilt):
            raise ValueError(
                f"format=transformers cannot hold this run: {error}; and the encoder alone would "
                "lack the layer at tokens; train with site=[pooled], or with task.form=bi for "
                "--format sentence-transformers"
            ) from error
        what = f"the encoder alone, without {_absent(rebuilt)}: {error}"
    return Format(
        "transformers",
        "feature-extraction",
        what,
        lambda folder: transformers_usage(folder, rebuilt, head),
        lambda folder: write_transformers(folder, rebuilt, head),
        lambda folder: check_transformers(folder, rebuilt, head),
    )


def linear_head(rebuilt: Rebuilt) -> Affine:
    """The map from the pooled embedding, before any isotropy layer, to the logits.

    Raises:
        NotAffineError: there is none, and why.
    """
    if rebuilt.task.form != "cross":
        raise NotAffineError("the head of form=bi compares two embeddings")
    if type(rebuilt.model.pooling) not in POOLED:
        raise NotAffineError("the pooling reads target words, which no tokenizer marks")
    try:
        return folded(rebuilt).then(head_map(rebuilt))
    except NotAffineError as error:
        raise NotAffineError(f"{error}; {WAYS}") from error


def write_transformers(folder: Path, rebuilt: Rebuilt, head: Affine | None) -> None:
    """Write weights, configuration and tokenizer."""
    rebuilt.network.save_pretrained(folder)
    write_tokenizer(folder, rebuilt)
    if head is not None:
        weight_CD, bias_C = head.matrix_DE.T.contiguous(), head.bias_E
        save_file({"weight": weight_CD.float(), "bias": bias_C.float()}, folder / HEAD)


@torch.no_grad()
def check_transformers(folder: Path, rebuilt: Rebuilt, head: Affine | None) -> Differences:
    """Differences of the reloaded folder from the run, from text to final output.

    Logits are compared, or without a head the states of all real tokens, as the encoder gave them
    before adapters were merged into it, and shifted where it has absorbed the layer.
    """
    tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    model: Any = AutoModel.from_pretrained(
        folder, dtype=torch.float32, local_files_only=True, trust_remote_code=False
    )
    columns = [
        [text for part in parts for text in part] for parts in zip(*rebuilt.texts, strict=True)
    ]
    inputs = tokenizer(*columns, padding=True, truncation=True, return_tensors="pt")
    if not torch.equal(inputs["input_ids"], rebuilt.batch.input_ids):
        raise RoundTripError("the tokenizer that was written gives other token ids")
    single_BTD = model.eval()(**inputs).last_hidden_state
    double_BTD = model.double()(**inputs).last_hidden_state
    if head is None:
        real_BT = rebuilt.batch.attention_mask.bool()
        (run_32, run_64), (own_32, own_64) = rebuilt.states, (single_BTD, double_BTD)
        return differences((run_32[real_BT], own_32[real_BT]), (run_64[real_BT], own_64[real_BT]))
    written = load_file(folder / HEAD)

    def logits(states_BTD: torch.Tensor) -> torch.Tensor:
        weight_CD, bias_C = (written[name].to(states_BTD) for name in ("weight", "bias"))
        return rebuilt.model.pooling(states_BTD, rebuilt.batch)[:, 0] @ weight_CD.T + bias_C

    return differences(
        (rebuilt.single.logits, logits(single_BTD)), (rebuilt.double.logits, logits(double_BTD))
    )


def transformers_usage(folder: Path, rebuilt: Rebuilt, head: Affine | None) -> str:
    """Example code that loads the folder and scores the first dev example."""
    bare = ""
    if "add_pooling_layer" in inspect.signature(type(rebuilt.network).__init__).parameters:
        bare = ", add_pooling_layer=False"
    texts = ", ".join(repr(column[:1]) for column in rebuilt.texts[0])
    lines = [
        "import torch",
        *["from safetensors.torch import load_file"] * (head is not None),
        "from transformers import AutoModel, AutoTokenizer",
        "",
        f"folder = {str(folder)!r}",
        f"texts = ({texts},)",
        "tokenizer = AutoTokenizer.from_pretrained(folder)",
        f"encoder = AutoModel.from_pretrained(folder{bare}).eval()",
        'inputs = tokenizer(*texts, truncation=True, padding=True, return_tensors="pt")',
        "with torch.no_grad():",
        "    states = encoder(**inputs).last_hidden_state  # [texts, tokens, width]",
    ]
    if head is None:
        lines.append("print(states.shape)")
        note = f"The scores below are those of the run, whose {_absent(rebuilt)} are not here."
    else:
        lines += [
            f'head = load_file(f"{{folder}}/{HEAD}")',
            f"pooled = {POOLED[type(rebuilt.model.pooling)][1]}",
            'logits = pooled @ head["weight"].T + head["bias"]',
            f"print(logits)  # {', '.join(output_names(rebuilt))}",
        ]
        note = "Texts are prepared as the task prepares them."
    code = "\n".join(lines)
    return f"```python\n{code}\n```\n\n{note}"


def _absent(rebuilt: Rebuilt) -> str:
    """What a folder of the encoder alone lacks."""
    return "pooling, isotropy layer and head" if layer_sites(rebuilt) else "pooling and head"


def output_names(rebuilt: Rebuilt) -> list[str]:
    """Class names by index, if the task has them; `score` for a single output."""
    n_outputs = rebuilt.double.logits.shape[1]
    if n_outputs == 1:
        return ["score"]
    classes = rebuilt.task.data_set.classes
    return list(map(str, classes if len(classes) == n_outputs else range(n_outputs)))


def write_tokenizer(folder: Path, rebuilt: Rebuilt) -> None:
    """Write a tokenizer that truncates as the run did and pads on the right.

    It gives segments (`token_type_ids`) where the encoder of the run was given them, and nowhere
    else: a model with one table for words and segments would take them for words.
    """
    tokenizer = deepcopy(rebuilt.model.encoder.tokenizer)
    segments = ["token_type_ids"] if rebuilt.takes_segments else []
    kept = {
        "model_max_length": rebuilt.max_length,
        "model_input_names": ["input_ids", *segments, "attention_mask"],
        "padding_side": "right",
        "truncation_side": tokenizer.truncation_side,
    }
    for name, value in kept.items():
        setattr(tokenizer, name, value)
    tokenizer.init_kwargs |= kept  # what `save_pretrained` writes
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()
    tokenizer.save_pretrained(folder)


class Plan(NamedTuple):
    """The modules after the encoder."""

    mode: str  # pooling mode
    affine: Affine | None  # all layers as one map of the pooled vector; None: isotrain modules
    reason: str  # why they are not one map
    sites: list[str]


def sentences_format(rebuilt: Rebuilt, isotropy: DictConfig) -> Format:
    """The format of encoder, pooling and isotropy layers.

    Raises:
        ValueError: as `plan_sentences`.
    """
    plan = plan_sentences(rebuilt, isotropy)
    what = "encoder and pooling"
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
        lambda folder: sentences_usage(folder, plan, prompts_of(rebuilt)),
        lambda folder: write_sentences(folder, rebuilt, plan, isotropy),
        lambda folder: check_sentences(folder, rebuilt, plan),
    )


def plan_sentences(rebuilt: Rebuilt, isotropy: DictConfig) -> Plan:
    """Fold the layers into one map if they are affine, else keep them as modules.

    Raises:
        ValueError: a run whose vectors are not of single sentences, a layer class that an
            export may not name, or the package is missing.
    """
    if len(rebuilt.texts[0]) > 1:
        raise ValueError(
            "format=sentence-transformers has a vector for each sentence, and form=cross reads two "
            "as one sequence; train with task.form=bi"
        )
    kind: Any = type(rebuilt.model.pooling)
    if kind not in POOLED:
        raise ValueError(
            "format=sentence-transformers has the poolings cls, mean and last, and this run has "
            f"{kind.__name__}; train with one of these"
        )
    if find_spec("sentence_transformers") is None:
        raise ValueError(
            "format=sentence-transformers needs the package sentence-transformers; "
            f"{install('export')}, or give --format transformers"
        )
    sites = layer_sites(rebuilt)
    try:
        return Plan(POOLED[kind][0], folded(rebuilt), "", sites)
    except NotAffineError as error:
        reason = str(error)
    from isotrain.export.sentence_module import layer_class

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
    prompts = prompts_of(rebuilt)
    model = SentenceTransformer(
        modules=modules,
        similarity_fn_name="cosine",
        device="cpu",
        prompts=prompts or None,
        default_prompt_name=ALL_TEXTS if ALL_TEXTS in prompts else None,
    )
    model.save(str(folder), create_model_card=False)


def prompts_of(rebuilt: Rebuilt) -> dict[str, str]:
    """`task.prefix` as prompts: one for all texts, or one for each column; empty without any."""
    task = rebuilt.task
    prefixes = [str(prefix) for prefix in getattr(task, "prefix", ())]
    if not any(prefixes):
        return {}
    if len(set(prefixes)) == 1:
        return {ALL_TEXTS: prefixes[0]}
    return dict(zip(task.text, prefixes, strict=True))


@torch.no_grad()
def check_sentences(folder: Path, rebuilt: Rebuilt, plan: Plan) -> Differences:
    """Differences of the reloaded folder's text vectors from the run's pooled vectors."""
    from sentence_transformers import SentenceTransformer

    ours = plan.affine is None  # the only class not from sentence-transformers
    model = SentenceTransformer(
        str(folder), device="cpu", trust_remote_code=ours, local_files_only=True
    ).eval()
    prompts = prompts_of(rebuilt)
    names = [*prompts] * (len(rebuilt.texts) // len(prompts)) if prompts else [None]
    pairs = []
    for output, dtype in ((rebuilt.single, torch.float32), (rebuilt.double, torch.float64)):
        model = model.to(dtype=dtype)
        parts = []
        for columns, name in zip(rebuilt.texts, names * len(rebuilt.texts), strict=False):
            texts = [text.removeprefix(prompts[name] if name else "") for text in columns[0]]
            parts.append(model.encode(texts, prompt_name=name, convert_to_tensor=True))
        pairs.append((output.pooled.transpose(0, 1).flatten(0, 1), torch.cat(parts)))
    found = differences(*pairs)
    differences(*((normalize(one), normalize(other)) for one, other in pairs))  # as seen by cosines
    return found


def sentences_usage(folder: Path, plan: Plan, prompts: Mapping[str, str]) -> str:
    """Example code that encodes two sentences."""
    trusted, note, named = "", "", ""
    if ALL_TEXTS in prompts:
        note = f"\n\nEach text is encoded behind the prompt {prompts[ALL_TEXTS]!r}, as in the run."
    elif prompts:
        named = f", prompt_name={next(iter(prompts))!r}"
        note = f"\n\nA text is encoded behind the prompt of its column: {dict(prompts)}."
    if plan.affine is None:
        trusted = ", trust_remote_code=True"
        note += (
            "\n\nIt needs isotrain installed. sentence-transformers asks for `trust_remote_code` "
            "at every class that is not its own; this folder holds no code."
        )
    return f"""```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer({str(folder)!r}{trusted})
vectors = model.encode(["A dog is barking.", "A dog makes a noise."]{named})
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
