"""Encoders: a batch of token ids to all L + 1 hidden states.

`transformer.py` wraps a transformers model and records hidden states itself; `huggingface.py`,
`tiny.py`, `static.py` and `random_vectors.py` load weights; `start.py` replaces some (`init_from`,
`reinit_blocks`); `trial.py` measures an encoder's traits on a small padded batch;
`fast.py` shortens its training steps; `freezing.py` defines freezing schedules; `adapters.py` adds
LoRA and IA3. Each imports only torch, and transformers when loading.
"""
