"""How to read each metric: the comments at the top of `conf/metric/<name>.yaml`."""

import re
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

from isotrain.config.shipped import shipped
from isotrain.runs.keys import metric_of

TITLES = {  # of views
    "cls": "first token (CLS)",
    "tokens": "tokens",
    "mean": "mean of tokens",
    "last": "last token",
}
SIDE_TITLES = {"before": "layer input", "after": "output"}  # of a site; the head reads its output
CAUSAL = "first token (causal: it sees nothing else)"


class Reading(NamedTuple):
    """How to read a metric, in brief."""

    label: str
    end: str  # which value is isotropic, as "1 = isotropic"
    range: str
    says: str  # what it measures
    unchanged_by: str  # R rotation, T translation, S scale, L the length of each vector
    ignores: str
    small_n: str  # what few embeddings do to it
    source: str
    parts: Mapping[str, str] = MappingProxyType({})  # of a metric of several values

    @property
    def title(self) -> str:
        """The label, with the isotropic end where that is one number.

        >>> readings()["isoscore"].title, readings()["outlier_dims"].title
        ('IsoScore (1 = isotropic)', 'outlier dimensions')
        """
        return f"{self.label} ({self.end})" if re.match(r"\S+ = ", self.end) else self.label

    @property
    def text(self) -> str:
        """How to read it, in a sentence."""
        return (
            f"Range {self.range}; {self.says}. It ignores {self.ignores}; few embeddings: "
            f"{self.small_n} ({self.source})."
        )


FIELDS = {*Reading._fields}


@cache
def readings() -> dict[str, Reading]:
    """The reading of every metric whose yaml has a complete header, by name.

    >>> readings()["mean_cosine"].source
    'Ethayarajh 2019'
    """
    yaml_texts = {file.name: file.read_text("utf-8") for file in shipped("metric").iterdir()}
    heads = {name.partition(".")[0]: _head(text) for name, text in sorted(yaml_texts.items())}
    return {name: Reading(**head) for name, head in heads.items() if {*head, "parts"} == FIELDS}


def _head(text: str) -> dict[str, Any]:
    """The comments of a yaml, read as yaml; empty where they are prose."""
    lines = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("#")]
    try:
        head = yaml.safe_load("\n".join(lines))
    except yaml.YAMLError:
        return {}
    return head if isinstance(head, dict) else {}


def base_of(metric: str) -> str:
    """The metric that gives a logged value; the value's own name if there is none.

    >>> base_of("outlier_dims_share_1"), base_of("isoscore_corrected"), base_of("mine")
    ('outlier_dims', 'isoscore_corrected', 'mine')
    """
    return metric_of(metric, readings()) or metric


def label(metric: str) -> str:
    """Readable name of a value.

    >>> label("mean_cosine"), label("scatter_ratio_share"), label("top_share")
    ('mean cosine (0 = isotropic)', 'between over within class scatter: share', 'top share')
    """
    base = base_of(metric)
    if base not in readings():
        return metric.replace("_", " ")
    part = metric[len(base) :].strip("_").replace("_", " ")
    return readings()[base].title + (f": {part}" if part else "")


def part_reading(metric: str) -> str:
    """Meaning of one value of a metric with several; empty if not documented.

    >>> part_reading("lid_n_queries"), part_reading("isoscore")
    ('embeddings that the value is a mean of', '')
    """
    base = base_of(metric)
    parts = readings()[base].parts if base in readings() else {}
    return parts.get(re.sub(r"_\d+$", "", metric[len(base) + 1 :]), "")


def isotropic_value(metric: str) -> float | None:
    """The value of isotropic embeddings, if it is a single number.

    >>> isotropic_value("isoscore"), isotropic_value("rankme")
    (1.0, None)
    """
    reading = readings().get(metric)
    match = re.match(r"([01]) = isotropic", reading.end) if reading else None
    return float(match[1]) if match else None


def view_titles(result: Mapping[str, Any]) -> dict[str, str]:
    """Title of each view of a layer, from the record of a run."""
    return TITLES | ({"cls": CAUSAL} if result.get("is_causal") else {})
