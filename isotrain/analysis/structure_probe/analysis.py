"""Linear probes of words and sentences by layer, with control tasks: tags, chunks, depth, length.

N words or sentences, D dimensions.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field

from isotrain.analysis.annotated import (
    CHUNKS,
    TREEBANK,
    chunked,
    find_words,
    is_word_tag,
    parses,
    three_parts,
)
from isotrain.analysis.charts import LinePlot
from isotrain.analysis.data_sets import AVAILABLE, Available, Texts, present
from isotrain.analysis.encode import encode_rows, tokenise, whole_sentences
from isotrain.analysis.probe import best_penalty, not_installed, spearman
from isotrain.analysis.show import TableSpec, best_on_dev, left_out, principal_map
from isotrain.analysis.types import Analysis, Part, PartResult, Record, Subject, analysis
from isotrain.geometry.groups import hashed_order
from isotrain.results.statistics import wilson
from isotrain.tasks.data.sources import Source

Task = Literal["pos", "chunks", "depth", "length", "word_content"]
TASKS = {
    "pos": Texts(TREEBANK),
    "chunks": Texts(CHUNKS),
    "depth": Texts(TREEBANK),
    "length": Texts(CHUNKS),
    "word_content": Texts(CHUNKS),
}
PARTS = ("train", "dev", "test")
N_WORDS = 50  # classes of word content: the words of middle frequency
MOST_FREQUENT = 100  # the most frequent words, which are no classes
N_DIRECTIONS = 5  # principal directions described by their tags
FUNCTION_TAGS = [
    *("CC", "DT", "EX", "IN", "MD", "PDT", "POS", "PRP"),
    *("PRP$", "RP", "TO", "WDT", "WP", "WP$", "WRB"),
]
CLASSES: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "punctuation": lambda tag_N: np.array([not is_word_tag(tag) for tag in tag_N]),
    "function_word": lambda tag_N: np.isin(tag_N, FUNCTION_TAGS),
    "past_tense": lambda tag_N: tag_N == "VBD",
    "any_tag": lambda tag_N: tag_N,
}


class Labelled(NamedTuple):
    """Sentences, and the labels of the words or sentences that a probe reads."""

    sentences: list[list[str]]
    label: list[list[Any]]  # of each word, or one of the sentence
    is_of_words: bool
    is_class: bool  # else a number


def read_task(source: Source, task: str) -> Labelled:
    """The sentences of a task with its labels.

    `pos`: Penn tags; `depth`: constituents that a word is in; `chunks`: IOB2 tags; `length`: words
    of a sentence; `word_content`: which one of 50 words of middle frequency a sentence has.
    """
    if task in ("pos", "depth"):
        trees = parses(source)
        labels = [tree.tags if task == "pos" else tree.depths for tree in trees]
        return Labelled([tree.words for tree in trees], labels, True, task == "pos")
    rows = {tuple(words): tags for words, tags in chunked(source, "train")}
    sentences = [[*words] for words in rows]
    if task == "chunks":
        return Labelled(sentences, [*rows.values()], True, True)
    if task == "length":
        return Labelled(sentences, [[len(words)] for words in sentences], False, False)
    distinct = (word for words in sentences for word in dict.fromkeys(words))
    count = Counter(word.lower() for word in distinct if word.isalpha())
    classes = {word for word, _ in count.most_common()[MOST_FREQUENT : MOST_FREQUENT + N_WORDS]}
    label = [[word for word in {*map(str.lower, words)} if word in classes] for words in sentences]
    indices = [k for k, words in enumerate(label) if len(words) == 1]
    return Labelled([sentences[k] for k in indices], [label[k] for k in indices], False, True)


def control_labels(words: Sequence[str], label_N: np.ndarray, seed: int) -> np.ndarray:
    """A random label of each word, the same wherever it stands, drawn from the labels.

    What a probe reads of them it has learned by heart. Hewitt and Liang 2019.

    >>> found = control_labels(["a", "b", "a"], np.array([0, 1, 2]), seed=0)
    >>> bool(found[0] == found[2])
    True
    """
    vocabulary, number_N = np.unique(words, return_inverse=True)
    return np.random.default_rng(seed).choice(label_N, len(vocabulary))[number_N]


def correlation_ratio(value_NR: np.ndarray, class_N: np.ndarray) -> np.ndarray:
    """η² `[R]`: the share of the variance of each column that lies between classes, in [0, 1].

    Σ_k n_k(m_k − m)²/Σ_i(v_i − m)², 0 without spread. Pearson 1905. About (K − 1)/(N − 1) for K
    classes by chance.

    >>> value = np.array([[0.0], [0.0], [2.0], [2.0]])
    >>> correlation_ratio(value, np.array(["a", "a", "b", "b"])).tolist()
    [1.0]
    """
    centred_NR = value_NR - value_NR.mean(axis=0)
    _, number_N, count_K = np.unique(class_N, return_inverse=True, return_counts=True)
    sum_KR = np.zeros((len(count_K), value_NR.shape[1]))
    np.add.at(sum_KR, number_N, centred_NR)
    between_R = (sum_KR**2 / count_K[:, None]).sum(axis=0)
    total_R = (centred_NR**2).sum(axis=0)
    return np.asarray(between_R / np.where(total_R > 0, total_R, 1.0))


def tag_directions(x_ND: np.ndarray, tag_N: np.ndarray) -> list[dict[str, Any]]:
    """What the leading principal directions of words tell of their tags: a record a direction.

    η² of the coordinate along a direction and whether a word is in a class of tags.
    """
    map_NR, share_R = principal_map(torch.from_numpy(x_ND), N_DIRECTIONS)
    ratios = {
        name: correlation_ratio(map_NR.numpy(), classify(tag_N))
        for name, classify in CLASSES.items()
    }
    return [
        {"direction": r + 1, "variance": float(share), "n_words": len(tag_N)}
        | {name: float(ratio_R[r]) for name, ratio_R in ratios.items()}
        for r, share in enumerate(share_R.tolist())
    ]


@analysis
class StructureProbe(Analysis):
    """What do linear probes read of words and sentences at each layer?

    Parts of speech, chunks and depth in the tree from the embedding of a word (the mean of its
    tokens); length and content of a sentence from its mean. The probes are multinomial logistic
    regression (accuracy) and ridge regression (Spearman). Control tasks give each word a random
    label. Hewitt and Liang 2019; Conneau et al. 2018. The arguments are the keys of
    `conf/analysis/structure_probe.yaml`.
    """

    name = "structure_probe"
    question = "Which structure of words and sentences can a linear map read from each layer?"
    TABLES: ClassVar = (
        TableSpec(
            "tasks",
            "Structure read by a linear probe",
            of=lambda frames: best_on_dev(frames.of("probe"), ["weights", "task"]),
            index={"task": "task"},
            values={
                **{"measure": "measure", "layer": "layer", "dev": "dev", "test": "test"},
                **{"control": "control", "selectivity": "selectivity", "majority": "majority"},
                **{"n_classes": "classes", "n_train": "N train", "n_test": "N test"},
            },
            notes=(
                "The layer has the best score on dev. Sentences are split into train, dev and test "
                "(60, 20, 20 %). Control: each word has a random label; selectivity: test minus "
                "control. Majority: the most frequent class. Intervals: Wilson for accuracy, "
                "Bonett and Wright (2000) for Spearman, as if words were independent.",
                left_out("task left out", "task"),
            ),
        ),
        TableSpec(
            "layers",
            "Test score by layer",
            of="probe",
            index={"layer": "layer"},
            values={"test": "", "selectivity": "selectivity"},
            across="task",
            bare=True,
        ),
        TableSpec(
            "directions",
            "What the leading principal directions hold, before any is removed",
            of="direction",
            index={"layer": "layer", "direction": "direction"},
            values={"variance": "variance", **{name: name.replace("_", " ") for name in CLASSES}},
            notes=(
                "{n_words:,} words of the treebank, centred. Variance: share of all. The others: "
                "η², the share of a direction's variance between words of a class of tags and the "
                "rest; about 1/{n_words:,} by chance (any tag: between all tags, about their "
                "number less one in {n_words:,}). Function words: "
                f"{', '.join(FUNCTION_TAGS)}; past tense: VBD.",
            ),
        ),
    )
    PLOTS: ClassVar = (
        LinePlot(
            "structure",
            "Structure read by a linear probe, by layer",
            "By layer: test scores of linear probes, and of their control tasks.",
            of="probe",
            y={"test": "test", "control": "control"},
            panel="task",
            ylabel="score",
            reference=("control",),
        ),
    )

    tasks: Available | Sequence[Task] = AVAILABLE
    max_train: Annotated[int, Field(ge=50)] = 4000
    max_eval: Annotated[int, Field(ge=20)] = 2000
    penalties: Sequence[float] = (1.0, 0.1, 0.01)

    def missing(self, source: Source) -> Sequence[str]:
        """Requested tasks that the source lacks, or all if it has none; scikit-learn."""
        return [*present(source, self.tasks, TASKS).problems, *not_installed()]

    def data_sets(self, source: Source) -> Sequence[Any]:
        """The data sets of the probed tasks."""
        return [TASKS[name].data_set for name in present(source, self.tasks, TASKS).names]

    def parts(self, subject: Subject) -> Iterator[Part]:
        """The absent tasks, then each task."""
        names, absent, _ = present(subject.source, self.tasks, TASKS)
        records = [{"kind": "task left out", "task": n, "reason": why} for n, why in absent.items()]
        yield Part("tasks", lambda: PartResult(records))
        for name in names:
            yield Part(name, partial(self._probed, subject, name))

    def _probed(self, subject: Subject, task: str) -> PartResult:
        corpus = read_task(subject.source, task)
        part_S = three_parts(len(corpus.sentences), subject.seed)
        sample = self._sample_sentences(corpus, part_S, subject.seed)
        sentences, labels = (
            [values[i] for i in sample] for values in (corpus.sentences, corpus.label)
        )
        if corpus.is_of_words:
            words = find_words(subject.encoder.tokenizer, sentences, subject.max_length)
            tokens, spans = words.tokens, words.spans
            indices = [*zip(spans.sentence_N.tolist(), words.word_N.tolist(), strict=True)]
        else:
            texts = [" ".join(sentence) for sentence in sentences]
            tokens = tokenise(subject.encoder.tokenizer, texts, subject.max_length)
            spans, indices = whole_sentences(tokens), [(i, 0) for i in range(len(sentences))]
        label_N = tag_N = np.array([labels[i][k] for i, k in indices])
        facts: dict[str, Any] = {"kind": "probe", "task": task, "n_cut": tokens.n_cut}
        facts["measure"] = "accuracy" if corpus.is_class else "spearman"
        part_N = np.array([part_S[sample[i]] for i, _ in indices])
        rows_of = {part: np.flatnonzero(part_N == part) for part in PARTS}
        if min(map(len, rows_of.values())) < 2:
            raise ValueError(
                f"{task} has {len(indices)} examples of it in {len(corpus.sentences)} sentences; a "
                "probe needs two of train, dev and test each: leave it out of analysis.tasks"
            )
        facts |= {f"n_{part}": len(rows) for part, rows in rows_of.items()}
        if corpus.is_class:
            classes, label_N = np.unique(label_N, return_inverse=True)
            majority_class = np.bincount(label_N[rows_of["train"]]).argmax()
            facts |= {
                "n_classes": len(classes),
                "majority": float((label_N[rows_of["test"]] == majority_class).mean()),
            }
        targets = {"test": label_N}
        if corpus.is_of_words:
            word_forms = [sentences[i][k] for i, k in indices]
            targets["control"] = control_labels(word_forms, label_N[rows_of["train"]], subject.seed)
        records: list[Record] = []
        for layer, x_ND in enumerate(encode_rows(subject, tokens, spans)):
            record = {**facts, "layer": layer}
            for name, target_N in targets.items():
                score = self._score(x_ND, target_N, rows_of, facts.get("n_classes", 0))
                if name == "test":
                    record |= score
                else:
                    both = record["test"], score["test"]
                    difference = None if None in both else both[0] - both[1]
                    record |= {name: score["test"], "selectivity": difference}
            records.append(record)
            if task == "pos":
                keys = {"kind": "direction", "layer": layer}
                records += [{**keys, **direction} for direction in tag_directions(x_ND, tag_N)]
        return PartResult(records)

    def _sample_sentences(self, labelled: Labelled, part_S: np.ndarray, seed: int) -> list[int]:
        """Sentences whose labels are as many as asked for in each part."""
        indices: list[int] = []
        for part in PARTS:
            n_left = self.max_train if part == "train" else self.max_eval
            for i in hashed_order(len(part_S), seed).tolist():
                if part_S[i] == part and n_left > 0:
                    indices.append(i)
                    n_left -= len(labelled.label[i])
        return indices

    def _score(
        self, x_ND: np.ndarray, label_N: np.ndarray, at: dict[str, np.ndarray], n_classes: int
    ) -> dict[str, Any]:
        """The scores on dev and test of the probe with the least loss on dev."""
        x, label = ({part: values[rows] for part, rows in at.items()} for values in (x_ND, label_N))
        fit = x["train"].astype(np.float64), label["train"], x["dev"], label["dev"]
        probe = best_penalty(*fit, self.penalties, n_classes).probe
        record: dict[str, Any] = {}
        for part in PARTS[1:]:
            prediction = probe.predict(x[part])
            if n_classes:
                share = float((prediction == label[part]).mean())
                estimate: Sequence[Any] = (share, *wilson(share, len(prediction)))
            else:
                estimate = spearman(prediction, label[part])
            record |= dict(zip((part, f"{part}_low", f"{part}_high"), estimate, strict=True))
        return record
