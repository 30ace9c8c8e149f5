"""Sentences as token ids: forms, truncation, and spans that cover the target word."""

from copy import deepcopy

import pytest
from tokenizers import Tokenizer, models
from tokenizers.pre_tokenizers import ByteLevel
from transformers import PreTrainedTokenizerFast

from isotrain.tasks.data.encoding import encode_pairs
from isotrain.tasks.wic import WiC

LISTS = ("input_ids", "token_type_ids", "special_mask")


@pytest.fixture(scope="module")
def vocabulary(tokenizer):
    return lambda ids: tokenizer.convert_ids_to_tokens(ids)


def test_cross_is_one_sequence(tokenizer, vocabulary):
    (example,) = encode_pairs([("q z", "7!")], [1], tokenizer, "cross", 16)
    assert vocabulary(example.input_ids[0]) == ["[CLS]", "q", "z", "[SEP]", "7", "!", "[SEP]"]
    assert example.token_type_ids == [[0, 0, 0, 0, 1, 1, 1]]
    assert example.special_mask == [[1, 0, 0, 1, 0, 0, 1]]
    assert (example.label, example.index, example.spans) == (1, 0, None)


def test_bi_is_two_sequences(tokenizer, vocabulary):
    (example,) = encode_pairs([("q z", "7!")], [0.25], tokenizer, "bi", 16)
    assert [vocabulary(ids) for ids in example.input_ids] == [
        ["[CLS]", "q", "z", "[SEP]"],
        ["[CLS]", "7", "!", "[SEP]"],
    ]
    assert example.token_type_ids == [[0] * 4, [0] * 4]
    assert example.special_mask == [[1, 0, 0, 1]] * 2
    assert example.label == 0.25


@pytest.mark.parametrize("n", [1, 2, 3])
def test_bi_takes_any_number_of_sentences(tokenizer, vocabulary, n):
    texts = ("q", "z!", "7 q z")[:n]
    examples = encode_pairs([texts, texts[::-1]], [0.0, 0.0], tokenizer, "bi", 4)
    assert [len(getattr(e, name)) for e in examples for name in LISTS] == [n] * 6
    kept = [["q"], ["z", "!"], ["7", "q"]][:n]
    for example, words in zip(examples, (kept, kept[::-1]), strict=True):
        assert [vocabulary(ids)[1:-1] for ids in example.input_ids] == words
        assert example.special_mask == [[1, *[0] * len(one), 1] for one in words]


def test_the_longer_sentence_is_cut_first(tokenizer, vocabulary):
    (cross,) = encode_pairs([("q " * 20, "z")], [0], tokenizer, "cross", 10)
    assert vocabulary(cross.input_ids[0]) == ["[CLS]", *"qqqqqq", "[SEP]", "z", "[SEP]"]
    (bi,) = encode_pairs([("q " * 20, "z")], [0], tokenizer, "bi", 10)
    assert [len(ids) for ids in bi.input_ids] == [10, 3]


ROW = {
    "word": "bank",
    "sentence1": "Q! A BANKED (7) z.",
    "sentence2": "bank",
    "start1": 5,
    "end1": 11,
    "start2": 0,
    "end2": 4,
    "label": True,
}


def covered(tokenizer, example):
    """The text of each target span, spelled from its tokens."""
    found = []
    for ids, spans in zip(example.input_ids, example.spans, strict=True):
        for start, stop in spans:
            tokens = tokenizer.convert_ids_to_tokens(ids[start:stop])
            found.append("".join(token.removeprefix("##") for token in tokens))
    return found


@pytest.mark.parametrize("form", ["cross", "bi"])
@pytest.mark.parametrize("prompt", ["word", "none"])
def test_spans_are_the_target_word_with_and_without_prompt(tokenizer, form, prompt):
    (example,) = WiC(form=form, prompt=prompt).encode([ROW], tokenizer)
    assert covered(tokenizer, example) == ["banked", "bank"]
    first = tokenizer.decode(example.input_ids[0])
    assert ("bank :" in first or "bank:" in first) == (prompt == "word")
    shape = [len(spans) for spans in example.spans]
    assert shape == ([2] if form == "cross" else [1, 1])
    if form == "cross":
        (one, two) = example.spans[0]
        assert example.token_type_ids[0][one[0]] == 0
        assert example.token_type_ids[0][two[0]] == 1


def test_a_word_in_several_pieces_is_covered_whole_and_part_of_a_piece_counts(tokenizer):
    # "qz" is spelled q ##z; the span holds its second character alone.
    (whole,) = encode_pairs([("a qz", "z")], [0], tokenizer, "cross", 16, [((2, 4), (0, 1))])
    (part,) = encode_pairs([("a qz", "z")], [0], tokenizer, "cross", 16, [((3, 4), (0, 1))])
    assert covered(tokenizer, whole) == ["qz", "z"]
    assert covered(tokenizer, part) == ["z", "z"]


@pytest.mark.parametrize("form", ["cross", "bi"])
@pytest.mark.parametrize("sentence", [1, 2])
def test_a_span_that_was_cut_off_is_an_error(tokenizer, form, sentence):
    long, far = "q " * 30 + "bank", (60, 64)
    pair, spans = (
        ((long, "bank"), (far, (0, 4))) if sentence == 1 else (("bank", long), ((0, 4), far))
    )
    with pytest.raises(ValueError, match=rf"row 1: .*sentence {sentence} .*task\.max_length"):
        encode_pairs(
            [("bank", "bank"), pair], [0, 0], tokenizer, form, 16, [((0, 4), (0, 4)), spans]
        )


CUT, PART = "cut at task.max_length=8", "with part of a target word cut at task.max_length=8"
UNKNOWN = "without a known token in a text"


@pytest.mark.parametrize(
    ("pair", "form", "lost"),
    [
        (("q z q", "z q"), "cross", []),  # 8 tokens: all of them fit
        (("q z q z", "z q"), "cross", [CUT]),
        (("q", "z q z q z q z"), "bi", [CUT]),  # the second alone
        (("語 漢", "漢"), "cross", [UNKNOWN]),
        (("漢 q", "漢"), "cross", []),
        (("漢 q", "漢"), "bi", [UNKNOWN]),
        (("q", ""), "bi", []),
        (("漢 " * 9, "漢"), "cross", [CUT, UNKNOWN]),
        (("\u200b", "\u200b"), "bi", [UNKNOWN]),  # no token is left of either
    ],
)
def test_an_example_knows_what_was_lost(tokenizer, pair, form, lost):
    pairs = [("q", "z"), pair, ("q", "z")]
    assert [e.lost for e in encode_pairs(pairs, [0] * 3, tokenizer, form, 8)] == [[], lost, []]


@pytest.mark.parametrize("form", ["cross", "bi"])
@pytest.mark.parametrize("side", ["right", "left"])
def test_a_target_that_is_cut_in_part_is_counted(tokenizer, form, side):
    """Of the six tokens of "qzqzqz" a sequence of eight keeps some."""
    cutting = deepcopy(tokenizer)
    cutting.truncation_side = side
    n = 3 if form == "cross" else 1
    texts = {"right": f"{'z ' * n}qzqzqz", "left": f"qzqzqz{' z' * n}"}
    start = texts[side].index("qzqzqz")
    pairs, spans = (
        [(texts[side], "q"), ("qz", "q")],
        [((start, start + 6), (0, 1)), ((0, 2), (0, 1))],
    )
    part, whole = encode_pairs(pairs, [0, 0], cutting, form, 8, spans)
    assert (part.lost, whole.lost) == ([CUT, PART], [])
    (first, stop) = part.spans[0][0]
    assert 0 < stop - first < 6
    beside = [
        (("z " * 9 + "q", "q"), ((0, 1), (0, 1))),
        (("q " * 9 + "z", "q"), ((18, 19), (0, 1))),
    ]
    pair, span = beside[side == "left"]
    (cut,) = encode_pairs([pair], [0], cutting, form, 8, [span])
    assert cut.lost == [CUT], "text beside the target"


@pytest.mark.parametrize("form", ["cross", "bi"])
def test_a_target_of_unknown_tokens_is_counted(tokenizer, form):
    spans = [((0, 1), (2, 3)), ((2, 3), (2, 3))]
    found = encode_pairs([("漢 q", "q z"), ("漢 q", "q z")], [0, 0], tokenizer, form, 16, spans)
    assert [e.lost for e in found] == [["with a target word of unknown tokens"], []]


def test_a_tokenizer_without_an_unknown_token_knows_every_text(tokenizer):
    of_bytes = Tokenizer(models.BPE({c: i for i, c in enumerate(ByteLevel.alphabet())}, []))
    of_bytes.pre_tokenizer = ByteLevel(add_prefix_space=False)
    fast = PreTrainedTokenizerFast(tokenizer_object=of_bytes)
    found = encode_pairs([("漢", "漢"), ("qzq", "q")], [0, 0], fast, "bi", 2, limit="task.most")
    assert [e.lost for e in found] == [["cut at task.most=2"]] * 2
    # the three bytes of one character: a token of the target is lost, and all have its offsets
    (part,) = encode_pairs([("漢", "q")], [0], fast, "bi", 2, [((0, 1), (0, 1))])
    assert part.lost[1] == "with part of a target word cut at task.max_length=2"
