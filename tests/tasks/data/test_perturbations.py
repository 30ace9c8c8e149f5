"""Changes of the training rows: counts as stated, nested, and each with draws of its own."""

from __future__ import annotations

import functools
import math
import random
from collections import Counter
from dataclasses import asdict
from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from isotrain.tasks.data.cache import fingerprint
from isotrain.tasks.data.demo_generator import SIZES, DemoSource
from isotrain.tasks.data.perturbations import (
    NOTHING,
    Changes,
    apply_changes,
    check_changes,
    fewer,
    second_sentence_alone,
    skewed,
    with_noise,
)
from isotrain.tasks.rte import RTE
from isotrain.tasks.stsb import STSB
from isotrain.tasks.wic import WiC

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


def test_why_three_classes_are_not():
    """The example of the docstring: one row more in all, and one less of the last class."""
    assert largest_remainders((6, 6, 2), 10) is None  # the first two are equal: by hand below
    rests = [Fraction(10 * size, 14) % 1 for size in (6, 6, 2)]
    assert max(rests) == rests[2]  # of 10 rows the last class gets the rest: 2
    assert [Fraction(11 * size, 14) % 1 > rests[2] for size in (6, 6, 2)] == [True, True, True]
    rests = [Fraction(11 * size, 14) % 1 for size in (6, 6, 2)]
    assert min(rests) == rests[2]  # and of 11 rows the others get both: 1
    of_last = [counts(fewer(classed(6, 6, 2), n, 0, "label"), 3)[2] for n in range(15)]
    assert of_last == sorted(of_last)


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


def test_a_placed_skew():
    assert counts(skewed(classed(50, 50), 0.9, 0, "label", 2), 2) == [50, 5]
    assert counts(skewed(classed(50, 50, 50), 0.9, 0, "label", 3), 3) == [50, 28, 5]  # 27.5
    assert counts(skewed(classed(50, 3), 0.99, 0, "label", 2), 2) == [50, 1]
    assert counts(skewed(classed(50, 0, 50), 0.5, 0, "label", 3), 3) == [50, 0, 25]


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
    found, done, numbers = apply_changes(splits, task, NOTHING, 0)
    assert found == splits
    assert numbers == {"train": list(range(3000))}
    assert done == {}


@pytest.mark.parametrize(
    ("name", "keys", "rows", "per_class", "labels"),
    [
        ("rte", {"fraction": 0.1}, 300, [(1500, 150, 150)] * 2, None),
        ("rte", {"n_train": 7}, 7, [(1500, 4, 4), (1500, 3, 3)], None),
        ("wic", {"label_skew": 0.8}, 1800, [(1500, 1500, 1500), (1500, 300, 300)], None),
        (
            "wic",
            {"label_skew": 0.5, "n_train": 90},
            90,
            [(1500, 60, 60), (1500, 30, 30)],
            None,
        ),
        (
            "wic",
            {"label_skew": 0.5, "fraction": 0.1},
            225,
            [(1500, 150, 150), (1500, 75, 75)],
            None,
        ),
        ("stsb", {"n_train": 11}, 11, None, None),
        ("stsb", {"fraction": 1 / 3}, 1000, None, None),
        ("rte", {"hypothesis_only": True}, 3000, [(1500, 1500, 1500)] * 2, None),
    ],
)
def test_counts_of_the_demo_sets(name, keys, rows, per_class, labels):
    task, splits = demo(name)
    found, done, _ = apply_changes(splits, task, Changes(**keys), 0)
    assert len(found["train"]) == rows
    assert done["rows"] == {"before": 3000, "after": rows}
    classes = task.data_set.classes
    stages = ("before", "kept", "trained_on")
    if per_class is None:
        assert "classes" not in done
    else:
        listed = [dict(zip(stages, n, strict=True)) for n in per_class]
        assert done["classes"] == dict(zip(classes, listed, strict=True))
        n_train = Counter(row["label"] for row in found["train"])
        assert [n_train[c] for c in range(len(classes))] == [n["trained_on"] for n in listed]
    assert "labels_replaced" not in done
    assert {split: len(found[split]) for split in ("dev", "test")} == {"dev": 500, "test": 500}
    if not keys.get("hypothesis_only"):
        assert all(found[split] == splits[split] for split in ("dev", "test"))


@pytest.mark.parametrize("p", [0.0005, 0.1, 0.333, 1])
@pytest.mark.parametrize("name", TASKS)
def test_noise_of_the_demo_sets(name, p):
    task, splits = demo(name)
    found, done, _ = apply_changes(splits, task, Changes(label_noise=p), 0)
    target = task.data_set.target
    pairs = list(zip(splits["train"], found["train"], strict=True))
    differ = [new[target] != old[target] for old, new in pairs]
    assert all({**new, target: 0} == {**old, target: 0} for old, new in pairs)
    assert done["labels_replaced"] == round(p * 3000)
    assert done["labels_changed"] == sum(differ)
    if name == "stsb":
        assert sum(differ) <= round(p * 3000)  # many scores are equal
        assert sum(differ) > 0.8 * p * 3000 or p < 0.001
        assert Counter(new[target] for _, new in pairs) == Counter(old[target] for old, _ in pairs)
    else:
        assert sum(differ) == round(p * 3000)
        n_new = Counter(new[target] for _, new in pairs)
        assert [n["trained_on"] for n in done["classes"].values()] == [n_new[0], n_new[1]]
        assert all(n["kept"] == n["before"] == 1500 for n in done["classes"].values())
    assert found["dev"] == splits["dev"]
    assert found["test"] == splits["test"]


def test_more_rows_hold_the_fewer_and_the_number_says_the_same_as_the_share():
    for name in TASKS:
        tenth, half = train_of(name, fraction=0.1), train_of(name, fraction=0.5)
        assert texts(tenth) < texts(half)
        assert train_of(name, n_train=300) == tenth
        assert train_of(name, n_train=3000) == demo(name)[1]["train"]


def test_rows_keep_their_order_and_their_numbers():
    task, splits = demo("rte")
    changes = Changes(fraction=0.2, label_skew=0.3, label_noise=0.1)
    found, _, numbers = apply_changes(splits, task, changes, 0)
    assert numbers["train"] == sorted(set(numbers["train"]))
    whole = [splits["train"][i] for i in numbers["train"]]
    assert [{**row, "label": 0} for row in found["train"]] == [{**row, "label": 0} for row in whole]


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


def test_holding_rows_out_alone_is_no_change_of_a_row():
    task, splits = demo("rte")
    found, done, _ = apply_changes(splits, task, Changes(holdout=0.1), 0)
    assert done == {}
    assert [len(found[split]) for split in ("train", "holdout")] == [2700, 300]


def test_the_seed_decides():
    keys = {"fraction": 0.3, "label_skew": 0.3, "label_noise": 0.3}
    first = train_of("rte", **keys)
    random.seed(5)
    state = random.getstate()
    assert train_of("rte", **keys) == first
    assert random.getstate() == state
    other = train_of("rte", seed=1, **keys)
    assert len(other) == len(first)
    assert texts(other) != texts(first)


@pytest.mark.parametrize("keys", [{"fraction": 0.4}, {"label_skew": 0.4}, {"n_train": 50}])
def test_which_rows_are_kept_does_not_hang_on_labels_and_sentences(keys):
    plain = train_of("rte", **keys)
    noisy = train_of("rte", **keys, label_noise=0.3)
    assert [r["sentence1"] + r["sentence2"] for r in noisy] == [
        r["sentence1"] + r["sentence2"] for r in plain
    ]
    emptied = train_of("rte", **keys, hypothesis_only=True)
    assert emptied == [{**row, "sentence1": ""} for row in plain]
    both = train_of("rte", **keys, hypothesis_only=True, label_noise=0.3)
    assert both == [{**row, "sentence1": ""} for row in noisy]


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


def test_one_sentence_alone_is_so_in_every_split():
    task, splits = demo("stsb")
    found, done, _ = apply_changes(splits, task, Changes(hypothesis_only=True), 0)
    assert done == {"rows": {"before": 3000, "after": 3000}, "sentence1": "empty in every split"}
    for split in SIZES:
        assert found[split] == [{**row, "sentence1": ""} for row in splits[split]]
        assert found[split] == second_sentence_alone(splits[split])
        assert all(row["sentence1"] for row in splits[split])  # what was given is left alone


@pytest.mark.parametrize(
    "keys",
    [
        {"fraction": 0.5},
        {"n_train": 40},
        {"label_skew": 0.5},
        {"label_noise": 0.1},
        {"hypothesis_only": True},
    ],
)
@pytest.mark.parametrize("form", ["cross", "bi"])
def test_the_token_cache_tells_changed_rows_apart(data_dir, tokenizer, keys, form):
    from isotrain.tasks.data.sources import LocalSource

    task = RTE(form=form)
    splits = task.load(LocalSource(str(data_dir)))
    found, _, _ = apply_changes(splits, task, Changes(**keys), 0)
    assert fingerprint(task, found["train"], tokenizer) != fingerprint(
        task, splits["train"], tokenizer
    )
    same_dev = fingerprint(task, found["dev"], tokenizer) == fingerprint(
        task, splits["dev"], tokenizer
    )
    assert same_dev == ("hypothesis_only" not in keys)
    again, _, _ = apply_changes(splits, task, Changes(**keys), 0)
    assert again == found


@pytest.mark.parametrize("form", ["cross", "bi"])
def test_an_empty_sentence_is_its_special_tokens(tokenizer, form):
    rows = second_sentence_alone([{"sentence1": "A dog.", "sentence2": "A cat.", "label": 0}])
    (example,) = RTE(form=form).encode(rows, tokenizer)
    plain = RTE(form="bi").encode([{**rows[0], "sentence1": "A cat."}], tokenizer)[0]
    one, two = tokenizer.cls_token_id, tokenizer.sep_token_id
    if form == "bi":
        assert example.input_ids == [[one, two], plain.input_ids[1]]
    else:
        assert example.input_ids == [[one, two, *plain.input_ids[1][1:]]]


# Refusals


class Text:
    """A task of one sentence and no label, as for contrastive training; dev has pairs."""

    name, n_spans = "text", 0
    data_set = SimpleNamespace(target="score", classes=())
    rows = tuple({"text": f"sentence {i}"} for i in range(20))


class Triplets(Text):
    """A data set of classes whose training rows are pairs without a label."""

    name, data_set = "nli_pairs", SimpleNamespace(target="label", classes=("yes", "no"))
    rows = tuple({"sentence1": f"a {i}", "sentence2": f"b {i}"} for i in range(20))


def splits_of(task):
    return {
        "train": list(task.rows),
        "dev": [{"sentence1": "a", "sentence2": "b", "score": 1.0, "label": 0}],
    }


@pytest.mark.parametrize("task", [Text, Triplets])
def test_rows_without_labels_can_be_fewer(task):
    few, done, _ = apply_changes(splits_of(task), task, Changes(n_train=5), 0)
    more, _, _ = apply_changes(splits_of(task), task, Changes(fraction=0.5), 0)
    assert len(few["train"]) == 5
    assert len(more["train"]) == 10
    assert [row for row in more["train"] if row in few["train"]] == few["train"]
    assert done == {"rows": {"before": 20, "after": 5}}
    assert few["dev"] == splits_of(task)["dev"]


@pytest.mark.parametrize("form", ["cross", "bi"])
def test_target_words_need_their_sentence(form):
    with pytest.raises(ValueError, match=r"data\.hypothesis_only .* task=wic has a target word"):
        check_changes(Changes(hypothesis_only=True), WiC(form=form))


def test_scores_have_no_classes_to_skew():
    task, splits = demo("stsb")
    with pytest.raises(ValueError, match=r"task=stsb has none; use data\.fraction"):
        apply_changes(splits, task, Changes(label_skew=0.1), 0)


@pytest.mark.parametrize("keys", [asdict(NOTHING), {"fraction": 0.1, "label_noise": 1.0}])
@pytest.mark.parametrize("name", TASKS)
def test_what_a_task_can_do_is_not_refused(name, keys):
    check_changes(Changes(**keys), TASKS[name]())


def test_more_rows_than_there_are():
    task, splits = demo("rte")
    with pytest.raises(ValueError, match=r"n_train=3001 .* there are 3,000; keep 1 to 3,000"):
        apply_changes(splits, task, Changes(n_train=3001), 0)
    told = r"there are 1,650 after data\.label_skew=0\.9; keep 1 to 1,650"
    with pytest.raises(ValueError, match=told):
        apply_changes(splits, task, Changes(n_train=1651, label_skew=0.9), 0)
    assert len(train_of("rte", n_train=1650, label_skew=0.9)) == 1650


def test_a_share_of_no_row():
    task, splits = demo("rte")
    with pytest.raises(ValueError, match=r"fraction=0\.0001 keeps 0 training examples"):
        apply_changes(splits, task, Changes(fraction=0.0001), 0)
    assert len(train_of("rte", fraction=0.0002)) == 1
