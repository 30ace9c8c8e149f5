"""BibTeX of encoders and methods, by what a configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def _entry(kind: str, key: str, author: str, title: str, where: str, year: int) -> str:
    venue = "journal" if kind == "article" else "booktitle"
    fields = {"author": author, "title": title, venue: where, "year": str(year)}
    body = "".join(f"  {name} = {{{value}}},\n" for name, value in fields.items())
    return f"@{kind}{{{key},\n{body}}}"


def _paper(key: str, author: str, title: str, where: str, year: int) -> str:
    return _entry("inproceedings", key, author, title, where, year)


def _arxiv(key: str, author: str, title: str, number: str, year: int) -> str:
    return _entry("article", key, author, title, f"arXiv:{number}", year)


ENCODERS = {  # by config.model_type
    "bert": _paper(
        "devlin2019bert",
        "Devlin, Jacob and Chang, Ming-Wei and Lee, Kenton and Toutanova, Kristina",
        "{BERT}: Pre-training of Deep Bidirectional Transformers for Language Understanding",
        "NAACL",
        2019,
    ),
    "roberta": _arxiv(
        "liu2019roberta",
        "Liu, Yinhan and Ott, Myle and Goyal, Naman and others",
        "{RoBERTa}: A Robustly Optimized {BERT} Pretraining Approach",
        "1907.11692",
        2019,
    ),
    "distilbert": _arxiv(
        "sanh2019distilbert",
        "Sanh, Victor and Debut, Lysandre and Chaumond, Julien and Wolf, Thomas",
        "{DistilBERT}, a distilled version of {BERT}: smaller, faster, cheaper and lighter",
        "1910.01108",
        2019,
    ),
    "gpt2": _entry(
        "article",
        "radford2019language",
        "Radford, Alec and Wu, Jeffrey and Child, Rewon and Luan, David and Amodei, Dario and "
        "Sutskever, Ilya",
        "Language Models are Unsupervised Multitask Learners",
        "OpenAI blog",
        2019,
    ),
}
MINILM = _paper(
    "wang2020minilm",
    "Wang, Wenhui and Wei, Furu and Dong, Li and Bao, Hangbo and Yang, Nan and Zhou, Ming",
    "{MiniLM}: Deep Self-Attention Distillation for Task-Agnostic Compression of Pre-Trained "
    "Transformers",
    "NeurIPS",
    2020,
)
ONE_CLUSTER = _paper(
    "mu2018allbutthetop",
    "Mu, Jiaqi and Viswanath, Pramod",
    "All-but-the-Top: Simple and Effective Postprocessing for Word Representations",
    "ICLR",
    2018,
)
CLUSTERS = _paper(
    "rajaee2021cluster",
    "Rajaee, Sara and Pilehvar, Mohammad Taher",
    "A Cluster-based Approach for Improving Isotropy in Contextual Embedding Space",
    "ACL",
    2021,
)
METHODS = {  # of layers and objectives, by the module of their target
    "batch_norm": _paper(
        "ioffe2015batch",
        "Ioffe, Sergey and Szegedy, Christian",
        "Batch Normalization: Accelerating Deep Network Training by Reducing Internal Covariate "
        "Shift",
        "ICML",
        2015,
    ),
    "iso_bn": _paper(
        "zhou2021isobn",
        "Zhou, Wenxuan and Lin, Bill Yuchen and Ren, Xiang",
        "{IsoBN}: Fine-Tuning {BERT} with Isotropic Batch Normalization",
        "AAAI",
        2021,
    ),
    "iter_norm": _paper(
        "huang2019iterative",
        "Huang, Lei and Zhou, Yi and Zhu, Fan and Liu, Li and Shao, Ling",
        "Iterative Normalization: Beyond Standardization towards Efficient Whitening",
        "CVPR",
        2019,
    ),
    "standardize": _paper(
        "timkey2021bark",
        "Timkey, William and van Schijndel, Marten",
        "All Bark and No Bite: Rogue Dimensions in Transformer Language Models Obscure "
        "Representational Quality",
        "EMNLP",
        2021,
    ),
    "whitening": _arxiv(
        "su2021whitening",
        "Su, Jianlin and Cao, Jiarun and Liu, Weijie and Ou, Yangyiwen",
        "Whitening Sentence Representations for Better Semantics and Faster Retrieval",
        "2103.15316",
        2021,
    ),
    "simcse": _paper(
        "gao2021simcse",
        "Gao, Tianyu and Yao, Xingcheng and Chen, Danqi",
        "{SimCSE}: Simple Contrastive Learning of Sentence Embeddings",
        "EMNLP",
        2021,
    ),
    "supcon": _paper(
        "khosla2020supervised",
        "Khosla, Prannay and Teterwak, Piotr and Wang, Chen and others",
        "Supervised Contrastive Learning",
        "NeurIPS",
        2020,
    ),
    "istar": _paper(
        "rudman2024stable",
        "Rudman, William and Eickhoff, Carsten",
        "Stable Anisotropic Regularization",
        "ICLR",
        2024,
    ),
    "cosreg": _paper(
        "gao2019representation",
        "Gao, Jun and He, Di and Tan, Xu and Qin, Tao and Wang, Liwei and Liu, Tie-Yan",
        "Representation Degeneration Problem in Training Natural Language Generation Models",
        "ICLR",
        2019,
    ),
    **dict.fromkeys(
        ("uniformity", "alignment"),
        _paper(
            "wang2020understanding",
            "Wang, Tongzhou and Isola, Phillip",
            "Understanding Contrastive Representation Learning through Alignment and Uniformity "
            "on the Hypersphere",
            "ICML",
            2020,
        ),
    ),
    "vicreg": _paper(
        "bardes2022vicreg",
        "Bardes, Adrien and Ponce, Jean and LeCun, Yann",
        "{VICReg}: Variance-Invariance-Covariance Regularization for Self-Supervised Learning",
        "ICLR",
        2022,
    ),
    "barlow": _paper(
        "zbontar2021barlow",
        "Zbontar, Jure and Jing, Li and Misra, Ishan and LeCun, Yann and Deny, Stephane",
        "Barlow Twins: Self-Supervised Learning via Redundancy Reduction",
        "ICML",
        2021,
    ),
    "koleo": _paper(
        "sablayrolles2019spreading",
        "Sablayrolles, Alexandre and Douze, Matthijs and Schmid, Cordelia and J{\\'e}gou, "
        "Herv{\\'e}",
        "Spreading Vectors for Similarity Search",
        "ICLR",
        2019,
    ),
    "dcl": _paper(
        "yeh2022decoupled",
        "Yeh, Chun-Hsiao and Hong, Cheng-Yao and Hsu, Yen-Chi and others",
        "Decoupled Contrastive Learning",
        "ECCV",
        2022,
    ),
}


def citations(config: Mapping[str, Any], model_type: str) -> list[str]:
    """BibTeX of the encoder, the isotropy layer and the objectives of a run, where it is known."""
    minilm = str(config["encoder"]["_target_"]).endswith(".load_minilm")
    found = [MINILM if minilm else ENCODERS.get(model_type, "")]
    nodes = [config["isotropy"], *config["objective"].values()]
    for node in nodes:
        module = str(node["_target_"]).split(".")[-2]
        if module == "cluster_pca":
            found.append(ONE_CLUSTER if node.get("n_clusters") == 1 else CLUSTERS)
        else:
            found.append(METHODS.get(module, ""))
    return list(dict.fromkeys(entry for entry in found if entry))
