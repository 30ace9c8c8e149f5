"""`python -m isotrain.doctor`: where `isotrain` itself does not start."""

from __future__ import annotations

import sys

from isotrain.doctor.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
