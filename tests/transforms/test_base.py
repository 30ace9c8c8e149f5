"""The contract of isotropy layers: its defaults, and misspelt members of a user's layer."""

from __future__ import annotations

import pytest
import torch

from isotrain.transforms.base import RowTransform
from isotrain.transforms.cluster_pca import ClusterPCA
from isotrain.transforms.fitted import FittedTransform
from isotrain.transforms.identity import Identity
from isotrain.transforms.zca import ZCA


def test_a_layer_of_forward_alone_has_nothing_to_fit_or_to_remember():
    class Negate(RowTransform):
        def forward(self, x_ND):
            return -x_ND

    layer = Negate(width=2)
    assert layer(torch.ones(1, 2)).tolist() == [[-1.0, -1.0]]
    layer.observe(torch.ones(1, 2))
    layer.fit()
    assert not layer.needs_fit()
    assert layer.recent_rows() is None
    assert (layer.has_statistics, layer.reads_labels, layer.changes_rows) == (False, False, True)
    assert layer.counters == {}
    assert layer.state_dict() == {}


def test_counters_are_a_layers_own():
    first, second = Identity(1), Identity(1)
    first.counters["seen"] = torch.tensor(1.0)
    assert second.counters == {}


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("read_labels", "reads_labels"),
        ("has_statistic", "has_statistics"),
        ("change_rows", "changes_rows"),
        ("oberve", "observe"),
        ("foward", "forward"),
        ("recent_row", "recent_rows"),
        ("eval_stat", "eval_stats"),
    ],
)
@pytest.mark.parametrize("base", [RowTransform, ZCA])
def test_a_misspelt_member_is_an_error_that_names_the_right_one(base, misspelt, meant):
    with pytest.raises(TypeError, match=f"Mine.{misspelt}: did you mean {meant}, of "):
        type("Mine", (base,), {misspelt: True})


def test_a_misspelt_member_of_an_inherited_base_class_is_one_too():
    with pytest.raises(TypeError, match=r"Mine\.of_cluster: did you mean of_clusters, of Fitted"):
        type("Mine", (FittedTransform,), {"of_cluster": True})


def test_new_members_of_a_layer_are_free():
    class Mine(RowTransform):
        strength = 0.5
        order: torch.Tensor
        weight = None

        def estimate(self):
            """Not of the contract."""

        def train(self, mode=True):
            """Of `nn.Module`."""
            return super().train(mode)

    assert Mine(1).strength == 0.5


def test_one_map_for_training_and_evaluation_is_fitted_once():
    layer = ZCA(2, stats="start")
    assert layer.needs_fit()
    layer.fit(torch.eye(2))
    assert not layer.needs_fit()
    layer = ZCA(2)
    layer.fit(torch.eye(2))
    assert layer.needs_fit()  # the queue moves on


def test_a_layer_that_overrides_fit_has_statistics():
    class Mine(RowTransform):
        def fit(self, x_ND=None, labels_N=None):
            pass

    class Said(Mine):
        has_statistics = False

    assert Mine(width=1).has_statistics
    assert not Said(width=1).has_statistics


def test_labels_may_be_asked_for_in_the_class():
    class Mine(ClusterPCA):
        reads_labels = True

    layer = Mine(width=2, n_clusters=1, n_components=0)
    assert layer.reads_labels
    with pytest.raises(ValueError, match="labels"):
        layer(torch.randn(4, 2))


def test_rows_pass_as_the_same_tensor_and_nothing_is_stored():
    layer, x = Identity(width=3), torch.ones(4, 3)
    layer.observe(x)
    layer.fit()
    layer.fit(x)
    for mode in (True, False):
        assert layer.train(mode)(x) is x
    assert not layer.state_dict()
    assert layer.counters == {}
