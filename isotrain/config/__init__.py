"""Compose, check and hash configurations.

`schema.py` has keys and bounds, `compose.py` composes and hashes, `parts.py` builds the parts that
nodes name, `check.py` checks keys and arguments, `typos.py` reports errors in overrides,
`shipped.py` reads the files of `conf`.
"""
