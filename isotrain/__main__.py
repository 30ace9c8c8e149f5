"""`python -m isotrain`, the same as `isotrain`."""

import sys

from isotrain.cli import main

sys.exit(main())
