"""Rows of hidden states: those of each sentence alone, streamed, resumed, never of a pad."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from isotrain.analysis.encode import (
    Spans,
    encode_rows,
    span_means,
    tokenise,
    whole_sentences,
)
from tests.analysis.runs import tiny

SENTENCES = (
    "The old dog sees the cat.",
    "A cat.",
    "The doctor called the lawyer in the garden at noon, and the lawyer did not hear it.",
    "Nobody came.",
    "The red bird follows the small horse near the bank.",
    "Yes",
    "The pilot rescued the sailor by the sea.",
)


@pytest.fixture(scope="module")
def tokens(encoder):
    return tokenise(encoder.tokenizer, SENTENCES, 64)


def every_token(tokens):
    places = [(i, t) for i, ids in enumerate(tokens.ids) for t in range(len(ids))]
    at_N, start_N = np.array(places).T
    return Spans(at_N, start_N, start_N + 1)


def alone(encoder, ids):
    """Hidden states of one sentence without any other, the last one behind any final norm."""
    model = encoder.model
    with torch.no_grad():
        output = model(input_ids=torch.tensor([ids]), output_hidden_states=True)
    states = (*output.hidden_states[:-1], output.last_hidden_state)
    return [state[0].numpy() for state in states]


def worst(found_ND, wanted_ND):
    """The largest difference, in units of the rms of what is wanted."""
    return np.abs(found_ND - wanted_ND).max() / np.sqrt(np.mean(wanted_ND**2))


@pytest.mark.parametrize("batch_size", [1, 3, 16])
@pytest.mark.parametrize("kind", ["bert", "gpt2"])
def test_rows_are_those_of_each_sentence_alone(kind, batch_size, subject_of):
    encoder = tiny(kind)
    if kind == "gpt2":  # its norm behind the last block, taken twice, is another
        with torch.no_grad():
            encoder.model.ln_f.weight.mul_(3.0)
            encoder.model.ln_f.bias.add_(1.0)
    tokens = tokenise(encoder.tokenizer, SENTENCES, 64)
    assert len({len(ids) for ids in tokens.ids}) > 4  # so that there are pads
    spans = every_token(tokens)
    rows_LND = encode_rows(subject_of(encoder, batch_size=batch_size), tokens, spans)
    assert rows_LND.shape == (3, len(spans), 16)
    assert rows_LND.dtype == np.float32
    for i, ids in enumerate(tokens.ids):
        for layer, wanted_TD in enumerate(alone(encoder, ids)):
            assert worst(rows_LND[layer, spans.sentence_N == i], wanted_TD) < 1e-5


def test_chosen_layers_in_the_order_given(encoder, tokens, subject_of):
    spans = whole_sentences(tokens)
    every_LND = encode_rows(subject_of(encoder), tokens, spans)
    some_LND = encode_rows(subject_of(encoder), tokens, spans, [2, 0])
    np.testing.assert_array_equal(some_LND, every_LND[[2, 0]])


def test_spans_in_any_order_and_sentences_without_one(encoder, tokens, subject_of):
    spans = every_token(tokens)
    every_LND = np.array(encode_rows(subject_of(encoder), tokens, spans))
    chosen = np.random.default_rng(0).permutation(np.flatnonzero(spans.sentence_N % 3 != 1))
    some_LND = encode_rows(subject_of(encoder), tokens, Spans(*(part[chosen] for part in spans)))
    for layer in range(3):
        assert worst(some_LND[layer], every_LND[layer, chosen]) < 1e-5


def test_the_file_of_the_rows_ends_with_them(encoder, tokens, subject_of):
    subject = subject_of(encoder)
    rows_LND = encode_rows(subject, tokens, whole_sentences(tokens))
    assert isinstance(rows_LND, np.memmap)
    again_LND = encode_rows(subject, tokens, whole_sentences(tokens))
    np.testing.assert_array_equal(rows_LND, again_LND)  # two files, though in one folder
    assert not [*subject.folder.iterdir()]


def test_tokens_with_their_marks_and_characters(tokenizer):
    text = "The dog xyz."
    tokens = tokenise(tokenizer, [text], 64)
    spelled = tokenizer.convert_ids_to_tokens(tokens.ids[0])
    assert spelled == ["[CLS]", "the", "dog", "x", "##y", "##z", ".", "[SEP]"]
    assert tokens.special == [[1, 0, 0, 0, 0, 0, 0, 1]]
    written = [text[start:stop] for start, stop in tokens.offsets[0]]
    assert written == ["", "The", "dog", "x", "y", "z", ".", ""]


def test_what_is_too_long_is_cut_and_counted(tokenizer):
    sentences = ["king boss", "king boss king", "king boss king boss"]
    tokens = tokenise(tokenizer, sentences, 5)
    whole = tokenizer("king boss king")["input_ids"]
    assert tokens.ids[1] == tokens.ids[2] == whole  # one exactly fits, one is cut to it
    assert tokens.n_cut == 1
    assert tokens.is_cut == [False, False, True]


@settings(max_examples=60)
@given(st.data())
def test_means_of_spans_against_a_loop(data):
    a, t, d = (data.draw(st.integers(1, most)) for most in (4, 6, 3))
    seed = data.draw(st.integers(0, 2**20))
    states_ATD = torch.randn(a, t, d, generator=torch.Generator().manual_seed(seed))
    spans = data.draw(
        st.lists(
            st.tuples(st.integers(0, a - 1), st.integers(0, t - 1), st.integers(1, t)).filter(
                lambda span: span[1] + span[2] <= t
            ),
            min_size=1,
            max_size=8,
        )
    )
    at_N, start_N, length_N = np.array(spans).T
    found_ND = span_means(states_ATD, at_N, start_N, start_N + length_N)
    wanted_ND = torch.stack([states_ATD[i, s : s + n].mean(dim=0) for i, s, n in spans])
    torch.testing.assert_close(found_ND, wanted_ND)


def test_an_empty_span_is_rejected():
    with pytest.raises(ValueError, match="a span must have a token"):
        span_means(torch.ones(1, 2, 1), *(np.array([k]) for k in (0, 1, 1)))
