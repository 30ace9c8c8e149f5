"""The baseline leaves rows alone."""

import torch

from isotrain.transforms.identity import Identity


def test_rows_pass_as_the_same_tensor_and_nothing_is_stored():
    layer, x = Identity(width=3), torch.ones(4, 3)
    layer.observe(x)
    layer.fit()
    layer.fit(x)
    for mode in (True, False):
        assert layer.train(mode)(x) is x
    assert not layer.state_dict()
    assert layer.counters == {}
