"""Encoders: a batch of token ids to all L + 1 hidden states.

`transformer.py` wraps a transformers model and records hidden states itself; `huggingface.py`,
`minilm.py`, `tiny.py`, `static.py` and `random_vectors.py` load weights; `freezing.py` names the
parameters of each block; `adapters.py` adds LoRA and IA3.
"""
