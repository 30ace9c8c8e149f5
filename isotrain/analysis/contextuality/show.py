"""Tables and plots of contextuality."""

import pandas as pd

from isotrain.analysis.charts import LinePlot
from isotrain.analysis.show import Frames, TableSpec, left_out

MEAN = "mean of all words"


def _words_and_mean(frames: Frames) -> pd.DataFrame:
    """The chosen words, followed by the mean of all words of each layer."""
    words, layers = frames.of("word"), frames.of("layer")
    if words.empty:
        return words
    adjusted = [name for name in words if str(name).endswith("_adjusted")]
    mean = layers[["weights", "layer", *adjusted]].assign(word=MEAN)
    words["word"] = [f"{w} (n = {n:,})" for w, n in zip(words["word"], words["n"], strict=True)]
    return pd.concat([mean, words])


TABLES = (
    TableSpec(
        "layers",
        "Layers, adjusted",
        of="layer",
        index={"layer": "layer"},
        values={
            "anisotropy": "anisotropy",
            "self_similarity_adjusted": "self-similarity",
            "intra_sentence_similarity_adjusted": "intra-sentence",
            "max_explainable_variance_adjusted": "explained variance",
        },
        notes=(
            "{n_rows:,} tokens of {n_sentences:,} different sentences of {corpus}, which has "
            "{n_corpus:,}; special tokens left out; {n_cut:,} of these sentences were cut. "
            "{n_words:,} different ones occur {min_count} times or more.",
            "Anisotropy: mean cosine of two words of different sentences. The next two are mean "
            "cosines less anisotropy: of two occurrences of a word, and of a word with the mean of "
            "its sentence. Explained variance: share of the first singular direction of "
            "{min_count} occurrences of a word, less that of random words; uncentred. ± 95 % CI "
            "(jackknife over sentences; of explained variance in quadrature).",
            left_out("word left out", "word"),
        ),
    ),
    TableSpec(
        "unadjusted",
        "Layers, unadjusted",
        of="layer",
        index={"layer": "layer"},
        values={
            "self_similarity": "self-sim.",
            "intra_sentence_similarity": "intra-sent.",
            "intra_sentence_above_shuffled": "above shuffled",
            "max_explainable_variance": "explained",
            "max_explainable_variance_baseline": "of random",
            "mean_norm": "norm",
        },
        notes=(
            "Intra-sentence: of a word with the mean of its sentence, itself among it, which is "
            "√(ρ + (1−ρ)/n) for n words in a cone of mean cosine ρ alone. Above shuffled: less "
            "that of sentences of the same lengths whose words are dealt out anew. Explained "
            "variance is at least 1/{min_count}. ± 95 % CI.",
        ),
    ),
    *(
        TableSpec(
            f"words_{column}",
            f"{title} of single words, less {base}",
            of="word",
            index={"layer": "layer"},
            values={f"{column}_adjusted": ""},
            across="word",
        )
        for column, title, base in (
            ("self_similarity", "Self-similarity", "anisotropy"),
            ("max_explainable_variance", "Explained variance", "its baseline"),
        )
    ),
    TableSpec(
        "cls",
        "Whether CLS is zero-mean",
        of="cls",
        index={"layer": "layer"},
        values={
            "cls_mean_norm": "norm of the mean / mean norm",
            "cls_mean_share": "share of the mean",
            "cls_mean_cosine": "mean cosine",
        },
        notes=(
            "CLS of {n_cls:,} sentences of {corpus}. Norm of the mean embedding over the mean "
            "norm: from about 1/√{n_cls:,} (zero-mean) to 1 (all equal). Share of the mean: the "
            "same of squared norms. Mean cosine: of two sentences, 0 if zero-mean.",
        ),
    ),
)
PLOTS = (
    LinePlot(
        "anisotropy",
        "anisotropy: mean cosine of words of different sentences (N = {n_rows:,})",
        "0: directions of words are as in an isotropic space; 1: all words point one way.",
        of="layer",
        y={"anisotropy": ""},
        ylabel="mean cosine",
    ),
    LinePlot(
        "self_similarity",
        "self-similarity, less anisotropy (mean of {n_words:,} words)",
        "How alike the occurrences of a word are, beyond the cone that all words share; where it "
        "falls, context changes words more.",
        of="layer",
        y={"self_similarity_adjusted": ""},
        ylabel="cosine, adjusted",
    ),
    LinePlot(
        "intra_sentence_similarity",
        "intra-sentence similarity (mean of {n_intra:,} sentences of two or more words)",
        "How alike the words of a sentence are to their mean. A narrow cone alone raises the "
        "published form; less shuffled sentences it is 0 where no sentence shows.",
        of="layer",
        y={
            "intra_sentence_similarity_adjusted": "less anisotropy (as published)",
            "intra_sentence_above_shuffled": "less shuffled sentences",
        },
        ylabel="cosine",
    ),
    *(
        LinePlot(
            f"words_{column}",
            f"{label} of words, less {base}",
            f"By layer: {label} of single words, less {base}; n is how often a word occurs here.",
            of=_words_and_mean,
            y={f"{column}_adjusted": ""},
            hue="word",
            panel="weights",
            reference=(MEAN,),
            ylabel="adjusted",
        )
        for column, label, base in (
            ("max_explainable_variance", "explained variance", "its baseline"),
            ("self_similarity", "self-similarity", "anisotropy"),
        )
    ),
)
