"""Sentences of a small grammar with trees, chunks and senses, in the words of tiny encoders."""

import json

import numpy as np

NOUNS, VERBS, ADJECTIVES = ("dog", "cat", "bird", "king"), ("sees", "likes"), ("old", "near")


def noun_phrase(generator):
    """A tree and its words with their tags and chunks."""
    words = [("DT", "the"), ("NN", str(generator.choice(NOUNS)))]
    if generator.random() < 0.5:
        words.insert(1, ("JJ", str(generator.choice(ADJECTIVES))))
    tree = " ".join(f"({tag} {word})" for tag, word in words)
    chunks = ["B-NP"] + ["I-NP"] * (len(words) - 1)
    return f"(NP {tree})", [word for _, word in words], chunks


def sentences(n, seed=0):
    """Distinct sentences: a tree, words, and chunks of each."""
    generator, found = np.random.default_rng(seed), {}
    for k in range(50 * n):
        subject, of_subject, first = noun_phrase(generator)
        other, of_other, last = noun_phrase(generator)
        verb, number = str(generator.choice(VERBS)), f"{k % 7}"
        tree = f"(S {subject} (VP (VBZ {verb}) {other} (CD {number})) (. .))"
        words = [*of_subject, verb, *of_other, number, "."]
        found.setdefault(tuple(words), (tree, [*first, "B-VP", *last, "O", "O"]))
    return [(tree, [*words], chunks) for words, (tree, chunks) in [*found.items()][:n]]


def write_annotated(folder, n=90):
    """The folder with a treebank, chunks, and words whose sense stands right before them."""
    rows = sentences(n)
    write(folder / "treebank_sample" / "all.jsonl", [{"tree": tree} for tree, *_ in rows])
    for split, own in (("train", rows[: n // 2]), ("test", rows[n // 2 :])):
        chunks = [{"tokens": words, "chunks": chunks} for _, words, chunks in own]
        write(folder / "conll2000" / f"{split}.jsonl", chunks)
    senses = []
    for k, (_, words, _) in enumerate(rows):
        lemma, is_old = ("bank", "king")[k % 2], k % 4 < 2
        tokens = [*words, "old" if is_old else "near", lemma]
        where = {"lemma": lemma, "tokens": tokens, "position": len(tokens) - 1}
        senses.append({**where, "sense": f"{lemma}{int(is_old)}"})
    write(folder / "senseval2" / "all.jsonl", senses)
    return folder


def write(path, rows):
    """A file of rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
