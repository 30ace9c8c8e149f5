"""Configurations: composed, validated and hashed before anything is loaded. No torch.

`schema.py` types, `compose.py` composes and hashes, `rules.py` has the rules across keys,
`typos.py` says what is wrong with overrides, `shipped.py` reads the files of `conf`.
"""
