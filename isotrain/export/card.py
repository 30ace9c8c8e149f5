"""Model card of an export, `README.md`, from the template `card.md.j2`."""

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import EvalResult, ModelCard, ModelCardData
from omegaconf import OmegaConf

from isotrain.config.names import method_name, methods, part_name
from isotrain.encoders.on_disk import MINILM
from isotrain.export.folders import Folder
from isotrain.pages.repeat import train_command
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


class CardScore(NamedTuple):
    """One score of a run."""

    split: str  # dev | test
    name: str
    value: float
    interval: tuple[float, float] | None  # 95 % CI over examples, if it can be computed
    n_examples: int


def card_scores(folder: Path, result: Mapping[str, Any], names: Collection[str]) -> list[CardScore]:
    """The named scores on dev and test, the monitored one first in each."""
    monitored = str(result["monitor"]).rpartition("/")[2]
    scores, entries = result["scores"], []
    for key, value in scores.items():
        stage, _, name = key.partition("/")
        if stage in SPLITS and name in names:
            split = SPLITS[stage]
            n_examples = int(scores.get(f"{stage}/n_rows", result["n_rows"].get(split, 0)))
            interval = accuracy_interval(key, value, n_examples) or _interval(folder, split, name)
            entries.append(CardScore(split, name, float(value), interval, n_examples))
    return sorted(entries, key=lambda entry: (entry.split, entry.name != monitored, entry.name))


def _interval(folder: Path, split: str, name: str) -> tuple[float, float] | None:
    """CI from the difference to perfect predictions, which score 1 in any resample."""
    pred = read_predictions(folder, split)
    if pred is not None and name in SCORES:
        with suppress(ValueError):  # the score is undefined in too many resamples
            interval = row_interval([pred.prediction], [pred.label], pred.label, SCORES[name])
            if interval.low is not None and interval.high is not None:
                return max(-1.0, 1 + interval.low), min(1.0, 1 + interval.high)
    return None


def isotropy_rows(folder: Path, result: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Table of the headline metrics at every site, first and last values, with a header.

    The last values are of the exported weights. Empty if the run measured none.
    """
    records = read_records(folder / "metrics.jsonl")
    series, end = isotropy_series(records), end_of(result, records)
    headline = result.get("headline") or ()
    curves = [c for c in series if c.metric in headline and c.view in SIDES]
    if not curves:
        return []
    start = min(series[curve][0][0] for curve in curves)
    table: list[tuple[str, ...]] = [
        ("site", "metric", "of the layer", f"step {start:.0f}", end.name, "N")
    ]
    for curve in sorted(curves, key=lambda c: (c.where, c.metric, SIDES.index(c.view))):
        n_rows = at(series.get(curve._replace(metric=COUNTS[0]), []), end.step)
        values = at(series[curve], start), at(series[curve], end.step), n_rows
        names = curve.where, curve.metric, SIDE_TITLES[curve.view]
        table.append((*names, *map(number, values)))
    return table


def card(folder: Path, fmt: Folder, agreement_text: str, differences: str) -> Any:
    """The model card of an export to `folder`.

    Args:
        folder: of the export.
        fmt: the export.
        agreement_text: how many examples are predicted as recorded.
        differences: differences from the run.
    """
    task, run_folder, result = fmt.rebuilt.task, fmt.rebuilt.folder, fmt.rebuilt.result
    config, overrides = result["config"], result.get("overrides")
    scores = card_scores(run_folder, result, task.metrics().keys())
    model_type = fmt.rebuilt.encoder.model.config.model_type
    parts = {key: config[key] for key in ("isotropy", "site", "objective")}
    return ModelCard.from_template(
        card_data(fmt, scores),
        template_path=str(Path(__file__).with_name("card.md.j2")),
        folder=folder.name,
        fmt=fmt,
        run=result,
        encoder=without_folders(str(result.get("encoder"))),
        data=without_folders(result["data"]),
        task=task,
        scores=scores,
        score_number=score_number,
        is_share=is_share,
        limits=sentences(warnings(result, read_records(run_folder / "metrics.jsonl"))),
        isotropy=isotropy_rows(run_folder, result),
        layer=part_name(config, "isotropy"),
        parts=without_folders(OmegaConf.to_yaml(parts)),
        command=train_command([*map(without_folders, overrides)], config) if overrides else "",
        differences=differences,
        agreement_text=agreement_text,
        citations=citations(config, model_type, task.data_sets),
    )


def card_data(fmt: Folder, scores: Sequence[CardScore]) -> ModelCardData:
    """Metadata of the card. No licence: whoever publishes the folder chooses one."""
    result, task = fmt.rebuilt.result, fmt.rebuilt.task
    config, data_sets = result["config"], task.data_sets
    is_public, user_hub = _is_published(config), (config.get("data") or {}).get("hub")
    is_hub = is_public and str(config["source"]["_target_"]).endswith(".HubSource")
    # contrastive tasks are scored on their last data set; a user's task may have none
    eval_set: Any = data_sets[-1] if data_sets else None
    results = [
        EvalResult(
            task_type="sentence-similarity" if task.form == "bi" else "text-classification",
            dataset_type=eval_set.hub_id if is_hub else result["data"],
            dataset_name=eval_set.name if eval_set else task.name,
            dataset_split="validation" if is_hub and score.split == "dev" else score.split,
            metric_type=score.name,
            metric_value=score.value,
            metric_name=f"{score.name} on {score.split}, N = {score.n_examples}",
        )
        for score in scores
    ]
    return ModelCardData(
        language="en" if _is_ours(config) else None,  # all data sets of isotrain are English
        base_model=base_model(config),
        datasets=[str(data_set.hub_id) for data_set in data_sets if data_set.hub_id and is_public]
        or (user_hub and [user_hub]),
        metrics=sorted({score.name for score in scores}) or None,
        tags=["isotrain", "isotropy", part_name(config, "isotropy"), task.name],
        library_name=fmt.name,
        pipeline_tag=fmt.tag,
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
    layer, *rest = (name for name, _ in methods(config))
    layers = ["gmm_clusters" * (layer == "gmm_pca"), layer]
    layers += ["tuned_clusters"] * (papers().get(layer) == papers()["cluster_pca"])
    names = [data_set.name for data_set in data_sets] if _is_published(config) else []
    return bibtex([encoder, method_name(config, "peft")[0], *layers, *rest, *names])


def _is_ours(config: Mapping[str, Any]) -> bool:
    """Whether the data are the built-in data set of an isotrain task."""
    task, data = config["task"], config.get("data") or {}
    names_none = "data_set" in task and not task["data_set"]
    is_user_data = names_none or data.get("path") or data.get("hub")
    return str(task["_target_"]).startswith("isotrain.tasks.") and not is_user_data


def _is_published(config: Mapping[str, Any]) -> bool:
    """Whether the data are the published ones of an isotrain task, not generated or a user's."""
    is_generated = str(config["source"]["_target_"]).endswith(".DemoSource")
    return _is_ours(config) and not is_generated


def without_folders(text: str) -> str:
    """The text, with each absolute path cut to its last part.

    >>> without_folders("encoder.name=/home/ann/models/minilm")
    'encoder.name=minilm'
    """
    return re.sub(r"(?<![\w./:-])/(?:[^/,'\"\]]+/)*(?=[^/\s])", "", text)
