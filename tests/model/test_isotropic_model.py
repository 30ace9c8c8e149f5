"""IsotropicModel with a small encoder: sites, pads, what is recorded, and what is reached."""

import pytest
import torch
from torch import nn

from isotrain.model.heads import LinearHead
from isotrain.model.isotropic_model import IsotropicModel
from isotrain.model.pooling import MeanPooling
from isotrain.transforms.base import RowTransform
from isotrain.transforms.cluster_pca import ClusterPCA
from isotrain.types import Batch, EncoderOutput

WIDTH, TOKENS = 4, 6


class FakeEncoder(nn.Module):
    """An embedding and two blocks that keep the Encoder contract."""

    def __init__(self, n_blocks=2):
        super().__init__()
        torch.manual_seed(0)
        self.width, self.n_blocks = WIDTH, n_blocks
        self.tokenizer, self.source_id = None, "fake"
        self.embeddings = nn.Embedding(50, WIDTH)
        self.blocks = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(n_blocks))

    def block(self, k, hidden):
        """Block k, 1-based."""
        return torch.tanh(self.blocks[k - 1](hidden)) + hidden

    def forward(self, batch, after_block):
        """States as each block gave them; edits flow on."""
        hidden = self.embeddings(batch.input_ids)
        states = [hidden]
        for k in range(1, self.n_blocks + 1):
            states.append(self.block(k, hidden))
            hidden = after_block[k](states[-1]) if k in after_block else states[-1]
        return EncoderOutput(tuple(states), hidden)


class Shift(RowTransform):
    """Adds a constant and remembers what it was reported."""

    def __init__(self, by):
        super().__init__(WIDTH)
        self.by, self.observed = by, []

    def forward(self, x):
        """Shifted rows."""
        return x + self.by

    def observe(self, x):
        """Keep what came."""
        assert not torch.is_grad_enabled()
        self.observed.append(x)


def batch(b=3, q=1):
    generator = torch.Generator().manual_seed(10 * b + q)
    length_A1 = torch.randint(3, TOKENS + 1, (q * b, 1), generator=generator)
    position = torch.arange(TOKENS)
    mask = (position < length_A1).long()
    special = ((position == 0) | (position >= length_A1 - 1)).long()
    ids = torch.randint(1, 50, (q * b, TOKENS), generator=generator) * mask
    index = torch.tensor([41, 7, 99, 3, 12, 58])[:b]
    return Batch(ids, mask, torch.zeros_like(ids), special, torch.zeros(b).long(), index, None, q)


def model(transforms, q=1, pooling=None, **options):
    torch.manual_seed(1)
    head = LinearHead(WIDTH, n_vectors=q, n_outputs=2, dropout=0.0)
    return IsotropicModel(FakeEncoder(), pooling or MeanPooling(), head, transforms, **options)


def test_without_transforms_it_is_encoder_pooling_head():
    m, data = model({}), batch()
    out = m(data)
    hidden = m.encoder(data, {}).last
    pooled = MeanPooling()(hidden, data)
    assert torch.equal(out.pooled, pooled)
    assert torch.equal(out.logits, m.head(pooled))
    assert len(out.hidden_states) == 3
    assert out.site_embeddings == {}


@pytest.mark.parametrize("q", [1, 2])
def test_pooled_site(q):
    data = batch(q=q)
    out, plain = model({"pooled": Shift(1.0)}, q)(data), model({}, q)(data)
    before, after = out.site_embeddings["pooled"][:2]
    assert torch.equal(before, plain.pooled.reshape(-1, WIDTH))
    assert torch.equal(after, before + 1.0)
    assert torch.equal(out.pooled, plain.pooled + 1.0)
    ids = [i * (1 << 20) + p for i in data.index.tolist() for p in range(q)]
    assert out.site_embeddings["pooled"].ids.tolist() == ids


@pytest.mark.parametrize("q", [1, 2])
@pytest.mark.parametrize("rows", ["all", "no_special"])
def test_tokens_site_touches_chosen_rows_only(q, rows):
    data = batch(q=q)
    m = model({"tokens": Shift(2.0)}, q, rows=rows)
    captured = []
    m.pooling.register_forward_pre_hook(lambda _, args: captured.append(args[0]))
    out = m(data)
    last = m.encoder(data, {}).last
    chosen = data.attention_mask.bool()
    if rows == "no_special":
        chosen = chosen & ~data.special_mask.bool()
    expected, ids, k = last.clone(), [], 0
    for a in range(q * 3):
        for t in range(TOKENS):
            if chosen[a, t]:
                expected[a, t] += 2.0
                ids.append(int(data.index[a % 3]) * (1 << 20) + (a // 3) * (1 << 16) + t)
                assert torch.equal(out.site_embeddings["tokens"][0][k], last[a, t])
                k += 1
    assert torch.equal(captured[0], expected)
    assert torch.equal(captured[0][~chosen], last[~chosen])  # pads, bit for bit
    assert out.site_embeddings["tokens"].ids.tolist() == ids
    assert len(out.site_embeddings["tokens"][1]) == k


def test_a_block_site_feeds_the_next_block_and_is_recorded_before_it():
    data = batch()
    m = model({"layer_1": Shift(0.5)})
    out = m(data)
    plain = m.encoder(data, {}).hidden_states
    chosen = data.attention_mask.bool()
    assert torch.equal(out.hidden_states[0], plain[0])
    assert torch.equal(out.hidden_states[1], plain[1])  # before the isotropy layer
    moved = plain[1] + 0.5 * chosen[..., None]
    torch.testing.assert_close(out.hidden_states[2], m.encoder.block(2, moved))
    assert torch.equal(out.site_embeddings["layer_1"][0], plain[1][chosen])
    assert torch.equal(out.site_embeddings["layer_1"][1], plain[1][chosen] + 0.5)


def test_several_sites_act_in_order():
    data = batch()
    shifts = {"layer_1": 0.5, "layer_2": 1.0, "tokens": 2.0, "pooled": 4.0}
    m = model({site: Shift(by) for site, by in shifts.items()})
    out = m(data)
    chosen = data.attention_mask.bool()
    plain = m.encoder(data, {}).hidden_states
    second = m.encoder.block(2, plain[1] + 0.5 * chosen[..., None])
    torch.testing.assert_close(out.hidden_states[2], second)
    torch.testing.assert_close(out.site_embeddings["layer_2"][0], second[chosen])
    torch.testing.assert_close(out.site_embeddings["tokens"][0], second[chosen] + 1.0)
    pooled = MeanPooling()(second + 3.0 * chosen[..., None], data)
    torch.testing.assert_close(out.site_embeddings["pooled"][0], pooled[:, 0])
    torch.testing.assert_close(out.pooled, pooled + 4.0)
    torch.testing.assert_close(out.logits, m.head(pooled + 4.0))
    assert list(out.site_embeddings) == ["layer_1", "layer_2", "tokens", "pooled"]


def test_gradient_reaches_the_encoder_through_every_site():
    m = model({"layer_1": Shift(0.5), "tokens": ClusterPCA(WIDTH, 2, 1), "pooled": Shift(1.0)})
    m(batch()).logits.sum().backward()
    for parameter in m.parameters():
        assert parameter.grad is not None
        assert bool(torch.isfinite(parameter.grad).all())


def test_observe_reaches_every_site():
    layers = {site: Shift(0.0) for site in ("layer_1", "tokens", "pooled")}
    m = model(layers)
    out = m(batch())
    m.remember(out)
    m.observe()
    for site, layer in layers.items():
        (observed,) = layer.observed
        assert torch.equal(observed, out.site_embeddings[site][0])


def test_a_prediction_does_not_depend_on_batch_mates_once_frozen():
    m = model({"tokens": ClusterPCA(WIDTH, 2, 1), "pooled": ClusterPCA(WIDTH, 1, 1)})
    data = batch(b=6)
    out = m(data)
    m.remember(out)
    m.observe()
    for site in m.sites:
        m.transforms[site].fit()
    m.eval()
    two = Batch(**{name: x[:2] for name, x in vars(data).items() if isinstance(x, torch.Tensor)})
    torch.testing.assert_close(m(two).logits, m(data).logits[:2], atol=1e-5, rtol=0)


def test_an_unknown_choice_of_rows_is_rejected():
    with pytest.raises(ValueError, match="no_special"):
        model({"tokens": Shift(0.0)}, rows="no_specials")
