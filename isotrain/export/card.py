"""Model card of an export, `README.md`: description, training, evaluation."""

import re
import shlex
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import EvalResult, ModelCardData

from isotrain.config.names import method_name, methods, part_name
from isotrain.encoders.on_disk import MINILM
from isotrain.export.folders import Differences, Format
from isotrain.export.rebuilt import Agreement, Rebuilt
from isotrain.export.source_run import SourceRun
from isotrain.pages.limitations import faults, warnings
from isotrain.pages.repeat import train_command
from isotrain.resources.references import bibtex, papers
from isotrain.results.markdown import aligned
from isotrain.results.numbers import is_share, number, score_number
from isotrain.results.readings import SIDE_TITLES, label
from isotrain.results.row_bootstrap import SCORES, row_interval
from isotrain.results.runs import SPLITS
from isotrain.results.series import at, end_of, isotropy_series
from isotrain.results.statistics import accuracy_interval
from isotrain.runs.files import read_records, replace_text
from isotrain.runs.keys import COUNTS, SIDES, CurveKey
from isotrain.runs.predictions import read_predictions


class Scored(NamedTuple):
    """One score of a run."""

    split: str  # dev | test
    name: str
    value: float
    interval: tuple[float, float] | None  # 95 % CI over examples, if it can be computed
    n_examples: int


def scored(run: SourceRun, names: Collection[str]) -> list[Scored]:
    """The named scores on dev and test, the monitored one first in each."""
    monitored = str(run.result["monitor"]).rpartition("/")[2]
    scores, found = run.result["scores"], []
    for key, value in scores.items():
        stage, _, name = key.partition("/")
        if stage in SPLITS and name in names:
            split = SPLITS[stage]
            n_examples = int(scores.get(f"{stage}/n_rows", run.result["n_rows"].get(split, 0)))
            interval = accuracy_interval(key, value, n_examples) or _interval(run, split, name)
            found.append(Scored(split, name, float(value), interval, n_examples))
    return sorted(found, key=lambda one: (one.split, one.name != monitored, one.name))


def _interval(run: SourceRun, split: str, name: str) -> tuple[float, float] | None:
    """CI from the difference to perfect predictions, which score 1 in any resample."""
    kept = read_predictions(run.folder, split)
    if kept is None or name not in SCORES:
        return None
    try:
        found = row_interval([kept.prediction], [kept.label], kept.label, SCORES[name])
    except ValueError:  # the score is undefined in too many resamples
        return None
    if found.low is None or found.high is None:
        return None
    return 1 + found.low, min(1.0, 1 + found.high)


def score_table(found: Sequence[Scored]) -> str:
    """The scores as a markdown table."""
    lines = [("split", "score", "value", "95 % CI", "N")]
    for one in found:
        key = f"test/{one.name}"
        ends = " to ".join(score_number(end, key) for end in one.interval or ())
        value = score_number(one.value, key) + " points" * is_share(key)
        lines.append((one.split, one.name, value, ends or "–", f"{one.n_examples:,}"))
    return "\n".join(aligned(lines))


def isotropy_table(run: SourceRun) -> str:
    """The headline metrics at every site, before fine-tuning and of the exported weights."""
    rows = read_records(run.folder / "metrics.jsonl")
    wanted: Sequence[str] = run.result.get("headline") or ()
    measured = [isotropy_series(rows, metric) for metric in wanted]
    curves = {c: values for found in measured for c, values in found.items() if c.view in SIDES}
    if not curves:
        return "The run measured none."
    sizes = isotropy_series(rows, COUNTS[0])
    start = min(values[0][0] for values in curves.values())
    end = end_of(run.result, rows)
    lines = [("site", "metric", "of the layer", f"step {start:.0f}", end.name, "N")]

    def order(curve: CurveKey) -> tuple[str, int, int]:
        return curve.where, wanted.index(curve.metric), SIDES.index(curve.view)

    for curve in sorted(curves, key=order):
        n_rows = at(sizes.get(curve._replace(metric=COUNTS[0]), []), end.step)
        names = curve.where, label(curve.metric), SIDE_TITLES[curve.view]
        first, last = at(curves[curve], start), at(curves[curve], end.step)
        lines.append((*names, number(first), number(last), number(n_rows)))
    return "\n".join(aligned(lines))


HUB_ID = re.compile(r"\w[\w.-]*(/[\w.-]+)?")


class Checked(NamedTuple):
    """Content of a card that does not come from the folder itself."""

    run: SourceRun
    rebuilt: Rebuilt
    scored: list[Scored]
    isotropy: str  # a table
    agreed: Agreement  # with the predictions of the run


def write_card(
    part: Path, folder: Path, checked: Checked, made: Format, found: Differences
) -> None:
    """Write the card of an export that is built in `part` and will be moved to `folder`."""
    head = card_data(checked, made).to_yaml(line_break="\n")
    replace_text(part / "README.md", f"---\n{head}\n---\n\n{_body(folder, checked, made, found)}")


def card_data(checked: Checked, made: Format) -> ModelCardData:
    """Metadata of the card. No licence: whoever publishes the folder chooses one."""
    run, task, figures = checked.run, checked.rebuilt.task, checked.scored
    data_sets = task.data_sets
    known, own = _is_published(run.config), run.config.get("data") or {}
    own_hub = [own["hub"]] if own.get("hub") else None
    of_hub = known and str(run.config["source"]["_target_"]).endswith(".HubSource")
    # contrastive tasks are scored on their last data set; a user's task may have none
    evaluated: Any = data_sets[-1] if data_sets else None
    results = [
        EvalResult(
            task_type="sentence-similarity" if task.form == "bi" else "text-classification",
            dataset_type=evaluated.hub_id if of_hub else run.result["data"],
            dataset_name=evaluated.name if evaluated else task.name,
            dataset_split="validation" if of_hub and one.split == "dev" else one.split,
            metric_type=one.name,
            metric_value=one.value,
            metric_name=f"{one.name} on {one.split}, N = {one.n_examples}",
        )
        for one in figures
    ]
    return ModelCardData(
        language="en" if _is_ours(run.config) else None,  # all data sets of isotrain are English
        base_model=base_model(run.config),
        datasets=[str(one.hub_id) for one in data_sets if one.hub_id] if known else own_hub,
        metrics=sorted({one.name for one in figures}) or None,
        tags=["isotrain", "isotropy", part_name(run.config, "isotropy"), task.name],
        library_name=made.name,
        pipeline_tag=made.tag,
        model_name=f"{task.name}-{run.result.get('method')}" if results else None,
        eval_results=results or None,
    )


def base_model(config: Mapping[str, Any]) -> str | None:
    """Hub id of the encoder; None for a folder or random weights.

    >>> base_model({"encoder": {"name": "google-bert/bert-base-uncased"}})
    'google-bert/bert-base-uncased'
    """
    name = config["encoder"].get("name")
    is_id = isinstance(name, str) and HUB_ID.fullmatch(name) and not Path(name).exists()
    return name if is_id else None


def citations(config: Mapping[str, Any], model_type: str, data_sets: Sequence[Any]) -> list[str]:
    """BibTeX of encoder, adapters, layer, objectives, optimizer, freezing and data, if known."""
    is_minilm = config["encoder"]["_target_"] == MINILM
    parts = [name for name, _ in methods(config)]
    if papers().get(parts[0]) == papers()["cluster_pca"]:
        one = config["isotropy"].get("n_clusters") == 1  # of a record without names
        parts[:1] = ["one_cluster"] if one else [parts[0], "tuned_clusters"]
        parts[:0] = ["gmm_clusters"] if config["isotropy"].get("assign") == "gmm" else []
    adapter, _ = method_name(config, "peft")
    names = [one.name for one in data_sets] if _is_published(config) else []
    return bibtex(["minilm" if is_minilm else model_type, adapter, *parts, *names])


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


def _body(folder: Path, checked: Checked, made: Format, found: Differences) -> str:
    run, rebuilt, scores, isotropy, agreed = checked
    result, config, task = run.result, run.config, rebuilt.task
    sizes = ", ".join(f"{n:,} {split}" for split, n in result["n_rows"].items() if n)
    start = f", started from the run {config['init_from']}" if config.get("init_from") else ""
    encoder, layer = without_folders(str(result["encoder"])), part_name(config, "isotropy")
    objectives = ", ".join(map(_node, config["objective"].values())) or "the task's loss alone"
    rows = read_records(run.folder / "metrics.jsonl")
    limits = [*faults(result), *warnings(result, rows)]
    limits.append(
        "One seed: the 95 % CI is over examples, and says nothing of another training "
        "(Wilson's for an accuracy, a bootstrap of the examples for other scores)."
    )
    entries = citations(config, rebuilt.network.config.model_type, task.data_sets)
    cited = "\n\n".join(entries) or "% none is known for this encoder and method"
    return f"""# {task.name} · {result.get("method")} · seed {result.get("seed")}

{encoder}, fine-tuned on `{task.name}` (form {task.form}) with isotrain{start}:
{made.what}.

## Use

{made.usage(Path(folder.name))}

## Scores

{score_table(scores)}

Limitations:

{chr(10).join(f"- {text}" for text in limits)}

## Isotropy at each site

On dev, before fine-tuning and with the exported weights.

{isotropy}

## Training

- data: {without_folders(result["data"])}; examples: {sizes}
- isotropy layer: {layer}, {_node(config["isotropy"])} at {", ".join(config["site"])}
- objectives: {objectives}
- optimizer steps: {result.get("steps")}
- versions: {", ".join(f"{k} {v}" for k, v in result["environment"].items() if v)}

```
{_command(run)}
```

## Verification

Loaded again and compared with the run on {len(rebuilt.batch.index)} examples of dev: {found}.
Weights against the record of the run: {agreed}.

## Citations

```bibtex
{cited}
```
"""


def _node(node: Mapping[str, Any]) -> str:
    keys = ", ".join(
        f"{key}={_node(value) if isinstance(value, Mapping) and '_target_' in value else value}"
        for key, value in node.items()
        if key not in ("_target_", "_partial_")
    )
    return f"{str(node['_target_']).rpartition('.')[2]}({keys})"


def _command(run: SourceRun) -> str:
    if overrides := run.result.get("overrides"):
        return train_command(list(map(without_folders, overrides)), run.config, rerun=False)
    return shlex.join(["isotrain", "run", without_folders(str(run.folder / "result.json"))])


def without_folders(text: str) -> str:
    """The text with the last part alone of each absolute path.

    >>> without_folders("encoder.name=/home/ann/models/minilm")
    'encoder.name=minilm'
    """
    return re.sub(r"(?<![\w./:-])/(?:[^/,'\"\]]+/)*(?=[^/\s])", "", text)
