"""Tables and plots of offline isotropy."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from isotrain.analysis.data_sets import PLACES, TEST_SETS
from isotrain.analysis.show import Frames, LinePlot, Picture, TableSpec, draw_by_frequency, left_out
from isotrain.analysis.types import Outcome

NONE: Final = "none"  # the setting that gains are over
CLOUD = ("n_rows", "rms_norm", "mean_cosine", "isoscore", "ln_partition", "chance", "less_chance")
MAIN = "stsb"  # the set that is shown layer by layer first, where it was measured
MEAN = ["spearman", "pearson", "spearman_gain"]  # what a mean over sets is taken of
PLACE = ["weights", "layer", "setting"]


def _similar(frames: Frames) -> pd.DataFrame:
    """Means over the test sets, if every set has a value, then correlations of every set."""
    found = frames.of("similarity")
    if found.empty:
        return found
    tests = found[found["set"].isin(TEST_SETS)]
    n_sets = tests["set"].nunique()
    if n_sets < 2:
        return found
    groups = tests.astype(dict.fromkeys(MEAN, float)).groupby(PLACE, sort=False)
    means = groups[MEAN].mean().where(groups[MEAN].count() == n_sets)
    means = means[groups.size() == n_sets].reset_index()
    return pd.concat([means.assign(set=f"mean of {n_sets} test sets"), found])


def _at_a_glance(frames: Frames) -> pd.DataFrame:
    """Mean over test sets and one set, with gains over `none`."""
    found = _similar(frames)
    if found.empty:
        return found
    found = found[~found["set"].isin(set(PLACES) - {_main_set(frames)})]
    values = zip(found["spearman"], found["spearman_gain"], found["setting"], strict=True)
    texts = [None if pd.isna(v) else f"{v:.1f}{_gain(g, s)}" for v, g, s in values]
    return found.assign(text=texts)


def _gain(gain: float | None, setting: str) -> str:
    return "" if setting == NONE or pd.isna(gain) else f" ({gain:+.1f})"


def _gained(frames: Frames) -> pd.DataFrame:
    found = _similar(frames)
    return found if found.empty else found[found["setting"] != NONE]


def _clouds(frames: Frames) -> pd.DataFrame:
    """Every cloud, with ln I(W) minus its null."""
    found = frames.of("cloud")
    less_chance = found["ln_partition"] - found["chance"].astype(float)
    found = found.drop(columns=["chance_low", "chance_high"])  # a range of clouds is no CI
    return found.assign(less_chance=less_chance)


def _untransformed(frames: Frames) -> pd.DataFrame:
    found = _clouds(frames)
    return found[(found["set"] == _main_set(frames)) & (found["setting"] == NONE)]


def _main_set(frames: Frames) -> str:
    """STS-B, or else the first measured set."""
    found = set(frames.of("cloud")["set"])
    return MAIN if MAIN in found else next(name for name in PLACES if name in found)


def _scored(frames: Frames) -> Iterator[str]:
    pairs = frames.of("similarity").drop_duplicates("set")
    told = ", ".join(f"{s} {n:,}" for s, n in zip(pairs["set"], pairs["n_pairs"], strict=True))
    yield f"Pairs: {told}."


def _map_pictures(outcome: Outcome) -> Iterator[Picture]:
    """Embeddings of one set, one panel per transform; one figure per layer and weights."""
    mapped: dict[tuple[str, str], dict[str, np.ndarray]] = {}
    for key, array in outcome.arrays.items():
        weights, layer, name = key.split("/")
        mapped.setdefault((weights, layer), {})[name] = array
    for (weights, layer), own in mapped.items():
        shown = [name.removeprefix("map_") for name in own if name.startswith("map_")]
        yield Picture(
            f"rows_{weights}_{layer}".replace(" ", "_"),
            f"Token embeddings in two dimensions, {layer}, weights {weights}",
            _maps(own, shown),
            f"{len(own['frequency']):,} tokens on the two dominant directions of each cloud, "
            "all to one scale, coloured by how often the token occurs.",
        )


def _maps(own: Mapping[str, np.ndarray], shown: Sequence[str]) -> Figure:
    n_lines = -(-len(shown) // COLUMNS)
    figure = Figure(figsize=(7.2, 0.4 + 2.2 * n_lines), layout="constrained")
    everything = np.concatenate([own[f"map_{setting}"] for setting in shown])
    low_2, high_2 = everything.min(axis=0), everything.max(axis=0)
    margin = 0.03 * float((high_2 - low_2).max()) or 1.0
    for number, setting in enumerate(shown, start=1):
        axis = figure.add_subplot(n_lines, COLUMNS, number)
        points = draw_by_frequency(axis, own[f"map_{setting}"], own["frequency"])
        first, second = own[f"share_{setting}"]
        axis.set_title(f"{setting}\n{first:.1%} and {second:.1%} of the variance", fontsize=7)
        limits = [(low - margin, high + margin) for low, high in zip(low_2, high_2, strict=True)]
        axis.set(xlim=limits[0], ylim=limits[1], aspect="equal", xticks=[], yticks=[])
    bar = figure.colorbar(points, ax=figure.axes, shrink=0.6)
    bar.set_label("occurrences of the token", fontsize=7)
    bar.ax.tick_params(labelsize=7)
    return figure


LEFT_OUT = left_out("set left out", "set")
FITTED = (
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
COLUMNS = 3  # of a figure
BY_SET = {"set": "set", "layer": "layer"}
TABLES = (
    TableSpec(
        "layers",
        "Spearman × 100 by layer, with the gain over none",
        of=_at_a_glance,
        index=BY_SET,
        across="setting",
        values={"text": ""},
        notes=(_scored, LEFT_OUT, *FITTED),
    ),
    TableSpec(
        "isotropy",
        "Isotropy of the token embeddings of {set} by layer, untransformed",
        of=_untransformed,
        index={"layer": "layer"},
        values={name: name for name in CLOUD},
        notes=ISOTROPY,
    ),
    *(
        TableSpec(
            name,
            title,
            of=of,
            index=BY_SET,
            across="setting",
            values={column: ""},
            notes=(PAIRED,),
            form=form,
        )
        for name, title, of, column, form in (
            ("spearman", "Spearman of cosine and gold, × 100", _similar, "spearman", ".2f"),
            ("gains", "Gain in Spearman over none, × 100", _gained, "spearman_gain", "+.2f"),
            ("pearson", "Pearson of cosine and gold, × 100", _similar, "pearson", ".2f"),
        )
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
        of="head",
        index={"split": "split", "n_train": "n_train", "n_rows": "n_rows", "layer": "layer"},
        across="setting",
        values={"accuracy": ""},
        notes=(
            "Transforms and head (logistic regression) are fitted on train alone, a head a layer; "
            "nothing is selected. Wilson intervals: records.csv.",
        ),
        bare=True,
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
    _map_pictures,
)
