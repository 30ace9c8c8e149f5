"""`python train.py task=wic isotropy=cluster_pca`: the same as `isotrain train`."""

import sys

from isotrain.cli import main

if __name__ == "__main__":
    sys.exit(main(["train", *sys.argv[1:]]))
