"""The model card of an export, `README.md`: what it is, how it was made, how well it does."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from huggingface_hub import EvalResult, ModelCardData

from isotrain.export.agreement import Agreement
from isotrain.export.card_figures import Figures, Scored
from isotrain.export.citations import citations
from isotrain.export.rebuilt import Rebuilt
from isotrain.export.round_trip import Differences
from isotrain.export.source_run import SourceRun
from isotrain.export.usage import usage
from isotrain.pages.repeat import train_command
from isotrain.runs.files import replace_text

if TYPE_CHECKING:
    from isotrain.export.command import Format

HUB_ID = re.compile(r"\w[\w.-]*(/[\w.-]+)?")


class Checked(NamedTuple):
    """What a card is made of beside the folder itself."""

    run: SourceRun
    rebuilt: Rebuilt
    figures: Figures
    agreed: Agreement  # with the predictions of the run


def write_card(
    part: Path, folder: Path, checked: Checked, made: Format, found: Differences
) -> None:
    """Write the card of a folder that is filled as `part` and will be `folder`."""
    scored = checked.figures.scored
    head = card_data(checked.run, checked.rebuilt, made, scored).to_yaml(line_break="\n")
    body = _body(folder, checked, made, found)
    replace_text(part / "README.md", f"---\n{head}\n---\n\n{body}")


def kind_of(made: Format) -> str:
    """The pipeline tag of the hub."""
    if made.name == "sentence-transformers":
        return "sentence-similarity"
    return "feature-extraction" if made.plan.classifier is None else "text-classification"


def card_data(
    run: SourceRun, rebuilt: Rebuilt, made: Format, figures: list[Scored]
) -> ModelCardData:
    """The head of the card. No licence: it is for whoever publishes the folder to choose one."""
    config, data_sets = run.config, rebuilt.task.data_sets
    ours = str(config["task"]["_target_"]).startswith("isotrain.tasks.")
    generated = str(config["source"]["_target_"]).endswith(".DemoSource")
    known = ours and not generated
    layer = str(config["isotropy"]["_target_"]).split(".")[-2]
    # of contrastive tasks the scored set is the last one; a user's task may have none
    evaluated: Any = data_sets[-1] if data_sets else None
    results = [
        EvalResult(
            task_type=kind_of(made),
            dataset_type=evaluated.hub_id if known else run.result.get("data", "unknown"),
            dataset_name=str(getattr(evaluated, "name", rebuilt.task.name)),
            dataset_split="validation" if one.split == "dev" else one.split,
            metric_type=one.name,
            metric_value=one.value,
            metric_name=f"{one.name} on {one.split}, N = {one.n_rows}",
        )
        for one in figures
    ]
    return ModelCardData(
        language="en" if ours else None,  # every data set of isotrain is English
        base_model=base_model(config),
        datasets=[one.hub_id for one in data_sets] if known else None,
        metrics=sorted({one.name for one in figures}) or None,
        tags=["isotrain", "isotropy", layer, rebuilt.task.name],
        library_name=made.name,
        pipeline_tag=kind_of(made),
        model_name=f"{rebuilt.task.name}-{run.result.get('arm')}" if results else None,
        eval_results=results or None,
    )


def base_model(config: Mapping[str, Any]) -> str | None:
    """The hub id of the encoder; None for a folder, or for random weights.

    >>> base_model({"encoder": {"name": "google-bert/bert-base-uncased"}})
    'google-bert/bert-base-uncased'
    """
    name = config["encoder"].get("name")
    is_id = isinstance(name, str) and HUB_ID.fullmatch(name) and not Path(name).exists()
    return name if is_id else None


def _body(folder: Path, checked: Checked, made: Format, found: Differences) -> str:
    run, rebuilt, figures, agreed = checked
    result, config = run.result, run.config
    n_rows = ", ".join(f"{n:,} {split}" for split, n in result["n_rows"].items() if n)
    entries = citations(config, rebuilt.network.config.model_type, rebuilt.task.data_sets)
    cited = "\n\n".join(entries) if entries else "% none is known for this encoder and method"
    return f"""# {rebuilt.task.name} · {result.get("arm")} · seed {result.get("seed")}

{_what(run, rebuilt, made)}

## Use

{usage(folder, rebuilt, made)}

## Scores

{figures.score_table}

One training, seed {result.get("seed")} (seed count 1). The intervals are row bootstraps: they
say how the score of these weights would vary on other rows, and nothing of another seed.

## Isotropy of the last layer

On dev, in front of the isotropy layer and behind it, before training and at its end.

{figures.isotropy_table}

## Data and training

- encoder: {result.get("encoder")}
- data: {result.get("data")}; rows: {n_rows}
- isotropy layer: {_node(config["isotropy"])} at {", ".join(config["site"])}
- objectives: {", ".join(map(_node, config["objective"].values())) or "none beside the task's loss"}
- optimizer steps: {result.get("steps")}
- versions: {", ".join(f"{k} {v}" for k, v in result.get("environment", {}).items() if v)}

```
{_command(run)}
```

## Whether it is the run

The folder was loaded again as above and compared with the run on
{len(rebuilt.batch.index)} rows of dev: {found}.

Whether its weights are those that the run was scored with: {agreed}.

## Citations

```bibtex
{cited}
```
"""


def _what(run: SourceRun, rebuilt: Rebuilt, made: Format) -> str:
    start = run.result.get("encoder")
    on = f"`{rebuilt.task.name}` (form {rebuilt.task.form})"
    text = f"{start}, fine-tuned on {on} with isotrain: {made.what}."
    if start_of := run.config.get("init_from"):
        text += f" The encoder started from the run {start_of}."
    return text


def _node(node: Mapping[str, Any]) -> str:
    keys = ", ".join(
        f"{key}={_node(value) if isinstance(value, Mapping) and '_target_' in value else value}"
        for key, value in node.items()
        if key not in ("_target_", "_partial_")
    )
    return f"{str(node['_target_']).rpartition('.')[2]}({keys})"


def _command(run: SourceRun) -> str:
    if overrides := run.result.get("overrides"):
        return train_command(overrides, run.config, rerun=False)
    return shlex.join(["isotrain", "job", str(run.folder / "result.json")])
