"""`python -m isotrain`, the same as `isotrain`."""

from isotrain.cli import main

main()
