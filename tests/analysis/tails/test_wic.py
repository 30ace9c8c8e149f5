"""WiC by cosine: exact thresholds, targets by their characters, choices made on train alone."""

import json

import numpy as np
import pytest
import torch
from scipy.stats import binomtest

from isotrain.analysis.encode import find_targets, wic_pairs
from isotrain.analysis.tails import analysis as wic_of_tails
from isotrain.analysis.tails.analysis import Tails, accuracy, best_threshold, fit_half, wic_records
from isotrain.analysis.types import Outcome
from isotrain.tasks.data.sources import LocalSource
from tests.analysis.runs import pieces_of, subject_on


def brute_force(cosine, same):
    """The most right answers of any threshold, tried one by one."""
    tried = sorted({*cosine.tolist(), 1.5})
    return max(
        sum(int(c >= t) == s for c, s in zip(cosine.tolist(), same.tolist(), strict=True))
        for t in tried
    )


@pytest.mark.parametrize("seed", range(20))
def test_the_best_threshold_against_all_of_them(seed):
    generator = torch.Generator().manual_seed(seed)
    cosine = torch.rand(30, generator=generator) * 2 - 1
    if seed % 2:
        cosine = (cosine * 4).round() / 4  # ties
    same = torch.randint(2, (30,), generator=generator)
    found = best_threshold(cosine, same)
    assert found.accuracy == pytest.approx(brute_force(cosine, same) / 30)
    assert accuracy(cosine, same, found.value) == pytest.approx(found.accuracy)


def row(first, second, at1, at2, length=4):
    return {
        "word": "bank",
        "sentence1": first,
        "sentence2": second,
        "label": 1,
        "start1": at1,
        "end1": at1 + length,
        "start2": at2,
        "end2": at2 + length,
    }


def test_a_target_stands_where_its_characters_are_not_where_the_word_is_first(encoder):
    text = "The bank by the bank."
    found = find_targets([row(text, text, 16, 4)], encoder.tokenizer, 32)
    assert pieces_of(encoder.tokenizer, found.tokens, found.spans) == [["bank"], ["bank"]]
    first, second = found.spans.start_N
    n_pieces_before = len(
        encoder.tokenizer("The bank by the", add_special_tokens=False)["input_ids"]
    )
    assert first == 1 + n_pieces_before
    assert second == 1 + len(encoder.tokenizer("The", add_special_tokens=False)["input_ids"])


def test_a_cut_target_leaves_its_pair_out_and_is_counted(encoder):
    short, far = "the bank", "the dog and the dog and the dog sees the bank"
    rows = [row(short, short, 4, 4), row(short, far, 4, 41), row(short, short, 4, 4)]
    found = find_targets(rows, encoder.tokenizer, 12)
    assert found.n_left_out == 1
    assert found.pair_N.tolist() == [0, 2]
    assert pieces_of(encoder.tokenizer, found.tokens, found.spans) == [["bank"]] * 4
    split = {**row("the xylo", "the xylo", 4, 4), "word": "xylo"}
    assert find_targets([split], encoder.tokenizer, 4).n_left_out == 1, "one of its pieces is kept"
    assert find_targets([split], encoder.tokenizer, 32).n_left_out == 0
    whole = find_targets(rows, encoder.tokenizer, 128)
    assert whole.n_left_out == 0


def wic_data(folder, seed, change=()):
    """Pairs whose targets have equal neighbours where the sense is the same.

    The splits of `change` have other sentences, and drawn labels.
    """
    generator = np.random.default_rng(seed)
    (folder / "wic").mkdir(parents=True)
    for split in ("train", "dev", "test"):
        lines = []
        for _ in range(40):
            same = bool(generator.integers(2))
            one = generator.choice(["river", "money"])
            other = one if same else {"river": "money", "money": "river"}[one]
            first, second = f"the {one} bank", f"the {other} bank"
            if split in change:
                first, second = f"a {other} bird bank", f"one old dog {one} bank"
            own = row(first, second, first.index("bank"), second.index("bank"))
            label = bool(generator.integers(2)) if split in change else same
            lines.append(json.dumps(own | {"label": label}))
        (folder / "wic" / f"{split}.jsonl").write_text("\n".join(lines), encoding="utf-8")
    return LocalSource(str(folder))


def measured(encoder, source, folder, **more):
    subject = subject_on(encoder, source, folder, max_length=32)
    return wic_records(subject, more.get("dims", [3]), 0.0, None)


CHOICES = ("threshold", "train", "layer")


def test_layer_threshold_and_whitening_are_those_of_train_alone(encoder, tmp_path):
    honest = measured(encoder, wic_data(tmp_path / "a", 0), tmp_path / "rows_a")
    spoiled = measured(encoder, wic_data(tmp_path / "b", 0, ("dev", "test")), tmp_path / "rows_b")
    for one, two in zip(honest, spoiled, strict=True):
        assert {k: one[k] for k in CHOICES} == pytest.approx({k: two[k] for k in CHOICES})
    assert [r["dev"] for r in honest] != [r["dev"] for r in spoiled]


def test_the_chosen_cell_the_best_cell_the_interval_and_the_constant_answer(encoder, tmp_path):
    source = wic_data(tmp_path / "a", 1)
    records = measured(encoder, source, tmp_path / "rows")
    for treatment in ("none", "cut", "whitened"):
        own = [r for r in records if r["treatment"] == treatment]
        cells = [r for r in own if r["kind"] == "wic"]
        (chosen,) = [r for r in own if r["kind"] == "wic chosen"]
        assert [r["layer"] for r in cells] == [0, 1, 2]
        assert chosen["train"] == max(r["train"] for r in cells)
        for split in ("dev", "test"):
            assert chosen[f"optimistic_{split}"] == max(r[f"optimistic_{split}"] for r in cells)
            assert all(r[f"optimistic_{split}"] >= r[split] for r in cells)
            n = chosen[f"n_{split}"]
            interval = binomtest(round(chosen[split] * n), n).proportion_ci(method="wilson")
            assert chosen[f"{split}_low"] == pytest.approx(interval.low)
            assert chosen[f"{split}_high"] == pytest.approx(interval.high)
    assert records[0]["n_train"] == records[0]["n_fit"] == 20
    assert records[0]["n_dev"] == 40
    same = sum(r["label"] for r in wic_pairs(source, "dev", None, 0))
    assert records[-1]["constant_true_dev"] == pytest.approx(same / 40)


def test_a_test_split_without_gold_has_no_figures(encoder, tmp_path):
    source = wic_data(tmp_path / "a", 1)
    file = tmp_path / "a" / "wic" / "test.jsonl"
    hidden = [
        json.dumps(json.loads(line) | {"label": -1}) for line in file.read_text().splitlines()
    ]
    file.write_text("\n".join(hidden), encoding="utf-8")
    records = measured(encoder, source, tmp_path / "rows")
    assert "dev" in records[0]
    assert "test" not in records[0]


def test_targets_that_are_cut_off(encoder, tmp_path):
    """Without dev pairs the table says so; without training pairs there is no threshold."""
    source = wic_data(tmp_path / "a", 1)
    far = json.dumps(row("the dog " * 20 + "bank", "a bank", 160, 2))
    (tmp_path / "a" / "wic" / "dev.jsonl").write_text(far, encoding="utf-8")
    records = [{"weights": "as given", **r} for r in measured(encoder, source, tmp_path / "rows")]
    (table,) = (t for t in Tails().tables(Outcome(records, {})) if t.name == "wic")
    assert "0 dev pairs" in table.notes[0]
    with pytest.raises(ValueError, match=r"0 pairs of WiC's train split .* raise max_length"):
        wic_records(subject_on(encoder, source, tmp_path / "b", max_length=3), [3], 0.0, None)


def test_pairs_of_a_word_are_in_one_half():
    words = [f"word {k % 30}" for k in range(200)]
    is_fit = fit_half(words, 0)
    assert is_fit.sum() == 100
    both = {w for w, f in zip(words, is_fit, strict=True) if f} & {
        w for w, f in zip(words, is_fit, strict=True) if not f
    }
    assert len(both) <= 1  # the word at the cut
    assert fit_half(words, 0).tolist() == is_fit.tolist() != fit_half(words, 1).tolist()
    assert fit_half(["bank"] * 6, 0).sum() == 3  # of one word, pairs are halved


def pairs_of_words(folder, n):
    """`n` pairs a split, each of a word of its own."""
    (folder / "wic").mkdir(parents=True)
    for split in ("train", "dev", "test"):
        own = row("the bank", "a bank", 4, 2)
        text = "\n".join(json.dumps(own | {"word": f"b {split} {k}"}) for k in range(n))
        (folder / "wic" / f"{split}.jsonl").write_text(text, encoding="utf-8")
    return LocalSource(str(folder))


def test_pairs_that_choose_are_as_far_apart_as_those_that_are_measured(
    encoder, tmp_path, monkeypatch
):
    """Whitening with few rows a dimension: rows that it was fitted on have smaller cosines.

    Those of this test would have .78, and not .90, so that they would choose a threshold too low.
    """
    n, width, seen = 100, 64, []
    generator = torch.Generator().manual_seed(0)

    def drawn(subject, tokens, spans):
        first = torch.randn(len(spans) // 2, 1, width, generator=generator)
        noise = torch.randn(len(spans) // 2, 1, width, generator=generator)
        pair = torch.cat([first, first + 0.5 * noise], dim=1)
        return pair.reshape(1, -1, width).numpy()

    def noted(cosine_N, same_N):
        seen.append(cosine_N.mean().item())
        return best_threshold(cosine_N, same_N)

    monkeypatch.setattr(wic_of_tails, "encode_rows", drawn)
    monkeypatch.setattr(wic_of_tails, "best_threshold", noted)
    records = measured(encoder, pairs_of_words(tmp_path / "a", n), tmp_path / "rows", dims=[])
    assert {r["n_train"] for r in records} == {n // 2}  # of all treatments alike
    for k, treatment in enumerate(("none", "cut", "whitened")):
        train, dev, test = seen[3 * k : 3 * k + 3]
        assert train == pytest.approx(dev, abs=0.03), treatment
        assert dev == pytest.approx(test, abs=0.03), treatment
