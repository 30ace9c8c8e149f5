"""Tables and plots of tails."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from isotrain.analysis.charts import LinePlot, Picture
from isotrain.analysis.show import Frames, TableSpec, left_out
from isotrain.analysis.types import Outcome
from isotrain.pages.charts import LAYERS, Spec, chart, mark, quantity

MOST_DIMENSIONS = 3  # outliers whose gains and biases share a table
MOST_NAMED = 8  # outliers labelled in a figure
MOST_LINES = 4  # outliers drawn in a figure of norms


def _outliers(frames: Frames) -> pd.DataFrame:
    outliers = frames.of("outlier")
    if len(outliers):
        counts = zip(outliers["layers_beyond"], outliers["n_layers"], strict=True)
        outliers["beyond"] = [f"{k} of {n}" for k, n in counts]
    return outliers


def _first_norms(frames: Frames, most: int = MOST_DIMENSIONS) -> pd.DataFrame:
    """Norm gains and biases at the first outliers of each set of weights."""
    norms = frames.of("norm")
    if norms.empty:
        return norms
    rank = norms.groupby("weights", sort=False)["dimension"].transform(lambda d: pd.factorize(d)[0])
    return norms[rank < most]


def _embedding_tables(frames: Frames) -> pd.DataFrame:
    """Outlier columns of the embedding tables; the last lines are of all other dimensions."""
    tables = frames.of("table")
    if tables.empty:
        return tables
    tables["table"] = [str(name).removesuffix("_embeddings") for name in tables["table"]]
    rest = tables.drop_duplicates(["weights", "table"])
    rest = rest.assign(dimension="others", size=rest["others"], score=None)
    return pd.concat([tables, rest])


def _wic_chosen(frames: Frames) -> pd.DataFrame:
    """The selected layer of each treatment, then the baseline that always answers `same`."""
    selected = frames.of("wic chosen")
    if selected.empty:
        return selected
    same = selected.drop_duplicates("weights")
    splits = [s for s in ("dev", "test") if s in selected]
    constant = {s: same[f"constant_true_{s}"] for s in splits}
    baseline = same[["weights", "kind"]].assign(treatment="always same", **constant)
    return pd.concat([selected, baseline])


def _sts(frames: Frames) -> pd.DataFrame:
    columns = {"low": "spearman_low", "high": "spearman_high"}
    return frames.of("sts").rename(columns=columns)


def _last_sts(frames: Frames) -> pd.DataFrame:
    scores = _sts(frames)
    return scores[scores["layer"] == scores["layer"].max()] if len(scores) else scores


def _sts_means(frames: Frames) -> pd.DataFrame:
    """Means over the data sets, if every set has a value."""
    scores = _sts(frames)
    if scores.empty:
        return scores
    groups = scores.groupby(["weights", "treatment", "layer"], sort=False)["spearman"]
    means = groups.apply(lambda group: group.mean() if group.notna().all() else None).reset_index()
    return means.assign(n_sets=scores["set"].nunique())


def _norm_lines(frames: Frames) -> pd.DataFrame:
    """Gains and biases in long format."""
    norms = _first_norms(frames, MOST_LINES)
    parts = [
        norms.assign(part=part, score=norms[f"{part}_score"])
        for part in ("gain", "bias")
        if f"{part}_score" in norms
    ]
    if not parts:
        return norms
    lines = pd.concat(parts)
    return lines.assign(dimension=[f"dimension {i}" for i in lines["dimension"]])


def _mean_vectors(outcome: Outcome) -> Iterator[Picture]:
    """The mean vector of each layer, outliers labelled; one figure per set of weights."""
    for name, score_LD in outcome.arrays.items():
        weights = name.partition("/")[0]
        outliers = [
            r for r in outcome.records if r["kind"] == "outlier" and r["weights"] == weights
        ]
        dims = [int(r["dimension"] or 0) for r in outliers][:MOST_NAMED]
        suffix = f" ({len(dims)} of {len(outliers)})" if len(outliers) > len(dims) else ""
        yield Picture(
            f"mean_vectors_{weights}".replace(" ", "_"),
            f"Mean vectors, {weights}",
            [_chart(score_LD, dims, f"mean vectors of the layers, {weights}")],
            "The mean vector of each layer, entry by entry, in standard deviations from the mean "
            f"of its entries; outlier dimensions are named{suffix}.",
        )


def _profile(frames: Frames) -> pd.DataFrame:
    """Scores by position of the first layer above the embeddings, the middle one and the last."""
    profile = frames.of("profile")
    if profile.empty:
        return profile
    last = profile["layer"].max()
    return profile[profile["layer"].isin({1, (last + 1) // 2, last})]


def _chart(score_LD: np.ndarray, dims: list[int], description: str) -> Spec:
    values = [
        {"layer": layer, "dimension": i, "score": float(score)}
        for layer, score_D in enumerate(score_LD)
        for i, score in enumerate(score_D)
    ]
    extremes = [float(score_LD[np.abs(score_LD[:, i]).argmax(), i]) for i in dims]
    labels = [{"dimension": i, "score": score} for i, score in zip(dims, extremes, strict=True)]
    x = quantity("dimension", axis={"format": "d"}, scale={"nice": False})
    y = quantity("score", "entry of the mean vector, in sd")
    colour = {"field": "layer", "type": "ordinal", "scale": LAYERS, "legend": {"columns": 13}}
    marks = [
        mark("line", {"x": x, "y": y, "color": colour}, strokeWidth=0.8),
        mark("text", {"x": x, "y": y, "text": {"field": "dimension"}}, values=labels, dy=-7),
    ]
    return chart(values, "", description, marks)


TABLES = (
    TableSpec(
        "outliers",
        "Outlier dimensions",
        of=_outliers,
        index={"rank": "rank", "dimension": "dimension"},
        values={
            "mean_score": "score",
            "minimum_share": "share of minima",
            "maximum_share": "share of maxima",
            "beyond": "beyond in",
        },
        notes=(
            "An outlier has |score| > {analysis.threshold:g} in at least "
            "{analysis.layers_share:.0%} of the layers above the embeddings; score: how far its "
            "entry of the mean vector, over {analysis.corpus} (train), lies from "
            "the mean of all entries, in their standard deviation; here the mean over those "
            "layers. Shares: of the embeddings of those layers whose smallest, or largest, entry "
            "is there; ± 95 % CI over sentences.",
        ),
    ),
    TableSpec(
        "layers",
        "The foremost dimension of each layer",
        of="layer",
        index={"layer": "layer"},
        values={
            "minimum_dimension": "min dim",
            "minimum_share": "share of minima",
            "maximum_dimension": "max dim",
            "maximum_share": "share of maxima",
            "mean_dimension": "mean dim",
            "mean_score": "score",
            "n_beyond": "beyond",
            "cosine_dimension": "cosine dim",
            "cosine_share": "of cosine",
        },
        notes=(
            "min, max: the dimension that most often holds the smallest, the largest entry, and in "
            "what share of {n_rows:,} tokens of {n_sentences:,} sentences (± 95 % CI over "
            "sentences).",
            "mean: the dimension with the largest |score|; beyond: dimensions over the threshold "
            "in that layer alone; cosine: the dimension that gives most of the mean cosine, and "
            "its part.",
        ),
    ),
    TableSpec(
        "norms",
        f"Gains and biases of norms at the first {MOST_DIMENSIONS} outliers",
        of=_first_norms,
        index={"layer": "layer", "norm": "norm"},
        across="dimension",
        values={"gain_score": "gain", "bias_score": "bias"},
        notes=(
            "z-scores against the dimensions that are no outliers. Layer 0 is the embeddings; the "
            "last norm of a block makes its output in BERT, and stands in front of a sublayer in "
            "GPT-2. All outliers: records.csv.",
        ),
    ),
    TableSpec(
        "embedding_tables",
        "Embedding tables at the outliers",
        of=_embedding_tables,
        index={"dimension": "dimension"},
        across="table",
        values={"size": "size", "score": "score"},
        notes=(
            "size: mean |entry| of the column of a table; others: the mean of that over the "
            "dimensions that are no outliers; score: the distance from it, in their sd.",
        ),
    ),
    TableSpec(
        "positions",
        "Outliers and anisotropy without positions",
        of="positions",
        index={"layer": "layer"},
        across="positions",
        values={"outlier_score": "score", "largest_score": "largest", "anisotropy": "mean cosine"},
        notes=(
            "score: mean |score| of the outliers of the table above; largest: of any dimension; "
            "{n_rows:,} tokens of train. The encoder is run again with the embeddings of all "
            "positions set to zero, or permuted; it was trained with them. One without such "
            "embeddings is shown as it is.",
        ),
        form=".3f",
    ),
    TableSpec(
        "anisotropy",
        "Anisotropy by treatment",
        of="treated",
        index={"layer": "layer"},
        across="treatment",
        values={"anisotropy": ""},
        notes=(
            "{n_rows:,} tokens of {n_sentences:,} other sentences: mean cosine of two of different "
            "sentences, ± 95 % CI (jackknife over sentences).",
            "none: as the encoder gives them; cut: outlier dimensions set to zero in the "
            "embeddings of each layer, the encoder is not run again; whitened: by the mean and "
            "directions of train embeddings alone.",
        ),
    ),
    TableSpec(
        "self_similarity",
        "Self-similarity of words less anisotropy, by treatment",
        of="treated",
        index={"layer": "layer"},
        across="treatment",
        values={"self_similarity_adjusted": ""},
        notes=(
            "{n_rows:,} tokens of {n_sentences:,} other sentences; {n_words:,} tokens of the "
            "vocabulary that occur often enough, ± 95 % CI of the difference (jackknife over "
            "sentences).",
        ),
    ),
    TableSpec(
        "wic",
        "WiC by a threshold on the cosine of the target words",
        of=_wic_chosen,
        index={"treatment": "treatment"},
        values={
            "layer": "layer",
            "threshold": "threshold",
            "train": "train",
            "dev": "dev",
            "test": "test",
            "optimistic_dev": "best cell dev",
            "optimistic_test": "best cell test",
        },
        notes=(
            "Accuracy on {n_dev:,} dev pairs; {n_train:,} training pairs; {n_left_out} pairs left "
            "out, whose target was cut off. Layer and threshold are the best of train, the half of "
            "it that nothing was fitted on; Wilson intervals.",
            "Whitened by the targets of the other half, {n_fit:,} pairs of other words. best cell: "
            "the best of all layers and thresholds on that very split, as published: optimistic, "
            "so it has no interval.",
        ),
    ),
    TableSpec(
        "sts",
        "STS: Spearman × 100 of cosine and gold, layer {layer}",
        of=_last_sts,
        index={"set": "set", "n_pairs": "pairs"},
        across="treatment",
        values={"spearman": ""},
        notes=(
            "Test splits, all pairs of a set together; sentences are means over all their tokens. "
            "Intervals: Bonett and Wright 2000. Whitened by {n_fit:,} sentences of STS-B's train "
            "split that are in no test set.",
            left_out("sts left out", "set"),
        ),
        form=".1f",
    ),
    TableSpec(
        "sts_layers",
        "STS: Spearman × 100 of each layer",
        of=_sts,
        index={"layer": "layer", "treatment": "treatment"},
        across="set",
        values={"spearman": ""},
        bare=True,
    ),
)


PLOTS = (
    _mean_vectors,
    LinePlot(
        "norms_{weights}",
        "norms at outlier dimensions, {weights}: z-score against the other dimensions",
        f"Gains and biases of at most {MOST_LINES} outliers: the norms of block l stand between "
        "l − 1 and l, in their order.",
        of=_norm_lines,
        x="place",
        y={"score": ""},
        hue="dimension",
        panel="part",
        each="weights",
        xlabel="layer (0 = embedding output)",
    ),
    LinePlot(
        "positions_{weights}",
        "outlier dimensions by position, {weights}: mean |score|",
        "How far the outliers lie out in the mean vector of the tokens at a position; a line for "
        "each of three layers.",
        of=_profile,
        x="position",
        y={"outlier_score": ""},
        hue="layer",
        each="weights",
        xlabel="position in the sentence",
    ),
    *(
        LinePlot(column, title, f"By layer: {title}.", of=of, y={column: ""}, hue="treatment")
        for of, column, title in (
            ("treated", "anisotropy", "anisotropy of tokens"),
            ("treated", "self_similarity_adjusted", "self-similarity of words, less anisotropy"),
            ("wic", "dev", "WiC, accuracy on dev at the threshold of train"),
            (_sts_means, "spearman", "STS: Spearman × 100, mean over {n_sets} sets"),
        )
    ),
)
