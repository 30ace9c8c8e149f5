"""`python train.py task=wic isotropy=cluster_pca`: the app of `@hydra.main` in isotrain/app.py."""

import sys

from isotrain.app import main

if __name__ == "__main__":
    sys.exit(main())
