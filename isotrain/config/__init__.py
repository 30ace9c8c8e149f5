"""Configurations: composed, checked and hashed.

`schema.py` has keys and bounds, `compose.py` composes and hashes, `parts.py` makes the parts that
nodes name, `check.py` checks keys and arguments, `typos.py` says what is wrong with overrides,
`shipped.py` reads the files of `conf`.
"""
