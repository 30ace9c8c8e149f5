"""Configurations: composed, validated and hashed before anything is loaded. No torch.

`schema.py` types, `compose.py` composes and hashes, `rules.py` has the rules across keys,
`command.py` and `sweep.py` read a command line, `foreign.py` restricts configuration files.
"""
