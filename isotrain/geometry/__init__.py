"""Tensor functions: k-means, spectra, removal of directions, whitening, pairs, neighbours.

No state, no configuration, no I/O: tensors in, tensors out, in the dtype they are given. One idea
a file; names carry shapes (`x_ND`). Add a function here when two parts need it.
"""
