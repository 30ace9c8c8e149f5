"""Model card of an export, `README.md`, from the template `card.md.j2`."""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from omegaconf import OmegaConf

from isotrain.config.names import method_name, methods, part_name
from isotrain.encoders.on_disk import MINILM
from isotrain.export.folders import Folder
from isotrain.resources.references import bibtex, papers
from isotrain.results.findings import sentences, warnings
from isotrain.results.readings import SIDE_TITLES
from isotrain.results.row_bootstrap import SCORES, row_interval
from isotrain.results.runs import SPLITS
from isotrain.results.series import at, end_of, isotropy_series
from isotrain.results.statistics import accuracy_interval
from isotrain.runs.files import read_records
from isotrain.runs.keys import COUNTS, SIDES
from isotrain.runs.numbers import is_share, number, score_number
from isotrain.runs.predictions import read_predictions


class Scored(NamedTuple):
    """One score of a run."""

    split: str  # dev | test
    name: str
    value: float
    interval: tuple[float, float] | None  # 95 % CI over examples, if it can be computed
    n_examples: int


def scored(folder: Path, result: Mapping[str, Any], names: Collection[str]) -> list[Scored]:
    """The named scores on dev and test, the monitored one first in each."""
    monitored = str(result["monitor"]).rpartition("/")[2]
    scores, found = result["scores"], []
    for key, value in scores.items():
        stage, _, name = key.partition("/")
        if stage in SPLITS and name in names:
            split = SPLITS[stage]
            n_examples = int(scores.get(f"{stage}/n_rows", result["n_rows"].get(split, 0)))
            interval = accuracy_interval(key, value, n_examples) or _interval(folder, split, name)
            found.append(Scored(split, name, float(value), interval, n_examples))
    return sorted(found, key=lambda one: (one.split, one.name != monitored, one.name))


def _interval(folder: Path, split: str, name: str) -> tuple[float, float] | None:
    """CI from the difference to perfect predictions, which score 1 in any resample."""
    kept = read_predictions(folder, split)
    if kept is not None and name in SCORES:
        with suppress(ValueError):  # the score is undefined in too many resamples
            found = row_interval([kept.prediction], [kept.label], kept.label, SCORES[name])
            if found.low is not None and found.high is not None:
                return 1 + found.low, min(1.0, 1 + found.high)
    return None


def isotropy_rows(folder: Path, result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """The headline metrics at every site, first and last: a header and a row for each.

    The last values are of the exported weights. Empty if the run measured none.
    """
    rows = read_records(folder / "metrics.jsonl")
    every, end = isotropy_series(rows), end_of(result, rows)
    wanted = result.get("headline") or ()
    curves = [c for c in every if c.metric in wanted and c.view in SIDES]
    if not curves:
        return []
    start = min(every[curve][0][0] for curve in curves)
    found: list[tuple[str, ...]] = [
        ("site", "metric", "of the layer", f"step {start:.0f}", end.name, "N")
    ]
    for curve in sorted(curves, key=lambda c: (c.where, c.metric, SIDES.index(c.view))):
        n_rows = at(every.get(curve._replace(metric=COUNTS[0]), []), end.step)
        numbers = at(every[curve], start), at(every[curve], end.step), n_rows
        names = curve.where, curve.metric, SIDE_TITLES[curve.view]
        found.append((*names, *map(number, numbers)))
    return found


def card(folder: Path, made: Folder, agreed: str, found: str) -> Any:
    """The card of an export that will lie in `folder`.

    Args:
        folder: of the export.
        made: what was written.
        agreed: how many examples are predicted as recorded.
        found: differences from the run.
    """
    task, run, result = made.rebuilt.task, made.rebuilt.folder, made.rebuilt.result
    config, overrides = result["config"], result.get("overrides")
    own = [f"threads={config['threads']}", *map(without_folders, overrides or ())]
    scores = scored(run, result, task.metrics().keys())
    model_type = made.rebuilt.encoder.model.config.model_type
    parts = {key: config[key] for key in ("isotropy", "site", "objective")}
    return ModelCard.from_template(
        card_data(made, scores),
        template_path=str(Path(__file__).with_name("card.md.j2")),
        folder=folder.name,
        made=made,
        run=result,
        encoder=without_folders(str(result.get("encoder"))),
        data=without_folders(result["data"]),
        task=task,
        scores=scores,
        score_number=score_number,
        is_share=is_share,
        limits=sentences(warnings(result, read_records(run / "metrics.jsonl"))),
        isotropy=isotropy_rows(run, result),
        layer=part_name(config, "isotropy"),
        parts=without_folders(OmegaConf.to_yaml(parts)),
        command=shlex.join(["isotrain", "train", *own]) if overrides else "",
        found=found,
        agreed=agreed,
        citations=citations(config, model_type, task.data_sets),
    )


def card_data(made: Folder, scores: Sequence[Scored]) -> ModelCardData:
    """Metadata of the card. No licence: whoever publishes the folder chooses one."""
    result, task = made.rebuilt.result, made.rebuilt.task
    config, data_sets = result["config"], task.data_sets
    known, own_hub = _is_published(config), (config.get("data") or {}).get("hub")
    of_hub = known and str(config["source"]["_target_"]).endswith(".HubSource")
    # contrastive tasks are scored on their last data set; a user's task may have none
    evaluated: Any = data_sets[-1] if data_sets else None
    results = [
        EvalResult(
            task_type="sentence-similarity" if task.form == "bi" else "text-classification",
            dataset_type=evaluated.hub_id if of_hub else result["data"],
            dataset_name=evaluated.name if evaluated else task.name,
            dataset_split="validation" if of_hub and one.split == "dev" else one.split,
            metric_type=one.name,
            metric_value=one.value,
            metric_name=f"{one.name} on {one.split}, N = {one.n_examples}",
        )
        for one in scores
    ]
    return ModelCardData(
        language="en" if _is_ours(config) else None,  # all data sets of isotrain are English
        base_model=base_model(config),
        datasets=[str(one.hub_id) for one in data_sets if one.hub_id and known]
        or (own_hub and [own_hub]),
        metrics=sorted({one.name for one in scores}) or None,
        tags=["isotrain", "isotropy", part_name(config, "isotropy"), task.name],
        library_name=made.name,
        pipeline_tag=made.tag,
        model_name=f"{task.name}-{result.get('method')}" if results else None,
        eval_results=results or None,
    )


def base_model(config: Mapping[str, Any]) -> str | None:
    """Hub id of the encoder; None for a folder or random weights.

    >>> base_model({"encoder": {"name": "google-bert/bert-base-uncased"}})
    'google-bert/bert-base-uncased'
    """
    name = config["encoder"].get("name")
    return None if name is None or Path(name).exists() else str(name)


def citations(config: Mapping[str, Any], model_type: str, data_sets: Sequence[Any]) -> list[str]:
    """BibTeX of encoder, adapters, layer, objectives, optimizer, freezing and data, if known."""
    encoder = "minilm" if config["encoder"]["_target_"] == MINILM else model_type
    layer, *others = (name for name, _ in methods(config))
    layers = ["gmm_clusters" * (layer == "gmm_pca"), layer]
    layers += ["tuned_clusters"] * (papers().get(layer) == papers()["cluster_pca"])
    names = [one.name for one in data_sets] if _is_published(config) else []
    return bibtex([encoder, method_name(config, "peft")[0], *layers, *others, *names])


def _is_ours(config: Mapping[str, Any]) -> bool:
    """Whether the data are those that an isotrain task names."""
    task, data = config["task"], config.get("data") or {}
    names_none = "data_set" in task and not task["data_set"]
    is_own = names_none or data.get("path") or data.get("hub")
    return str(task["_target_"]).startswith("isotrain.tasks.") and not is_own


def _is_published(config: Mapping[str, Any]) -> bool:
    """Whether the data are the published ones of an isotrain task, not generated or a user's."""
    generated = str(config["source"]["_target_"]).endswith(".DemoSource")
    return _is_ours(config) and not generated


def without_folders(text: str) -> str:
    """The text with the last part alone of each absolute path.

    >>> without_folders("encoder.name=/home/ann/models/minilm")
    'encoder.name=minilm'
    """
    return re.sub(r"(?<![\w./:-])/(?:[^/,'\"\]]+/)*(?=[^/\s])", "", text)
