"""BibTeX of the papers behind the objectives."""

from __future__ import annotations

from typing import Any, NamedTuple


class Paper(NamedTuple):
    """A paper, by its number at arXiv; one that is not there has a DOI."""

    key: str
    title: str
    authors: str
    year: int
    number: str

    @property
    def bibtex(self) -> str:
        """Its entry."""
        where = (
            f"doi={{{self.number}}}"
            if self.number.startswith("10.")
            else f"eprint={{{self.number}}},\n    archivePrefix={{arXiv}}"
        )
        return (
            f"@misc{{{self.key},\n    title={{{self.title}}},\n    author={{{self.authors}}},\n"
            f"    year={{{self.year}}},\n    {where}\n}}"
        )


WANG = Paper(
    "wang2020understanding",
    "Understanding Contrastive Representation Learning through Alignment and Uniformity on the "
    "Hypersphere",
    "Tongzhou Wang and Phillip Isola",
    2020,
    "2005.10242",
)
PAPERS = {  # by the class of the objective
    "Alignment": WANG,
    "Uniformity": WANG,
    "AnglE": Paper(
        "li2024aoe",
        "AoE: Angle-optimized Embeddings for Semantic Textual Similarity",
        "Xianming Li and Jing Li",
        2024,
        "10.18653/v1/2024.acl-long.101",
    ),
    "Barlow": Paper(
        "zbontar2021barlow",
        "Barlow Twins: Self-Supervised Learning via Redundancy Reduction",
        "Jure Zbontar and Li Jing and Ishan Misra and Yann LeCun and Stéphane Deny",
        2021,
        "2103.03230",
    ),
    "CoSENT": Paper(
        "huang2024cosent",
        "CoSENT: Consistent Sentence Embedding via Similarity Ranking",
        "Xiang Huang and Hao Peng and Dongcheng Zou and Zhiwei Liu and Jianxin Li and Kay Liu and "
        "Jia Wu and Jianlin Su and Philip S. Yu",
        2024,
        "10.1109/TASLP.2024.3402087",
    ),
    "CosReg": Paper(
        "gao2019representation",
        "Representation Degeneration Problem in Training Natural Language Generation Models",
        "Jun Gao and Di He and Xu Tan and Tao Qin and Liwei Wang and Tie-Yan Liu",
        2019,
        "1907.12009",
    ),
    "DCL": Paper(
        "yeh2022decoupled",
        "Decoupled Contrastive Learning",
        "Chun-Hsiao Yeh and Cheng-Yao Hong and Yen-Chi Hsu and Tyng-Luh Liu and Yubei Chen and "
        "Yann LeCun",
        2022,
        "2110.06848",
    ),
    "GOR": Paper(
        "zhang2017learning",
        "Learning Spread-out Local Feature Descriptors",
        "Xu Zhang and Felix X. Yu and Sanjiv Kumar and Shih-Fu Chang",
        2017,
        "1708.06320",
    ),
    "IStar": Paper(
        "rudman2024stable",
        "Stable Anisotropic Regularization",
        "William Rudman and Carsten Eickhoff",
        2024,
        "2305.19358",
    ),
    "KoLeo": Paper(
        "sablayrolles2019spreading",
        "Spreading vectors for similarity search",
        "Alexandre Sablayrolles and Matthijs Douze and Cordelia Schmid and Hervé Jégou",
        2019,
        "1806.03198",
    ),
    "SIGReg": Paper(
        "balestriero2025lejepa",
        "LeJEPA: Provable and Scalable Self-Supervised Learning Without the Heuristics",
        "Randall Balestriero and Yann LeCun",
        2025,
        "2511.08544",
    ),
    "SimCSE": Paper(
        "gao2021simcse",
        "SimCSE: Simple Contrastive Learning of Sentence Embeddings",
        "Tianyu Gao and Xingcheng Yao and Danqi Chen",
        2021,
        "2104.08821",
    ),
    "SupCon": Paper(
        "khosla2020supervised",
        "Supervised Contrastive Learning",
        "Prannay Khosla and Piotr Teterwak and Chen Wang and Aaron Sarna and Yonglong Tian and "
        "Phillip Isola and Aaron Maschinot and Ce Liu and Dilip Krishnan",
        2020,
        "2004.11362",
    ),
    "VICReg": Paper(
        "bardes2022vicreg",
        "VICReg: Variance-Invariance-Covariance Regularization for Self-Supervised Learning",
        "Adrien Bardes and Jean Ponce and Yann LeCun",
        2022,
        "2105.04906",
    ),
}


def citation_of(objective: Any) -> str:
    """BibTeX of the paper behind an objective; empty where there is none.

    >>> from isotrain.objectives.gor import GOR
    >>> citation_of(GOR(weight=1.0)).splitlines()[0]
    '@misc{zhang2017learning,'
    """
    names = [base.__name__ for base in type(objective).__mro__]
    return next((PAPERS[name].bibtex for name in names if name in PAPERS), "")
