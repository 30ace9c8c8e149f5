"""Word vectors of a file: what is read, what is rejected, and how text becomes words."""

import gzip
import hashlib

import pytest
import torch

from isotrain.analysis.encode import tokenise
from isotrain.encoders import static
from isotrain.encoders.static import SPECIALS, build_static
from isotrain.types import Batch

GLOVE = "the 1 0 0\ndog 0 2 1\nn't 1 1 1\nu.s. 3 2 1\n1,000 4 0 0\n"


@pytest.fixture
def write(tmp_path):
    def write_file(text, name="vectors.txt"):
        file = tmp_path / name
        data = text.encode() if isinstance(text, str) else text
        file.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return str(file)

    return write_file


def vector(encoder, word):
    return encoder.embeddings.weight[encoder.tokenizer.convert_tokens_to_ids(word)].tolist()


@pytest.mark.parametrize("name", ["vectors.txt", "vectors.txt.gz"])
@pytest.mark.parametrize("header", ["", "5 3\n"], ids=["glove", "word2vec"])
def test_both_formats_give_the_same_vectors(write, name, header):
    path = write(header + GLOVE, name)
    encoder = build_static(path)
    assert (encoder.width, encoder.n_blocks, encoder.max_positions) == (3, 0, None)
    assert len(encoder.tokenizer) == 5 + len(SPECIALS)
    assert vector(encoder, "dog") == [0, 2, 1]
    assert vector(encoder, "u.s.") == [3, 2, 1]
    with open(path, "rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest()[:12] in encoder.source_id


def test_what_is_no_word_of_the_file_has_the_vector_0(write):
    encoder = build_static(write(GLOVE))
    for special in SPECIALS.values():
        assert vector(encoder, special) == [0, 0, 0]
    assert vector(encoder, "cat") == [0, 0, 0]  # [UNK]


def test_text_is_split_as_published_vectors_were(write):
    words = "do n't ca u.s. 1,000 3.5 well - known it 's ... -- ! ."
    encoder = build_static(write("\n".join(f"{word} 1" for word in words.split(" "))))
    split = encoder.tokenizer.tokenize
    assert split("Don't! can't") == ["do", "n't", "!", "ca", "n't"]
    assert split("does n't") == ["[UNK]", "n't"]
    assert split("It's well-known.") == ["it", "'s", "well", "-", "known", "."]
    assert split("U.S. 1,000 3.5... --") == ["u.s.", "1,000", "3.5", "...", "--"]


def test_tokens_know_their_characters_words_and_special_ones(write):
    tokenizer = build_static(write(GLOVE)).tokenizer
    text = "The  dog barks, don't"
    tokens = tokenise(tokenizer, [text, ""], 16)
    assert tokens.special == [[1, 0, 0, 0, 0, 0, 0, 1], [1, 1]]
    pieces = [text[a:b] for a, b in tokens.offsets[0]]
    assert pieces == ["", "The", "dog", "barks", ",", "do", "n't", ""]
    assert tokens.n_cut == 0
    assert tokenise(tokenizer, [text], 4).n_cut == 1


def test_a_word_has_its_vector_whatever_stands_around_it_and_nothing_learns(write):
    encoder = build_static(write(GLOVE)).train()
    ids = torch.tensor([[2, 4, 5, 3], [2, 5, 3, 0]])
    zeros = torch.zeros_like(ids)
    output = encoder(Batch(ids, (ids > 0).long(), zeros, zeros, zeros[:, 0], zeros[:, 0]), {})
    assert len(output.hidden_states) == 1
    assert output.last is output.hidden_states[0]
    assert torch.equal(output.last[0, 2], output.last[1, 1])
    assert not any(p.requires_grad for p in encoder.parameters())


def test_of_repeated_words_the_first_stays(write):
    path = write("The 1\nthe 2\ndog 3\nthe 4\n[UNK] 9\n")
    folded, cased = build_static(path), build_static(path, lowercase=False)
    assert vector(folded, "the") == [1]
    assert vector(cased, "The") == [1]
    assert vector(cased, "the") == [2]
    assert vector(cased, "[UNK]") == [0]  # a special token keeps its own
    assert cased.tokenizer.tokenize("The the THE") == ["The", "the", "[UNK]"]


def test_the_first_words_are_read(write):
    path = write("5 3\n" + GLOVE.replace("dog 0 2 1", "the 0 2 1"))
    encoder = build_static(path, max_words=2)
    assert encoder.tokenizer.convert_ids_to_tokens([4, 5]) == ["the", "n't"]
    assert len(encoder.tokenizer) == 2 + len(SPECIALS)
    assert len(build_static(path, max_words=99).tokenizer) == 4 + len(SPECIALS)


def test_a_word_with_spaces_or_odd_characters_is_read(write):
    text = "the 1 2\n. . 3 4\nat name@x.com 5 6\nx\u00a0y 7 8\nend\u0085 9 9\r\n"
    encoder = build_static(write(text))
    found = [vector(encoder, word) for word in (". .", "at name@x.com", "x\u00a0y", "end\u0085")]
    assert found == [[3, 4], [5, 6], [7, 8], [9, 9]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("the 1 2\ndog 1\n", ":2: not a word and 2 numbers"),
        ("the 1 2\ndog 0 1 2\n", ":2: not a word and 2 numbers"),
        ("2 3\n\nthe 1 2\n", ":3: not a word and 3 numbers"),
        ("the 1 2\n 1 2\n", ":2: not a word and 2 numbers"),
        ("the 1 2\ndog 1 x\n", "could not convert string to float"),
        ("the 1 2\ndog 1 nan\n", "not finite in float32"),
        ("the 1 2\ndog 1 1e39\n", "not finite in float32"),
        (b"the 1 2\n\xff\xfe 1 2\n", "can't decode"),
        ("the\n", "reshape"),
        ("\n", "reshape"),
    ],
)
def test_a_file_of_something_else_is_an_error(write, text, said):
    with pytest.raises(ValueError, match=said):
        build_static(write(text))


def test_fewer_words_than_the_first_line_promises_are_rejected(write):
    path = write("3 2\nthe 1 2\nthe 3 4\n")
    with pytest.raises(ValueError, match="promises 3 words, and it has 2"):
        build_static(path)
    assert build_static(path, max_words=1).tokenizer.tokenize("the dog") == ["the", "[UNK]"]


def test_a_cut_gz_file_is_an_error(tmp_path):
    file = tmp_path / "vectors.gz"
    file.write_bytes(gzip.compress(GLOVE.encode() * 500)[:-20])
    with pytest.raises(EOFError, match="ended before the end-of-stream"):
        build_static(str(file))


def test_glove_is_read_from_its_package():
    encoder = build_static("glove", max_words=5000)
    assert (encoder.width, len(encoder.tokenizer)) == (50, 5000 + len(SPECIALS))
    assert vector(encoder, "[UNK]") == [0] * 50
    king, queen, banks = (torch.tensor(vector(encoder, w)) for w in ("king", "queen", "banks"))
    assert torch.cosine_similarity(king, queen, dim=0) > 0.7
    assert torch.cosine_similarity(king, banks, dim=0) < 0.3


def test_glove_that_is_absent_or_another_is_an_error(monkeypatch):
    monkeypatch.setitem(static.GLOVE_FILES, "glove_6B_50d_emb.npy", "0" * 64)
    with pytest.raises(ValueError, match=r"expected 000.*reinstall with: pip install"):
        build_static("glove")
    monkeypatch.setattr(static, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"encoder=glove are not installed: pip install.*glove"):
        build_static("glove")
