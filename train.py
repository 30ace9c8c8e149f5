"""`python train.py task=wic isotropy=cluster_pca`: the same as `isotrain train`."""

from isotrain.cli import train

if __name__ == "__main__":
    train()
