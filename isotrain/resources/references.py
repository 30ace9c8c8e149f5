"""BibTeX of the papers behind encoders, adapters, isotropy layers, objectives, metrics, data.

The entries are `references.bib`; a part is named by the module that it is defined in, an adapter
and a data set by their own names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

KEYS = {
    # encoders, by the model_type of transformers
    "bert": "devlin2019bert",
    "roberta": "liu2019roberta",
    "distilbert": "sanh2019distilbert",
    "gpt2": "radford2019language",
    "xlm-roberta": "conneau2020unsupervised",
    "camembert": "martin2020camembert",
    "minilm": "wang2020minilm",
    # adapters
    "lora": "hu2022lora",
    "ia3": "liu2022ia3",
    # isotropy layers
    "one_cluster": "mu2018allbutthetop",  # cluster_pca with n_clusters=1
    "cluster_pca": "rajaee2021cluster",
    "tuned_clusters": "rajaee2021finetuning",  # cluster_pca in a run that fine-tunes
    "batch_norm": "ioffe2015batch",
    "iso_bn": "zhou2021isobn",
    "iter_norm": "huang2019iterative",
    "standardize": "timkey2021bark",
    "whitening": "su2021whitening",
    "zca": "diera2024isotropy",
    "group_whitening": "zhuo2023whitenedcse",
    "cut_tails": "luo2020catch",
    # objectives
    "simcse": "gao2021simcse",
    "dcl": "yeh2022decoupled",
    "supcon": "khosla2020supervised",
    "cosent": "huang2024cosent",
    "angle": "li2024aoe",
    "istar": "rudman2024stable",
    "cosreg": "gao2019representation",
    "gor": "zhang2017learning",
    "uniformity": "wang2020understanding",  # the metric, too
    "alignment": "wang2020understanding",
    "vicreg": "bardes2022vicreg",
    "barlow": "zbontar2021barlow",
    "koleo": "sablayrolles2019spreading",
    "sigreg": "balestriero2025lejepa",
    # metrics
    "isoscore": "rudman2022isoscore",
    "isoscore_corrected": "himeno2014estimations",
    "isoscore_star": "rudman2024stable",
    "participation_ratio": "gao2017theory",
    "effective_rank": "roy2007effective",
    "rankme": "garrido2023rankme",
    "stable_rank": "rudelson2007sampling",
    "alpha_req": "agrawal2022alphareq",
    "mean_cosine": "ethayarajh2019contextual",
    "self_similarity": "ethayarajh2019contextual",
    "intra_sentence_similarity": "ethayarajh2019contextual",
    "max_explainable_variance": "ethayarajh2019contextual",
    "partition": "mu2018allbutthetop",
    "lid": "amsaleg2015estimating",
    "two_nn": "facco2017estimating",
    "outlier_dims": "timkey2021bark",
    "s_inter": "cai2021isotropy",
    "s_intra": "cai2021isotropy",
    "scatter_ratio": "fisher1936use",
    "label_silhouette": "rousseeuw1987silhouettes",
    "cluster_label_nmi": "vinh2010information",
    "best_dimension_accuracy": "rudman2023outlier",
    "linear_probe_accuracy": "alain2016understanding",
    "linear_cka": "kornblith2019similarity",
    # data sets
    "rte": "wang2019glue",
    "wic": "pilehvar2019wic",
    "stsb": "cer2017semeval",
    "sst2": "socher2013recursive",
    "snli": "bowman2015large",
    "wikitext-2": "merity2017pointer",
}
OURS = {  # no paper but this project
    *("spectral", "partition_null", "spectral_entropy", "condition", "explained_variance"),
    *("removed_label_scatter", "cosine_drift", "identity"),
}


@cache
def entries() -> dict[str, str]:
    """Every entry of `references.bib`, by its key.

    >>> entries()["rudman2024stable"].splitlines()[0]
    '@inproceedings{rudman2024stable,'
    """
    text = (files("isotrain.resources") / "references.bib").read_text(encoding="utf-8")
    found = re.findall(r"^(@\w+\{(\w+),\n.*?^\})", text, re.DOTALL | re.MULTILINE)
    return {key: entry for entry, key in found}


def bibtex(parts: Iterable[str]) -> list[str]:
    """The entries of parts, each once; a part without a paper has none.

    >>> len(bibtex(["istar", "isoscore_star", "spectral"]))
    1
    """
    keys = dict.fromkeys(KEYS[part] for part in parts if part in KEYS)
    return [entries()[key] for key in keys]
