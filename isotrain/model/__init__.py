"""The model: encoder, isotropy layers at their sites, pooling, head; embeddings across ranks.

`isotropic_model.py` is the forward pass. `pooling.py` and `heads.py` hold small modules,
`distributed.py` the all-gather with a summed gradient, `checkpoint.py` files with a digest.
"""
