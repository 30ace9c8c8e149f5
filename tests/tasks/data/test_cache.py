"""The token cache: exact, reported apart by content, and never the reason that a run fails."""

import os
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.encoders.tiny import build_tiny
from isotrain.tasks.classification import Classification
from isotrain.tasks.data import cache as token_cache
from isotrain.tasks.data.cache import encode_cached, fingerprint
from isotrain.tasks.data.sources import LocalSource
from isotrain.tasks.wic import WiC
from isotrain.types import Example
from tests.parts import RTE, STSB
from tests.processes import printed_by, server_with_imports

TASKS = {"rte": RTE, "wic": WiC, "stsb": STSB}


@pytest.fixture
def rows(data_dir):
    return RTE().load(LocalSource(str(data_dir)))["dev"]


def files(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("form", ["cross", "bi"])
@pytest.mark.parametrize("name", TASKS)
def test_what_comes_back_is_what_was_encoded(
    data_dir, tokenizer, tmp_path, monkeypatch, name, form
):
    task = TASKS[name](form=form)
    for split, found in task.load(LocalSource(str(data_dir))).items():
        plain = task.encode(found, tokenizer)
        assert encode_cached(task, found, tokenizer, None) == plain
        first = encode_cached(task, found, tokenizer, tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(type(task), "encode", lambda *_: pytest.fail("encoded again"))
            second = encode_cached(task, found, tokenizer, tmp_path) if found else first
        assert first == plain == second, split
        assert [repr(e) for e in second] == [repr(e) for e in plain]  # types, int and float too
    assert len(files(tmp_path)) == (2 if name == "rte" else 3)


lists = st.lists(st.integers(-(2**31), 2**31 - 1), max_size=4)
sequences = st.lists(lists, max_size=3)
ends = st.tuples(st.integers(0, 99), st.integers(0, 99))
labels = st.sampled_from([st.integers(-(2**53) - 1, 2**53 + 1), st.floats(allow_nan=False)])


@st.composite
def ragged_examples(draw):
    label = draw(labels)
    example = st.builds(
        Example,
        input_ids=sequences,
        token_type_ids=sequences,
        special_mask=sequences,
        spans=st.none() | st.lists(st.lists(ends, max_size=2), max_size=3),
        label=label,
        index=st.integers(0, 2**40),
        lost=st.lists(st.text(max_size=3), max_size=2),
    )
    return draw(st.lists(example, min_size=1, max_size=4))


@given(ragged_examples())
@settings(max_examples=60)
def test_ragged_lists_come_back(tmp_path_factory, examples):
    file = tmp_path_factory.mktemp("ragged") / "file"
    token_cache._write(file, examples)
    assert [repr(e) for e in token_cache._read(file)] == [repr(e) for e in examples]


# Damage


@pytest.fixture
def stored(rows, tokenizer, tmp_path):
    """A small cache file, and a call that reads or replaces it."""
    expected = encode_cached(RTE(), rows[:2], tokenizer, tmp_path)
    (file,) = tmp_path.iterdir()

    def again():
        assert encode_cached(RTE(), rows[:2], tokenizer, tmp_path) == expected
        assert files(tmp_path) == [file.name]
        return file.read_bytes()

    return file, again


def test_any_flipped_byte_is_noticed_and_mended(stored):
    file, again = stored
    content = file.read_bytes()
    for position in range(0, len(content), 23):
        broken = bytearray(content)
        broken[position] ^= 0x10
        file.write_bytes(broken)
        assert again() == content, position


@pytest.mark.parametrize("length", [0, 4, 100, -1])
def test_a_truncated_file_is_mended(stored, length):
    file, again = stored
    content = file.read_bytes()
    file.write_bytes(content[:length])
    assert again() == content


def test_a_folder_that_cannot_be_written_is_a_warning(rows, tokenizer, tmp_path, monkeypatch):
    def full(part, path):
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr("isotrain.runs.files.os.replace", full)
    folder = tmp_path / "cache"
    with pytest.warns(UserWarning, match=rf"{folder} cannot be written \(No space left"):
        found = encode_cached(RTE(), rows, tokenizer, folder)
    assert found == RTE().encode(rows, tokenizer)
    assert files(folder) == []


def write_many(folder, barrier):
    """One of the processes that write the same file, many times."""
    tokenizer = build_tiny(width=8, n_blocks=1, n_heads=1).tokenizer
    rows = [{"sentence1": f"a dog {i}", "sentence2": "a cat", "label": i % 2} for i in range(50)]
    barrier.wait()
    for _ in range(20):
        for file in folder.glob("*.json"):
            file.unlink(missing_ok=True)
        examples = encode_cached(RTE(), rows, tokenizer, folder)
        assert examples == RTE().encode(rows, tokenizer)


@pytest.mark.slow
def test_two_processes_write_at_once(tmp_path):
    context = server_with_imports()
    barrier = context.Barrier(2)
    pair = [context.Process(target=write_many, args=(tmp_path, barrier)) for _ in range(2)]
    for process in pair:
        process.start()
    for process in pair:
        process.join(120)
    assert [process.exitcode for process in pair] == [0, 0]
    assert len(files(tmp_path)) == 1


# What the fingerprint sees


class Longer(Classification):
    """Another class of the same attributes."""

    def __init__(self):
        super().__init__("rte", ["sentence1", "sentence2"], classes=["no", "yes"])


def test_what_changes_the_fingerprint(rows, tokenizer):
    other_word = deepcopy(tokenizer)
    other_word.add_tokens(["zebra"])
    no_pad = deepcopy(tokenizer)
    no_pad.pad_token = "[UNK]"
    left = deepcopy(tokenizer)
    left.truncation_side = "left"
    edited = [{**rows[0], "sentence1": "a dog"}, *rows[1:]]
    variants = [
        (RTE(), rows, tokenizer),
        (RTE(max_length=64), rows, tokenizer),
        (RTE(form="bi"), rows, tokenizer),
        (RTE(prefix="query: "), rows, tokenizer),
        (RTE(text=["sentence2", "sentence1"]), rows, tokenizer),
        (Longer(), rows, tokenizer),
        (STSB(), rows, tokenizer),
        (WiC(), rows, tokenizer),
        (WiC(prompt="none"), rows, tokenizer),
        (RTE(), edited, tokenizer),
        (RTE(), rows[::-1], tokenizer),
        (RTE(), rows[:-1], tokenizer),
        (RTE(), [{**rows[0], "label": 1.0}, *rows[1:]], tokenizer),
        (RTE(), rows, other_word),
        (RTE(), rows, no_pad),
        (RTE(), rows, left),
    ]
    split_specials = deepcopy(tokenizer)
    split_specials.split_special_tokens = True
    variants.append((RTE(), rows, split_specials))
    found = [fingerprint(*variant) for variant in variants]
    assert len(set(found)) == len(variants)
    assert all(len(text) == 64 for text in found)


@pytest.mark.parametrize("module", ["isotrain.tasks.texts", "isotrain.tasks.data.encoding"])
def test_an_edited_source_changes_the_fingerprint(rows, tokenizer, monkeypatch, module):
    before, base = (fingerprint(kind(), rows, tokenizer) for kind in (RTE, Longer))
    getsource = token_cache.inspect.getsource

    def edited(of):
        return getsource(of) + "# edited" * (of.__name__ == module)

    monkeypatch.setattr(token_cache.inspect, "getsource", edited)
    assert fingerprint(RTE(), rows, tokenizer) != before
    assert fingerprint(Longer(), rows, tokenizer) != base  # whose `encode` is that of RTE


def test_what_does_not_change_the_fingerprint(rows, tokenizer):
    fresh = build_tiny(width=8, n_blocks=1, n_heads=1).tokenizer
    before = fingerprint(RTE(), rows, fresh)
    fresh("a dog", truncation=True, max_length=3, padding="max_length")  # a setting that it keeps
    moved = [{**row, "at": "elsewhere"} for row in rows]
    turned = [dict(reversed(row.items())) for row in rows]
    for variant in (rows, moved, turned):
        assert fingerprint(RTE(), variant, fresh) == before
    task = RTE(head_dropout=0.5)
    task.leave_out("test: no gold", 3)
    assert fingerprint(task, rows, fresh) == before
    grouped = STSB(group="genre")
    grouped.numbers = {"dev": torch.zeros(3)}
    assert fingerprint(grouped, rows, fresh) == fingerprint(STSB(), rows, fresh)


@pytest.mark.slow
def test_two_processes_agree_on_the_fingerprint(data_dir, rows, tokenizer):
    code = (
        "from isotrain.encoders.tiny import build_tiny\n"
        "from isotrain.tasks.presets import preset\n"
        "from isotrain.tasks.data.sources import LocalSource\n"
        "from isotrain.tasks.data.cache import fingerprint\n"
        f"task = preset('rte')\nrows = task.load(LocalSource({str(data_dir)!r}))['dev']\n"
        "print(fingerprint(task, rows, build_tiny(8, 1, 1).tokenizer))"
    )
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # not that of this process
    printed = printed_by("-c", code, PYTHONHASHSEED=seed)
    assert printed.strip() == fingerprint(RTE(), rows, tokenizer)


def test_what_has_no_fingerprint_is_encoded_each_time(rows, tokenizer, tmp_path):
    odd = RTE()
    odd.helper = object()
    with pytest.raises(TypeError):
        fingerprint(odd, rows, tokenizer)
    assert encode_cached(odd, rows, tokenizer, tmp_path) == RTE().encode(rows, tokenizer)
    assert files(tmp_path) == []


def test_labels_that_json_does_not_know_are_not_cached(rows, tokenizer, tmp_path):
    class Odd(Longer):
        def encode(self, rows, tokenizer):
            return [replace(e, label=np.float32(e.label)) for e in super().encode(rows, tokenizer)]

    assert encode_cached(Odd(), rows, tokenizer, tmp_path) == RTE().encode(rows, tokenizer)
    assert files(tmp_path) == []
