"""The public names, each where it is defined: `isotrain/__init__.py` reads this list."""

from isotrain.config.compose import compose_run as compose_run
from isotrain.encoders.huggingface import load_encoder as load_encoder
from isotrain.geometry.kmeans import kmeans as kmeans
from isotrain.metrics.alignment import alignment as alignment
from isotrain.metrics.alpha_req import alpha_req as alpha_req
from isotrain.metrics.best_dimension_accuracy import (
    best_dimension_accuracy as best_dimension_accuracy,
)
from isotrain.metrics.cluster_label_nmi import cluster_label_nmi as cluster_label_nmi
from isotrain.metrics.condition import condition as condition
from isotrain.metrics.cosine_drift import cosine_drift as cosine_drift
from isotrain.metrics.effective_rank import effective_rank as effective_rank
from isotrain.metrics.explained_variance import explained_variance as explained_variance
from isotrain.metrics.intra_sentence_similarity import (
    intra_sentence_similarity as intra_sentence_similarity,
)
from isotrain.metrics.isoscore import isoscore as isoscore
from isotrain.metrics.isoscore_corrected import isoscore_corrected as isoscore_corrected
from isotrain.metrics.isoscore_star import isoscore_star as isoscore_star
from isotrain.metrics.label_silhouette import label_silhouette as label_silhouette
from isotrain.metrics.lid import lid as lid
from isotrain.metrics.linear_cka import linear_cka as linear_cka
from isotrain.metrics.linear_probe_accuracy import linear_probe_accuracy as linear_probe_accuracy
from isotrain.metrics.max_explainable_variance import (
    max_explainable_variance as max_explainable_variance,
)
from isotrain.metrics.mean_cosine import mean_cosine as mean_cosine
from isotrain.metrics.outlier_dims import outlier_dims as outlier_dims
from isotrain.metrics.participation_ratio import participation_ratio as participation_ratio
from isotrain.metrics.partition import partition as partition
from isotrain.metrics.partition_null import partition_null as partition_null
from isotrain.metrics.rankme import rankme as rankme
from isotrain.metrics.removed_label_scatter import removed_label_scatter as removed_label_scatter
from isotrain.metrics.s_inter import s_inter as s_inter
from isotrain.metrics.s_intra import s_intra as s_intra
from isotrain.metrics.scatter_ratio import scatter_ratio as scatter_ratio
from isotrain.metrics.self_similarity import self_similarity as self_similarity
from isotrain.metrics.spectral_entropy import spectral_entropy as spectral_entropy
from isotrain.metrics.stable_rank import stable_rank as stable_rank
from isotrain.metrics.suite import suite as suite
from isotrain.metrics.two_nn import two_nn as two_nn
from isotrain.metrics.uniformity import uniformity as uniformity
from isotrain.model.isotropic_model import IsotropicModel as IsotropicModel
from isotrain.model.pooling import ClsPooling as ClsPooling
from isotrain.model.pooling import MeanPooling as MeanPooling
from isotrain.objectives.alignment import Alignment as Alignment
from isotrain.objectives.anchor import Anchor as Anchor
from isotrain.objectives.angle import AnglE as AnglE
from isotrain.objectives.barlow import Barlow as Barlow
from isotrain.objectives.base import Objective as Objective
from isotrain.objectives.cosent import CoSENT as CoSENT
from isotrain.objectives.cosreg import CosReg as CosReg
from isotrain.objectives.dcl import DCL as DCL
from isotrain.objectives.gor import GOR as GOR
from isotrain.objectives.istar import IStar as IStar
from isotrain.objectives.koleo import KoLeo as KoLeo
from isotrain.objectives.sigreg import SIGReg as SIGReg
from isotrain.objectives.simcse import SimCSE as SimCSE
from isotrain.objectives.spectral import Spectral as Spectral
from isotrain.objectives.supcon import SupCon as SupCon
from isotrain.objectives.uniformity import Uniformity as Uniformity
from isotrain.objectives.vicreg import VICReg as VICReg
from isotrain.objectives.visreg import VISReg as VISReg
from isotrain.pages.show import show_run as show_run
from isotrain.plugins.fit_layers import FitLayersCallback as FitLayersCallback
from isotrain.plugins.layer_isotropy import LayerIsotropy as LayerIsotropy
from isotrain.plugins.pytorch_lightning import FitLayers as FitLayers
from isotrain.plugins.pytorch_lightning import IsotropyMonitor as IsotropyMonitor
from isotrain.plugins.sentence_losses import SentenceLoss as SentenceLoss
from isotrain.plugins.trainer_callback import IsotropyTrainerCallback as IsotropyTrainerCallback
from isotrain.runner import run as run
from isotrain.tasks.classification import Classification as Classification
from isotrain.tasks.data.sources import PathSource as PathSource
from isotrain.tasks.regression import Regression as Regression
from isotrain.training.data import TaskData as TaskData
from isotrain.training.module import FineTuning as FineTuning
from isotrain.transforms.all_but_the_top import AllButTheTop as AllButTheTop
from isotrain.transforms.anti_clip import AntiClip as AntiClip
from isotrain.transforms.base import RowTransform as RowTransform
from isotrain.transforms.batch_norm import BatchNorm as BatchNorm
from isotrain.transforms.clip import Clip as Clip
from isotrain.transforms.cluster_mean import ClusterMean as ClusterMean
from isotrain.transforms.cluster_pca import ClusterPCA as ClusterPCA
from isotrain.transforms.cut_tails import CutTails as CutTails
from isotrain.transforms.fitted import FittedTransform as FittedTransform
from isotrain.transforms.gmm_pca import GmmPCA as GmmPCA
from isotrain.transforms.group_whitening import GroupWhitening as GroupWhitening
from isotrain.transforms.identity import Identity as Identity
from isotrain.transforms.iso_bn import IsoBn as IsoBn
from isotrain.transforms.iso_grad import IsoGrad as IsoGrad
from isotrain.transforms.iter_norm import IterNorm as IterNorm
from isotrain.transforms.mean import Mean as Mean
from isotrain.transforms.mean_direction import MeanDirection as MeanDirection
from isotrain.transforms.protected_cluster_pca import ProtectedClusterPCA as ProtectedClusterPCA
from isotrain.transforms.random_directions import RandomDirections as RandomDirections
from isotrain.transforms.shrink_clip import ShrinkClip as ShrinkClip
from isotrain.transforms.spectral_temper import SpectralTemper as SpectralTemper
from isotrain.transforms.standardize import Standardize as Standardize
from isotrain.transforms.whitening import Whitening as Whitening
from isotrain.transforms.zca import ZCA as ZCA
from isotrain.transforms.zca_dense import ZCADense as ZCADense

__version__: str
