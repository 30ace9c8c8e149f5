"""Tables and plots of data scale: mean scores, and relative data needs of other features."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import NamedTuple

import pandas as pd
from scipy.optimize import isotonic_regression  # type: ignore[import-untyped]

from isotrain.analysis.charts import LinePlot
from isotrain.analysis.show import Frames, Record, TableSpec, run_saw

ENCODER, STATIC, RANDOM = "encoder", "static", "random"
FEATURES = (ENCODER, STATIC, RANDOM)
LEAST_FACTOR = 2.0  # all data over a size: below it "not reached" says nothing


class Point(NamedTuple):
    """A mean score at a training size, with its 95 % CI; None where nothing varies."""

    mean: float
    low: float | None = None
    high: float | None = None


Curve = Mapping[int, Point]  # by size, ascending


def _curves(frames: Frames, kind: str) -> pd.DataFrame:
    """Records of a kind by `name` of their curve: its features, and of several weights which."""
    frame = frames.of(kind)
    is_encoder, first_weights = frame["features"] == ENCODER, frames.weights[0]
    frame["name"] = frame["features"].where(
        ~is_encoder | (len(frames.weights) == 1), ENCODER + " " + frame["weights"]
    )
    frame = frame[is_encoder | (frame["weights"] == first_weights)]
    return frame.sort_values("features", key=lambda f: f.map(FEATURES.index), kind="stable")


def curves(records: Sequence[Record]) -> dict[str, dict[str, dict[int, Point]]]:
    """The curves of each task, by name."""
    by_task: dict[str, dict[str, dict[int, Point]]] = {}
    for r in _curves(Frames(records), "mean").to_dict("records"):
        curve = by_task.setdefault(r["task"], {}).setdefault(r["name"], {})
        curve[r["size"]] = Point(r["mean"], r["low"], r["high"])
    return by_task


def size_to_reach(means: Mapping[int, float], score: float) -> float:
    """The training size at which a curve first has a score, straight over ln size in between.

    The smallest size if it is already reached there, infinity if it never is.

    >>> size_to_reach({32: 0.5, 128: 0.7}, 0.6)
    64.0
    """
    sizes = sorted(means)
    first = next((k for k, size in enumerate(sizes) if means[size] >= score), None)
    if not first:
        return math.inf if first is None else float(sizes[0])
    previous, size = sizes[first - 1 : first + 1]
    share = (score - means[previous]) / (means[size] - means[previous])
    return round(math.exp(math.log(previous) + share * math.log(size / previous)), 6)


def data_factor(curve: Curve, reference: Curve, size: int) -> tuple[str | None, ...]:
    """How many times the data of the reference at `size` a curve needs for its score, in words.

    (value, least, most): value is from the means of both; least from the upper ends of the
    curve's 95 % CIs and the lower end of the reference's, most from the other ends; all made to
    rise over the sizes (isotonic means). `> x`: not reached with x times the data, which is all,
    and None where x is below 2; `≤ x`: reached at the smallest size.

    >>> own = {32: Point(0.55, 0.5, 0.6), 128: Point(0.7)}
    >>> data_factor(own, {32: Point(0.6), 128: Point(0.8)}, 32)
    ('1.59', '≤ 1', '2')
    """

    def rising(curve: Curve, end: str) -> dict[int, float]:
        values = [point.mean if None in point else getattr(point, end) for point in curve.values()]
        return dict(zip(curve, isotonic_regression(values).x.tolist(), strict=True))

    def text_of(end: str, goal_end: str) -> str | None:
        factor = size_to_reach(rising(curve, end), rising(reference, goal_end)[size]) / size
        if factor < math.inf:
            return f"{'≤ ' * (factor == min(curve) / size)}{factor:.3g}"
        largest = max(curve) / size
        return f"> {largest:.3g}" if largest >= LEAST_FACTOR else None

    varies = any(point.low is not None for point in (*curve.values(), reference[size]))
    pairs = (("high", "low"), ("low", "high")) if varies else ()
    least, most = [text_of(*pair) for pair in pairs] or (None, None)
    return text_of("mean", "mean"), least, most


INTERVALS = "for other seeds and other examples together (crossed), within the score's range"
CHANCE = "largest class"
SPANS = {"conll": "F1 of entities", "chunks": "F1 of chunks"}  # of tagged sentences
FACTS = ("layer", "width", "inputs", "unknown_share", "n_absent", "n_cut", "n_texts")


def _scores_and_chance(frames: Frames) -> pd.DataFrame:
    """Mean scores, followed by the majority-class baseline."""
    scores = _points(frames, "mean")
    chance = scores.drop_duplicates(["task", "size"]).assign(name=CHANCE)
    chance = chance.assign(mean=chance["majority"], mean_low=None, mean_high=None)
    return pd.concat([scores, chance])


def _factors(frames: Frames) -> pd.DataFrame:
    """Factor of data that other features need for each score of the encoder."""
    rows: list[dict[str, object]] = []
    chances = frames.of("features").drop_duplicates("task").set_index("task")["majority"]
    for task, curve_of in curves(frames.records).items():
        other_names = [name for name in curve_of if not name.startswith(ENCODER)]
        for reference in (name for name in curve_of if name.startswith(ENCODER)):
            for size, point in curve_of[reference].items():
                low = point.mean if point.low is None else point.low
                is_above = chances[task] is None or low > chances[task]
                keys = {"task": task, "of": reference, "size": size, "score": point.mean}
                for name in other_names:
                    values = (
                        data_factor(curve_of[name], curve_of[reference], size) if is_above else ()
                    )
                    factor = zip_longest(("value", "least", "most"), values)
                    rows.append({**keys, "name": name, **dict(factor)})
    return pd.DataFrame(rows, dtype=object)


def _unseen(frames: Frames) -> pd.DataFrame:
    """Scores on examples with few and with many words unseen in training."""
    halves, counts = ["score_few_unseen", "score_many_unseen"], ["n_few_unseen", "n_many_unseen"]
    frame = _curves(frames, "score").astype(
        dict.fromkeys(["unseen_share", *halves, *counts], float)
    )
    by_size = frame.groupby(["task", "size"], sort=False)
    frame["unseen_share"] = by_size["unseen_share"].transform("mean")
    frame[counts] = by_size[counts].transform("mean").round().astype(int)
    keys = ["task", "size", "unseen_share", *counts, "name"]
    return frame.groupby(keys, sort=False)[halves].mean().reset_index()


def _points(frames: Frames, kind: str) -> pd.DataFrame:
    """Records of a kind with the name of their curve, facts of their task, and a CI."""
    if frames.of(kind).empty:
        return frames.of(kind)
    points = _curves(frames, kind).drop(columns="weights")
    measure = points["task"].map(lambda task: SPANS.get(task, "accuracy"))
    points = points.rename(columns={"low": "mean_low", "high": "mean_high"}).assign(measure=measure)
    facts = frames.of("features").drop(columns="weights").drop_duplicates("task")
    facts["classes"] = [
        "an example is a sentence, whose words are classified"
        if share is None or share != share
        else f"the largest class has a share of {share:.3f} of the scored examples"
        for share in facts["majority"]
    ]
    return points.merge(facts, on="task", how="left", suffixes=("", "_of_task"))


TABLES = (
    TableSpec(
        "scores_{task}",
        "Scores on {task}",
        of=partial(_points, kind="mean"),
        index={"size": "examples"},
        across="name",
        values={"mean": ""},
        each="task",
        notes=(
            "{measure} on {n_scored:,} examples of {task} ({split}); n = {n_seeds} seeds, which "
            "draw the training examples (nested) and random vectors; mean over them, 95 % CI "
            f"{INTERVALS}.",
            "{task} has {n_train:,} training examples here; {classes}.",
            "The same head on all features, standardised, fitted on four fifths of the examples of "
            "a class, its penalty chosen by the loss on the fifth. Pairs of one premise are on one "
            "side of that cut.",
            run_saw,
        ),
    ),
    TableSpec(
        "data_factor",
        "Times the data that other features need for the encoder's score",
        of=_factors,
        index={"task": "task", "of": "of", "size": "examples", "score": "encoder's score"},
        across="name",
        values={"value": "", "least": "least", "most": "most"},
        notes=(
            "Where the mean curve of the other features first has the encoder's mean score, "
            "straight over the logarithm of the size, both curves made to rise (isotonic means); "
            f"least and most: from the ends of the 95 % CIs of both, {INTERVALS}.",
            "> x: not reached with x times the data, which is all; ≤ x: reached at the smallest "
            "size; –: not reached with less than twice the data, or the encoder's interval "
            "reaches down to the largest class.",
        ),
    ),
    TableSpec(
        "unseen_words",
        "Scores on examples with few and with many words that training did not have",
        of=_unseen,
        index={
            "task": "task",
            "size": "examples",
            "unseen_share": "unseen",
            "n_few_unseen": "n few",
            "n_many_unseen": "n many",
        },
        across="name",
        values={"score_few_unseen": "few", "score_many_unseen": "many"},
        notes=(
            "unseen: share of the words of a scored example that are in no training example, mean; "
            "few, many: up to the median share, and above it. Means over the seeds, n too.",
        ),
    ),
    TableSpec(
        "diagnostic",
        "Categories of the diagnostic set, by heads trained on the largest size ({size:,})",
        of=partial(_points, kind="category"),
        index={"category": "category", "n": "n"},
        across="name",
        values={"mean": ""},
        notes=(
            "Correlation R₃ of predicted and true classes (Gorodkin 2004), 0 = chance; a pair may "
            "be of several categories. Trained on {size:,} examples of snli, {n_seeds} seeds; mean "
            "over seeds, 95 % CI for other seeds and other pairs together (crossed).",
        ),
    ),
    TableSpec(
        "features",
        "What the heads read",
        of="features",
        index={"task": "task", "features": "features"},
        values={name: name for name in FACTS},
        notes=(
            "inputs: of a head; n_absent: sentences or words without a token (of word vectors: "
            "without a known one), whose vector is 0; n_cut: texts longer than max_length. Means "
            "of static and random vectors leave [UNK] out.",
            lambda frames: dict.fromkeys(
                frames.of("features")["features"] + ": " + frames.of("features")["source"]
            ),
        ),
    ),
)
PLOTS = (
    LinePlot(
        "curves_{task}",
        "{task}: {measure} by number of training examples",
        "{measure} on {n_scored:,} examples of {task} over the number of training examples, mean "
        "of {n_seeds} seeds; bands are 95 % CIs for other seeds and other examples.",
        of=_scores_and_chance,
        x="size",
        y={"mean": ""},
        hue="name",
        each="task",
        xlabel="training examples",
        ylabel="{measure}",
        reference=(CHANCE,),
        log=True,
    ),
)
