"""How each metric is read, and which work each metric, layer and objective follows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from isotrain.runs.keys import metric_of


class Reading(NamedTuple):
    """What a reader of a number needs to know."""

    label: str  # with the isotropic end, where there is one
    span: str  # its range
    says: str  # what it sees, and what few rows do to it
    source: str = "ours"


READINGS = {
    "isoscore": Reading(
        "IsoScore (1 = isotropic)",
        "[0, 1]",
        "how evenly the variance is spread over directions; blind to the mean; "
        "low with few rows: N/(N+D) for a Gaussian",
        "Rudman et al. 2022",
    ),
    "isoscore_corrected": Reading(
        "IsoScore, bias-corrected (1 = isotropic)",
        "about [0, 1]",
        "IsoScore without the bias of few rows; noisier",
        "Rudman et al. 2022, with estimators of Himeno & Yamada 2014",
    ),
    "isoscore_star": Reading(
        "IsoScore* (1 = isotropic)",
        "[0, 1]",
        "IsoScore of a covariance shrunk towards a reference",
        "Rudman & Eickhoff 2024",
    ),
    "mean_cosine": Reading(
        "mean cosine (0 = isotropic)",
        "[−1/(N−1), 1]",
        "mean cosine of two different rows: how narrow the cone is; blind to the spread about it",
        "Ethayarajh 2019",
    ),
    "partition": Reading(
        "ln I(W) (0 = isotropic)",
        "(−∞, 0]",
        "log of smallest over largest partition function; grows with the norm of the rows and "
        "with few rows: compare it with its null band (Gaussian rows of the same N, D and norm)",
        "Mu & Viswanath 2018",
    ),
    "participation_ratio": Reading(
        "participation ratio (D = isotropic)",
        "[1, D]",
        "number of directions that carry the variance; low with few rows",
        "Gao et al. 2017",
    ),
    "effective_rank": Reading(
        "effective rank (D = isotropic)",
        "[1, D]",
        "exponential of the entropy of the spectrum; at most N − 1",
        "Roy & Vetterli 2007",
    ),
    "rankme": Reading(
        "RankMe (D = isotropic)",
        "[1, D]",
        "effective rank with the mean counted as a direction; at most N",
        "Garrido et al. 2023",
    ),
    "spectral_entropy": Reading(
        "spectral entropy (1 = isotropic)",
        "[0, 1]",
        "entropy of the shares of variance over ln D; low with few rows",
    ),
    "stable_rank": Reading(
        "stable rank (D = isotropic)",
        "[1, D]",
        "variance over the largest eigenvalue; low with few rows",
        "Rudelson & Vershynin 2007",
    ),
    "explained_variance": Reading(
        "share of the leading directions (k/D = isotropic)",
        "[k/D, 1]",
        "share of the variance in the k leading directions; high with few rows",
        "principal component analysis",
    ),
    "condition": Reading(
        "condition (1 = isotropic)",
        "[1, ∞)",
        "strongest over weak directions; high with few rows",
    ),
    "alpha_req": Reading(
        "α of the spectrum (0 = isotropic)",
        "[0, ∞)",
        "how fast the spectrum falls; high with few rows",
        "Agrawal et al. 2022",
    ),
    "uniformity": Reading(
        "uniformity (low = uniform)",
        "[−2tN/(N−1), 0]",
        "how evenly directions fill the sphere",
        "Wang & Isola 2020",
    ),
    "lid": Reading(
        "local intrinsic dimension (D = isotropic)",
        "(0, ∞)",
        "dimensions that the neighbours of a row fill; low where D is large",
        "Amsaleg et al. 2015",
    ),
    "two_nn": Reading(
        "intrinsic dimension, TwoNN (D = isotropic)",
        "(0, ∞)",
        "dimensions from two neighbours of each row; low where D is large",
        "Facco et al. 2017",
    ),
    "outlier_dims": Reading(
        "outlier dimensions",
        "by part",
        "single coordinates that dominate mean or variance; a rotation changes everything",
        "Timkey & van Schijndel 2021",
    ),
    "self_similarity": Reading(
        "self-similarity",
        "[−1, 1]; adjusted: 0 = isotropic",
        "cosine of one word in different sentences",
        "Ethayarajh 2019",
    ),
    "intra_sentence_similarity": Reading(
        "intra-sentence similarity",
        "[−1, 1]; above shuffled: 0",
        "cosine of words with the mean of their sentence",
        "Ethayarajh 2019",
    ),
    "max_explainable_variance": Reading(
        "maximum explainable variance",
        "[1/min(n, D), 1]; adjusted: 0",
        "how far one vector stands for all uses of a word",
        "Ethayarajh 2019",
    ),
    "s_inter": Reading(
        "S_inter (0 = isotropic)",
        "[−1, 1]",
        "mean cosine of rows of different words",
        "Cai et al. 2021",
    ),
    "s_intra": Reading(
        "S_intra (0 = isotropic)",
        "[−1, 1]",
        "mean cosine of rows of one word",
        "Cai et al. 2021",
    ),
    "scatter_ratio": Reading(
        "between over within class scatter",
        "value [0, ∞), share [0, 1]",
        "how far classes stand apart; the share is (C−1)/(N−1) by chance",
        "Fisher 1936",
    ),
    "label_silhouette": Reading(
        "silhouette of the classes",
        "[−1, 1]",
        "1 = classes are compact and apart, 0 = they overlap; near 0 where D is large",
        "Rousseeuw 1987",
    ),
    "cluster_label_nmi": Reading(
        "clusters against classes",
        "nmi [0, 1], ari at most 1",
        "1 = k-means clusters are the classes; nmi is high with few rows, ari 0 by chance",
        "Vinh et al. 2010",
    ),
    "removed_label_scatter": Reading(
        "label scatter in the leading directions",
        "[0, 1]",
        "share of the between-class scatter that removing them would take",
    ),
    "best_dimension_accuracy": Reading(
        "accuracy of the best coordinate",
        "[0, 1]",
        "classes told apart by one coordinate, held out; compare with the majority share",
        "Rudman et al. 2023",
    ),
    "linear_probe_accuracy": Reading(
        "accuracy of a linear probe",
        "[0, 1]",
        "classes told apart by a plane, held out; compare with the majority share",
        "Alain & Bengio 2016",
    ),
    "linear_cka": Reading(
        "linear CKA with step 0 (1 = same geometry)",
        "[0, 1]; debiased [−1, 1]",
        "likeness to the same rows before training; high with few rows unless debiased",
        "Kornblith et al. 2019",
    ),
    "cosine_drift": Reading(
        "cosine drift from step 0 (0 = none)",
        "[0, 2]",
        "1 − cosine of each row with itself before training",
    ),
}
TITLES = {"cls": "first token (CLS)", "tokens": "tokens", "mean": "mean of tokens"}  # of views
CAUSAL = "first token (causal: it sees nothing else)"

SOURCES = {  # of isotropy layers and objectives, by the module of their target
    "cluster_pca": "cluster PCA: Rajaee & Pilehvar 2021",
    "protected_cluster_pca": "cluster PCA: Rajaee & Pilehvar 2021",
    "iso_bn": "isotropic batch normalisation: Zhou et al. 2021",
    "simcse": "SimCSE: Gao et al. 2021",
    "dcl": "decoupled contrastive loss: Yeh et al. 2022",
    "supcon": "supervised contrastive loss: Khosla et al. 2020",
    "cosent": "CoSENT: Huang et al. 2024",
    "angle": "AnglE: Li & Li 2024",
    "istar": "I-STAR: Rudman & Eickhoff 2024",
    "cosreg": "cosine regularisation: Gao et al. 2019",
    "gor": "global orthogonal regularisation: Zhang et al. 2017",
    "uniformity": "uniformity: Wang & Isola 2020",
    "alignment": "alignment: Wang & Isola 2020",
    "vicreg": "VICReg: Bardes et al. 2022",
    "barlow": "Barlow Twins: Zbontar et al. 2021",
    "koleo": "KoLeo: Sablayrolles et al. 2018",
    "sigreg": "SIGReg: LeJEPA 2025",
}


def base_of(metric: str) -> str:
    """The metric that gives a logged value; the value itself where none is known.

    >>> base_of("outlier_dims_share_1"), base_of("isoscore_corrected"), base_of("mine")
    ('outlier_dims', 'isoscore_corrected', 'mine')
    """
    return metric_of(metric, READINGS) or metric


def view_titles(result: Mapping[str, Any]) -> dict[str, str]:
    """What each view of a layer is called, by the record of a run.

    >>> view_titles({})["cls"], view_titles({"is_causal": True})["cls"]
    ('first token (CLS)', 'first token (causal: it sees nothing else)')
    """
    return TITLES | ({"cls": CAUSAL} if result.get("is_causal") else {})


def label(metric: str) -> str:
    """The name of a value for a reader.

    >>> label("mean_cosine"), label("scatter_ratio_share"), label("top_share")
    ('mean cosine (0 = isotropic)', 'between over within class scatter: share', 'top share')
    """
    base = base_of(metric)
    if base not in READINGS:
        return metric.replace("_", " ")
    part = metric[len(base) :].strip("_").replace("_", " ")
    return READINGS[base].label + (f": {part}" if part else "")
