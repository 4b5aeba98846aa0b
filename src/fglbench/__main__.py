"""Entry point of `python -m fglbench`, which is the same as `fglbench`."""

import sys

from fglbench.cli import main

if __name__ == "__main__":
    sys.exit(main())
