"""Tables and plots of data scale: mean scores, and relative data needs of other features."""

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import NamedTuple

import pandas as pd
from scipy.optimize import isotonic_regression  # type: ignore[import-untyped]

from isotrain.analysis.show import Frames, LinePlot, Record, TableSpec, run_saw

ENCODER, STATIC, RANDOM = "encoder", "static", "random"
FEATURES = (ENCODER, STATIC, RANDOM)
LEAST_FACTOR = 2.0  # of the data there are: below it "not reached" says nothing


class Point(NamedTuple):
    """A mean score at a training size, with its 95 % CI; None where nothing varies."""

    mean: float
    low: float | None = None
    high: float | None = None


Curve = Mapping[int, Point]  # by size, rising


def named(records: Sequence[Record]) -> Iterator[tuple[str, Record]]:
    """Records with the name of their curve: its features, and of several weights the encoder's."""
    weights = list(dict.fromkeys(str(r["weights"]) for r in records))
    for feature in FEATURES:
        for one in weights if feature == ENCODER else weights[:1]:
            name = f"{feature} {one}" if len(weights) > 1 and feature == ENCODER else feature
            own = (r for r in records if r["features"] == feature and r["weights"] == one)
            yield from ((name, r) for r in own)


def curves(records: Sequence[Record]) -> dict[str, dict[str, dict[int, Point]]]:
    """The curves of each task, by name."""
    own = sorted((r for r in records if r["kind"] == "mean"), key=lambda r: int(r["size"] or 0))
    found: dict[str, dict[str, dict[int, Point]]] = {
        str(r["task"]): {} for r in records if r["kind"] == "mean"
    }
    for name, r in named(own):
        point = Point(r["mean"], r["low"], r["high"])  # type: ignore[arg-type]
        found[str(r["task"])].setdefault(name, {})[int(r["size"] or 0)] = point
    return found


def _about(records: Sequence[Record], task: str) -> Record:
    """Facts about a task, from its first measured features."""
    return next(r for r in records if r["kind"] == "features" and r["task"] == task)


def size_to_reach(means: Mapping[int, float], score: float) -> float:
    """The training size at which a curve first has a score, straight over ln size in between.

    The smallest size if it is already reached there, infinity if it never is.

    >>> size_to_reach({32: 0.5, 128: 0.7}, 0.6)
    64.0
    """
    points = sorted(means.items())
    before = points[0]
    for size, mean in points:
        if mean >= score:
            if size == before[0]:
                return float(size)
            share = (score - before[1]) / (mean - before[1])
            return round(math.exp(math.log(before[0]) + share * math.log(size / before[0])), 6)
        before = size, mean
    return math.inf


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
        found = [point.mean if None in point else getattr(point, end) for point in curve.values()]
        return dict(zip(curve, isotonic_regression(found).x.tolist(), strict=True))

    def text_of(end: str, goal_end: str) -> str | None:
        factor = size_to_reach(rising(curve, end), rising(reference, goal_end)[size]) / size
        if math.isinf(factor):
            largest = max(curve) / size
            return f"> {largest:.3g}" if largest >= LEAST_FACTOR else None
        return f"{'≤ ' * (factor == min(curve) / size)}{factor:.3g}"

    if all(point.low is None for point in (*curve.values(), reference[size])):
        return text_of("mean", "mean"), None, None
    return text_of("mean", "mean"), text_of("high", "low"), text_of("low", "high")


INTERVALS = "for other seeds and other dev examples together (crossed), within the score's range"
CHANCE = "largest class"
FACTS = ("layer", "width", "inputs", "unknown_share", "n_absent", "n_cut", "n_texts")


def _scores_and_chance(frames: Frames) -> pd.DataFrame:
    """Mean scores, followed by the majority-class baseline."""
    found = _points(frames, "mean")
    chance = found.drop_duplicates(["task", "size"]).assign(name=CHANCE)
    chance = chance.assign(mean=chance["majority"], mean_low=None, mean_high=None)
    return pd.concat([found, chance])


def _factors(frames: Frames) -> pd.DataFrame:
    """Factor of data that other features need for each score of the encoder."""
    rows: list[dict[str, object]] = []
    for task, own in curves(frames.records).items():
        chance = _about(frames.records, task)["majority"]
        others = [name for name in own if not name.startswith(ENCODER)]
        for reference in (name for name in own if name.startswith(ENCODER)):
            for size, point in own[reference].items():
                place = {"task": task, "of": reference, "size": size, "score": point.mean}
                low = point.mean if point.low is None else point.low
                is_above = not isinstance(chance, float) or low > chance
                for name in others:
                    found = data_factor(own[name], own[reference], size) if is_above else ()
                    factor = dict(zip_longest(("value", "least", "most"), found))
                    rows.append({**place, "name": name, **factor})
    return pd.DataFrame(rows, dtype=object)


def _unseen(frames: Frames) -> pd.DataFrame:
    """Scores on examples with few and with many words unseen in training."""
    found = pd.DataFrame(
        [{**r, "name": name} for name, r in named([*frames.of("score").to_dict("records")])]
    )
    share = ["unseen_share", "n_few_unseen", "n_many_unseen"]
    place = found.groupby(["task", "size"], sort=False)
    for key in share:
        mean = place[key].transform("mean")
        found[key] = mean if key == share[0] else mean.round().astype(int)
    halves = ["score_few_unseen", "score_many_unseen"]
    found[halves] = found[halves].astype(float)
    means = found.groupby(["task", "size", *share, "name"], sort=False)[halves].mean()
    return means.reset_index()


def _sources(frames: Frames) -> Iterator[str]:
    own = frames.of("features")
    pairs = zip(own["features"], own["source"], strict=True)
    yield from dict.fromkeys(f"{features}: {source}" for features, source in pairs)


def _points(frames: Frames, kind: str) -> pd.DataFrame:
    """Records of a kind with the name of their curve, facts of their task, and a CI."""
    rows: list[Record] = []
    for name, r in named([r for r in frames.records if r["kind"] == kind]):
        task = str(r["task"])
        measure = "F1 of entities" if task == "conll" else "accuracy"
        ends = {"mean_low": r["low"], "mean_high": r["high"]}
        rows.append({**_about(frames.records, task), **r, **ends, "name": name, "measure": measure})
    return pd.DataFrame(rows, dtype=object).drop(columns="weights", errors="ignore")


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
            "{measure} on {n_scored:,} examples of the dev split of {task}; n = {n_seeds} seeds, "
            "which draw the training examples (nested) and random vectors; mean over them, 95 % CI "
            f"{INTERVALS}.",
            "{task} has {n_train:,} training examples here; the largest class has a share of "
            "{majority} of the scored examples.",
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
        "Scores on dev examples with few and with many words that training did not have",
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
            _sources,
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
