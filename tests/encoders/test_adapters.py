"""Adapters: the encoder starts as it was, and only what was added trains."""

import pytest
import torch
import transformers

from isotrain.encoders.adapters import ia3, lora
from isotrain.encoders.tiny import build_tiny
from isotrain.encoders.transformer import TransformerEncoder
from isotrain.types import Batch

ADAPTERS = {"lora": lora, "ia3": ia3}


def batch(encoder, n=3, length=7):
    size = len(encoder.tokenizer)
    ids = torch.randint(0, size, (n, length), generator=torch.Generator().manual_seed(1))
    ones, zeros = torch.ones_like(ids), torch.zeros_like(ids)
    return Batch(ids, ones, zeros, zeros, torch.zeros(n), torch.arange(n))


def states(encoder):
    output = encoder(batch(encoder), {})
    return [*output.hidden_states, output.last]


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_start_is_the_encoder_itself(encoder, name):
    encoder.eval()
    before = [state.detach() for state in states(encoder)]
    names = ADAPTERS[name](encoder)
    encoder.eval()
    assert names
    assert all(one.equal(two) for one, two in zip(before, states(encoder), strict=True))
    assert {n for n, p in encoder.named_parameters() if p.requires_grad} == names


@pytest.mark.parametrize("name", ADAPTERS)
def test_every_block_gets_some_and_they_alone_train(encoder, name):
    names = ADAPTERS[name](encoder)
    assert all(module.training for module in encoder.modules())
    parameters = dict(encoder.named_parameters())
    before = {n: p.detach().clone() for n, p in parameters.items()}
    for block in encoder.blocks:
        inside = {id(p) for p in block.parameters()}
        assert any(id(parameters[n]) in inside for n in names)
    optimizer = torch.optim.SGD([parameters[n] for n in names], lr=0.1)
    for _ in range(2):  # A has a gradient once B is not zero
        optimizer.zero_grad()
        sum(state.pow(3).sum() for state in states(encoder)).backward()
        optimizer.step()
    moved = {n for n, p in parameters.items() if not p.equal(before[n])}
    assert moved == names


def test_lora_is_its_formula():
    torch.manual_seed(0)
    encoder = build_tiny(width=8, n_blocks=2, n_heads=1, dropout=0.0)
    lora(encoder, r=3, alpha=6.0)
    query = encoder.blocks[0].attention.self.query
    assert query.lora_A["default"].weight.shape == (3, 8)
    torch.nn.init.normal_(query.lora_B["default"].weight)
    x_ND = torch.randn(5, 8)
    a_RD, b_DR = query.lora_A["default"].weight, query.lora_B["default"].weight
    weight_DD = query.base_layer.weight + 6.0 / 3 * b_DR @ a_RD
    expected_ND = x_ND @ weight_DD.T + query.base_layer.bias
    torch.testing.assert_close(query(x_ND), expected_ND)


def test_ia3_scales():
    torch.manual_seed(0)
    encoder = build_tiny(width=8, n_blocks=1, n_heads=1, dropout=0.0)
    ia3(encoder)
    key, dense = encoder.blocks[0].attention.self.key, encoder.blocks[0].output.dense
    x_ND, h_NF = torch.randn(5, 8), torch.randn(5, 32)
    with torch.no_grad():
        for part, x in ((key, x_ND), (dense, h_NF)):
            scale = part.ia3_l["default"]
            torch.nn.init.normal_(scale)
            base, flat = part.base_layer, scale.flatten()
            expected = base(x) * flat if part is key else base(x * flat)  # output, and input
            torch.testing.assert_close(part(x), expected)


def test_targets_by_name():
    encoder = build_tiny(width=8, n_blocks=2, n_heads=1)
    names = lora(encoder, target_modules=["key"])
    assert len(names) == 2 * 2
    assert all(".attention.self.key.lora_" in name for name in names)


def test_lora_dropout_acts_in_training_alone():
    torch.manual_seed(0)
    encoder = build_tiny(width=8, n_blocks=1, n_heads=1, dropout=0.0)
    lora(encoder, dropout=0.5)
    for name, parameter in encoder.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    assert not states(encoder)[1].equal(states(encoder)[1])
    encoder.eval()
    assert states(encoder)[1].equal(states(encoder)[1])


@pytest.mark.parametrize("name", ADAPTERS)
def test_an_architecture_without_a_default(monkeypatch, name):
    encoder = build_tiny(width=8, n_blocks=1, n_heads=1)
    monkeypatch.setattr(type(encoder.model.config), "model_type", "something")
    message = {"lora": r"in something; name them by peft\.target_modules", "ia3": "Please specify"}
    with pytest.raises(ValueError, match=message[name]):
        ADAPTERS[name](encoder)


@pytest.mark.parametrize(("name", "n_maps"), [("MPNet", 4), ("ModernBert", 2)])
def test_architectures_without_a_default_in_peft_have_one_here(tokenizer, name, n_maps):
    sizes = {"hidden_size": 8, "num_attention_heads": 1, "intermediate_size": 8}
    sizes |= {"vocab_size": len(tokenizer), "num_hidden_layers": 2, "pad_token_id": 0}
    model = getattr(transformers, f"{name}Model")(getattr(transformers, f"{name}Config")(**sizes))
    names = lora(TransformerEncoder(model, tokenizer, "random"))
    assert len({text.split(".lora_")[0] for text in names}) == n_maps
