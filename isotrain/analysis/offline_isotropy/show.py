"""Tables and plots of offline isotropy."""

from collections.abc import Iterator
from typing import Final

import pandas as pd

from isotrain.analysis.charts import LinePlot
from isotrain.analysis.data_sets import TEST_SETS
from isotrain.analysis.show import Frames, TableSpec, left_out

NONE: Final = "none"  # the baseline of the gains
CLOUD = ("n_rows", "rms_norm", "mean_cosine", "isoscore", "ln_partition", "chance", "less_chance")
MEAN = ["spearman", "pearson", "spearman_gain"]  # columns averaged over the sets
PLACE = ["weights", "layer", "setting"]


def _similar(frames: Frames) -> pd.DataFrame:
    """Means over the test sets, if every set has a value, then correlations of every set."""
    scores = frames.of("similarity")
    if scores.empty:
        return scores
    tests = scores[scores["set"].isin(TEST_SETS)]
    n_sets = tests["set"].nunique()
    if n_sets < 2:
        return scores
    groups = tests.astype(dict.fromkeys(MEAN, float)).groupby(PLACE, sort=False)
    means = groups[MEAN].mean().where(groups[MEAN].count() == n_sets)
    means = means[groups.size() == n_sets].reset_index()
    return pd.concat([means.assign(set=f"mean of {n_sets} test sets"), scores])


def _gained(frames: Frames) -> pd.DataFrame:
    scores = _similar(frames)
    return scores if scores.empty else scores[scores["setting"] != NONE]


def _heads(frames: Frames) -> pd.DataFrame:
    """Accuracies without their intervals, which would be seven more columns."""
    return frames.of("head").drop(columns=["accuracy_low", "accuracy_high"], errors="ignore")


def _clouds(frames: Frames) -> pd.DataFrame:
    """Every cloud, with ln I(W) minus its null."""
    clouds = frames.of("cloud")
    less_chance = clouds["ln_partition"] - clouds["chance"].astype(float)
    clouds = clouds.drop(columns=["chance_low", "chance_high"])  # a range over clouds is no CI
    return clouds.assign(less_chance=less_chance)


def _pair_counts(frames: Frames) -> Iterator[str]:
    pairs = frames.of("similarity").drop_duplicates("set")
    sizes = ", ".join(f"{s} {n:,}" for s, n in zip(pairs["set"], pairs["n_pairs"], strict=True))
    yield f"Pairs: {sizes}."


FITTED = (
    _pair_counts,
    left_out("set left out", "set"),
    "Transforms are fitted with fit_on={analysis.fit_on} (train: STS-B train, less the sentences "
    "that are scored; test: the sentences that are scored, without their gold, the published "
    "protocol): {analysis.n_clusters} clusters (k-means++ from the seed, {analysis.n_iterations} "
    "rounds) of {analysis.n_components} directions each; mean_pca removes {analysis.n_directions}. "
    "Each different sentence counts once. own_pooling: mean over all tokens; every other setting "
    "leaves CLS and SEP out.",
)
PAIRED = (
    "± 95 % CI, of {analysis.n_resamples} bootstrap resamples of the pairs, of gains the same for "
    "both settings, without the spread over seeds of clusters. The mean over sets has none: STS-B "
    "holds pairs of the other sets."
)
ISOTROPY = (
    "ln_partition: ln I(W) over eigenvectors with both signs, 0 = isotropic; it depends on N and "
    "the rms norm. chance: its median for Gaussian rows of the same N, D and norm; less_chance: "
    "ln I(W) less that.",
    "isoscore: in [0, 1], 1 = isotropic; it does not see the mean, which mean_cosine does.",
)
BY_SET = {"set": "set", "layer": "layer"}
TABLES = (
    *(
        TableSpec(
            name,
            title,
            of=of,
            index=BY_SET,
            across="setting",
            values={column: ""},
            notes=(PAIRED, *notes),
            form=form,
        )
        for name, title, of, column, form, notes in (
            ("spearman", "Spearman of cosine and gold, × 100", _similar, "spearman", ".2f", FITTED),
            ("gains", "Gain in Spearman over none, × 100", _gained, "spearman_gain", "+.2f", ()),
            ("pearson", "Pearson of cosine and gold, × 100", _similar, "pearson", ".2f", ()),
        )
    ),
    TableSpec(
        "partition",
        "ln I(W) of the token embeddings before (none) and after each transform",
        of="cloud",
        index=BY_SET,
        across="setting",
        values={"ln_partition": ""},
        notes=(ISOTROPY[0], "chance and the other measures: the next table."),
        form=".2f",
    ),
    TableSpec(
        "clouds",
        "Token embeddings before (none) and after each transform",
        of=_clouds,
        index={**BY_SET, "setting": "setting"},
        values={name: name for name in ("n_fitted", *CLOUD)},
        notes=(
            "n_fitted: tokens the statistics come from; n_rows: tokens measured (sst2: of train).",
            *ISOTROPY,
        ),
    ),
    TableSpec(
        "sst2",
        "SST-2: accuracy of a linear head on frozen, mean-pooled features",
        of=_heads,
        index={"split": "split", "n_train": "n_train", "n_rows": "n_rows", "layer": "layer"},
        across="setting",
        values={"accuracy": ""},
        notes=(
            "Transforms and head (logistic regression) are fitted on train alone, a head a layer; "
            "nothing is selected. Wilson intervals: records.csv.",
        ),
    ),
)


PLOTS = (
    LinePlot(
        "spearman",
        "Spearman correlation by layer",
        "Spearman correlation of cosine and gold over all pairs, a panel a set, a line a setting, "
        "layer 0 the embedding output; bands are 95 % CIs over pairs.",
        of=_similar,
        y={"spearman": ""},
        hue="setting",
        panel="set",
        xlabel="layer",
        ylabel="Spearman × 100",
    ),
    LinePlot(
        "partition",
        "Partition isotropy of the token embeddings by layer",
        "ln I(W) of the token embeddings (0 = isotropic), a panel a set, a line a setting; thin "
        "dotted lines are what Gaussian rows of the same number and norm have.",
        of="cloud",
        y={"ln_partition": ""},
        hue="setting",
        panel="set",
        xlabel="layer",
        ylabel="ln I(W)",
        null="chance",
    ),
)
