"""Changes of the training rows: counts as stated, nested, and each with draws of its own."""

import functools
import math
import random
from collections import Counter
from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from isotrain.tasks.data.demo_generator import DemoSource
from isotrain.tasks.data.perturbations import (
    NOTHING,
    Changes,
    apply_changes,
    fewer,
    skewed,
    with_noise,
)
from isotrain.tasks.wic import WiC
from tests.parts import RTE, STSB

light = settings(max_examples=40)
seeds = st.integers(0, 2**32 - 1)
shares = st.integers(0, 1000).map(lambda n: n / 1000)
TASKS = {"rte": RTE, "wic": WiC, "stsb": STSB}


def classed(*sizes):
    """Numbered rows of classes of these sizes, in a mixed order."""
    labels = [c for c, n in enumerate(sizes) for _ in range(n)]
    random.Random(0).shuffle(labels)
    return {i: {"text": f"row {i}", "label": label} for i, label in enumerate(labels)}


def scored(n):
    return {i: {"text": f"row {i}", "score": i / n} for i in range(n)}


def counts(rows, n_classes):
    found = Counter(row["label"] for row in rows.values())
    return [found[c] for c in range(n_classes)]


def is_within(small, large):
    """The rows of one are rows of the other, in the same order."""
    return list(small) == [i for i in large if i in small] and small.items() <= large.items()


def largest_remainders(sizes, n):
    """Whole parts of n·n_c/N, and one more for the largest fractions; None where two are equal."""
    exact = [Fraction(n * size, sum(sizes)) for size in sizes]
    rests = [share - math.floor(share) for share in exact]
    if len(set(rests)) < len(rests) and any(rests):
        return None
    left = n - sum(map(math.floor, exact))
    return [
        math.floor(share) + (sum(other > rest for other in rests) < left)
        for share, rest in zip(exact, rests, strict=True)
    ]


# Fewer rows


@given(st.lists(st.integers(1, 25), min_size=1, max_size=3), seeds, st.data())
@light
def test_every_class_keeps_its_share_and_fewer_rows_lie_within_more(sizes, seed, data):
    rows, total = classed(*sizes), sum(sizes)
    one, two = sorted((data.draw(st.integers(0, total)), data.draw(st.integers(0, total))))
    small, large = (fewer(rows, n, seed, "label") for n in (one, two))
    assert (len(small), len(large)) == (one, two)
    assert is_within(small, large)
    assert is_within(large, rows)
    for n_c, size in zip(counts(large, len(sizes)), sizes, strict=True):
        assert abs(n_c - Fraction(two * size, total)) < 1


@given(st.integers(1, 40), st.integers(1, 40), seeds, st.data())
@light
def test_two_classes_are_apportioned_by_largest_remainders(a, b, seed, data):
    n = data.draw(st.integers(0, a + b))
    assume(expected := largest_remainders((a, b), n))
    assert counts(fewer(classed(a, b), n, seed, "label"), 2) == expected


@given(st.integers(1, 60), seeds, st.data())
@light
def test_without_classes_any_row_is_as_good(n, seed, data):
    one, two = sorted((data.draw(st.integers(0, n)), data.draw(st.integers(0, n))))
    small, large = (fewer(scored(n), k, seed, None) for k in (one, two))
    assert (len(small), len(large)) == (one, two)
    assert is_within(small, large)


def test_every_row_is_kept_as_often():
    kept = Counter(i for seed in range(400) for i in fewer(classed(10, 10), 5, seed, "label"))
    assert set(kept) == set(range(20))
    assert all(abs(n - 100) < 5 * math.sqrt(400 * 0.25 * 0.75) for n in kept.values())


def test_no_class_comes_first_where_shares_are_equal():
    """Twenty classes of five: any ten may give the first ten rows."""
    kept = Counter(
        row["label"]
        for seed in range(40)
        for row in fewer(classed(*[5] * 20), 10, seed, "label").values()
    )
    assert set(kept) == set(range(20))
    assert all(4 < n < 36 for n in kept.values()), kept


# Skew


@given(st.lists(st.integers(1, 40), min_size=2, max_size=4), shares, shares, seeds)
@light
def test_a_class_keeps_what_the_formula_says(sizes, one, two, seed):
    assume(max(one, two) < 1)
    rows, n_classes = classed(*sizes), len(sizes)
    one, two = sorted((one, two))
    less, more = (skewed(rows, skew, seed, "label", n_classes) for skew in (one, two))
    assert counts(more, n_classes) == [
        max(1, round((1 - two * c / (n_classes - 1)) * size)) for c, size in enumerate(sizes)
    ]
    assert is_within(more, less)
    assert is_within(less, rows)


# Noise


def changed_in(before, after, target="label"):
    assert list(before) == list(after)
    assert all(before[i]["text"] == after[i]["text"] for i in before)
    return {i for i in before if before[i][target] != after[i][target]}


@given(st.lists(st.integers(0, 30), min_size=2, max_size=4), shares, shares, seeds)
@light
def test_that_many_classes_are_others_and_the_same_with_more_noise(sizes, one, two, seed):
    rows = classed(*sizes)
    one, two = sorted((one, two))
    less, more = (with_noise(rows, p, seed, "label", len(sizes)) for p in (one, two))
    assert len(changed_in(rows, less)) == round(one * len(rows))
    assert len(changed_in(rows, more)) == round(two * len(rows))
    assert all(less[i] == more[i] for i in changed_in(rows, less))
    assert all(row["label"] in range(len(sizes)) for row in more.values())


def test_the_other_classes_are_drawn_evenly():
    noisy = with_noise(classed(6000, 0, 0, 0), 1.0, 0, "label", 4)
    assert counts(noisy, 4)[0] == 0
    assert all(abs(n - 2000) < 5 * math.sqrt(6000 * 2 / 9) for n in counts(noisy, 4)[1:])


@given(st.integers(0, 60), shares, shares, seeds)
@light
def test_scores_go_round_among_the_chosen_rows(n, one, two, seed):
    rows = scored(n)
    one, two = sorted((one, two))
    less, more = (with_noise(rows, p, seed, "score", 0) for p in (one, two))
    for noisy, p in ((less, one), (more, two)):
        chosen = round(p * n)
        assert len(changed_in(rows, noisy, "score")) == (chosen if chosen > 1 else 0)
        assert sorted(row["score"] for row in noisy.values()) == sorted(
            row["score"] for row in rows.values()
        )
    assert changed_in(rows, less, "score") <= changed_in(rows, more, "score")
    differ = [i for i in changed_in(rows, less, "score") if less[i] != more[i]]
    assert len(differ) <= 1  # the last row of the smaller cycle takes from a further one


def test_scores_make_one_cycle():
    rows, i, seen = scored(40), 0, []
    noisy = with_noise(rows, 1.0, 3, "score", 0)
    for _ in rows:
        seen.append(i)
        i = round(noisy[i]["score"] * 40)
    assert sorted(seen) == list(range(40))
    assert i == 0


# All of them


@functools.cache
def demo(name):
    task = TASKS[name]()
    return task, task.load(DemoSource())


def train_of(name, seed=0, **keys):
    task, splits = demo(name)
    return apply_changes(splits, task, Changes(**keys), seed)[0]["train"]


def texts(rows):
    return {(row["sentence1"], row["sentence2"]) for row in rows}


def test_nothing_asked_for_changes_nothing():
    task, splits = demo("rte")
    numbers = {"train": list(range(3000))}
    assert apply_changes(splits, task, NOTHING, 0) == (splits, {}, numbers)
    found, done, _ = apply_changes(splits, task, Changes(holdout=0.1), 0)
    assert done == {}, "no example is changed"
    assert [len(found[split]) for split in ("train", "holdout")] == [2700, 300]


@pytest.mark.parametrize(
    ("name", "keys", "n", "of_classes"),
    [
        ("rte", {"n_train": 7}, 7, [(1500, 4, 4), (1500, 3, 3)]),
        ("wic", {"label_skew": 0.5, "n_train": 225}, 225, [(1500, 150, 150), (1500, 75, 75)]),
        (
            "rte",
            {"label_noise": 1.0, "label_skew": 0.8},
            1800,
            [(1500, 1500, 300), (1500, 300, 1500)],
        ),
        ("rte", {"n_train": 1650, "label_skew": 0.9}, 1650, [(1500, 1500, 1500), (1500, 150, 150)]),
        ("rte", {"n_train": 1}, 1, [(1500, 1, 1), (1500, 0, 0)]),
        ("stsb", {"n_train": 1000}, 1000, None),
        ("stsb", {"hypothesis_only": True, "label_noise": 0.5}, 3000, None),
    ],
)
def test_the_record_counts_the_examples_of_each_stage(name, keys, n, of_classes):
    task, splits = demo(name)
    found, done, numbers = apply_changes(splits, task, Changes(**keys), 0)
    assert done["rows"] == {"before": 3000, "after": n}
    assert len(found["train"]) == len(numbers["train"]) == n
    if of_classes:
        stages = [tuple(of_stage.values()) for of_stage in done["classes"].values()]
        assert stages == of_classes
    target, noise = task.data_set.target, keys.get("label_noise", 0)
    one = {"sentence1": ""} if "hypothesis_only" in keys else {}
    assert numbers["train"] == sorted(set(numbers["train"]))
    whole = [splits["train"][i] | one for i in numbers["train"]]
    assert [row | {target: 0} for row in found["train"]] == [row | {target: 0} for row in whole]
    differ = [row[target] != own[target] for row, own in zip(found["train"], whole, strict=True)]
    assert sum(differ) == done.get("labels_changed", 0)
    assert done.get("labels_replaced", 0) == round(noise * n)
    for split in ("dev", "test"):
        assert found[split] == [row | one for row in splits[split]]
    assert ("sentence1" in done) == ("hypothesis_only" in keys)


def test_more_rows_hold_the_fewer():
    for name in TASKS:
        tenth, half = train_of(name, n_train=300), train_of(name, n_train=1500)
        assert (len(tenth), len(half)) == (300, 1500)
        assert texts(tenth) < texts(half)
        assert train_of(name, n_train=3000) == demo(name)[1]["train"]


def test_rows_held_out_are_no_training_rows_and_keep_their_labels():
    task, splits = demo("rte")
    changes = Changes(n_train=400, holdout=0.25, label_noise=1.0)
    found, done, numbers = apply_changes(splits, task, changes, 0)
    assert done["rows"] == {"before": 3000, "after": 300, "held_out": 100}
    assert sum(n["trained_on"] for n in done["classes"].values()) == 300
    assert done["labels_replaced"] == done["labels_changed"] == 300
    assert not set(numbers["train"]) & set(numbers["holdout"])
    assert found["holdout"] == [splits["train"][i] for i in numbers["holdout"]]
    without, *_ = apply_changes(splits, task, Changes(n_train=400), 0)
    assert texts(without["train"]) == texts(found["train"]) | texts(found["holdout"])
    more, *_ = apply_changes(splits, task, Changes(n_train=400, holdout=0.5), 0)
    assert texts(found["holdout"]) < texts(more["holdout"])


def test_the_seed_decides():
    keys = {"n_train": 765, "label_skew": 0.3, "label_noise": 0.3}
    first = train_of("rte", **keys)
    random.seed(5)
    state = random.getstate()
    assert train_of("rte", **keys) == first
    assert random.getstate() == state
    other = train_of("rte", seed=1, **keys)
    assert len(other) == len(first)
    assert texts(other) != texts(first)


def test_a_row_is_given_the_same_class_whether_others_are_there_or_not():
    rows = classed(40, 40, 40)
    whole = with_noise(rows, 0.5, 0, "label", 3)
    kept = fewer(rows, 60, 0, "label")
    part = with_noise(kept, 0.5, 0, "label", 3)
    both = changed_in(rows, whole) & changed_in(kept, part)
    assert len(both) > 10
    assert all(whole[i] == part[i] for i in both)


def test_the_streams_of_the_changes_are_independent():
    """With one stream for all, the rows that are kept would be those with noise, or none."""
    rows = classed(2000, 2000)
    groups = [
        set(fewer(rows, 2000, 0, "label")),
        changed_in(rows, with_noise(rows, 0.5, 0, "label", 2)),
        {i for i in skewed(rows, 0.5, 0, "label", 2) if rows[i]["label"] == 1},
    ]
    for group, expected in ((groups[1], 1000), (groups[2], 500)):
        assert abs(len(groups[0] & group) - expected) < 5 * math.sqrt(expected / 2)
    assert abs(len(groups[1] & groups[2]) - 500) < 5 * math.sqrt(250)


# Refusals


@pytest.mark.parametrize("classes", [(), ("yes", "no")])
def test_rows_without_labels_can_be_fewer(classes):
    """As those of contrastive training, whose data set may have classes."""
    task = SimpleNamespace(
        name="text", n_spans=0, data_set=SimpleNamespace(target="label", classes=classes)
    )
    splits = {"train": [{"text": f"sentence {i}"} for i in range(20)]}
    few, done, _ = apply_changes(splits, task, Changes(n_train=5), 0)
    more, _, _ = apply_changes(splits, task, Changes(n_train=10), 0)
    assert (len(few["train"]), len(more["train"])) == (5, 10)
    assert [row for row in more["train"] if row in few["train"]] == few["train"]
    assert done == {"rows": {"before": 20, "after": 5}}


@pytest.mark.parametrize(
    ("name", "keys", "message"),
    [
        (
            "rte",
            {"n_train": 3001},
            r"n_train keeps 3,001 of 3,000 training examples",
        ),
        ("rte", {"n_train": 1651, "label_skew": 0.9}, r"keeps 1,651 of 1,650 training examples"),
        ("rte", {"n_train": 0}, r"keeps 0 of 3,000"),
        ("stsb", {"label_skew": 0.5}, "task=stsb has none"),
        ("rte", {"n_train": 2, "holdout": 0.9}, r"holdout=0\.9 of 2 training examples leaves none"),
    ],
)
def test_what_cannot_be(name, keys, message):
    task, splits = demo(name)
    with pytest.raises(ValueError, match=message):
        apply_changes(splits, task, Changes(**keys), 0)
