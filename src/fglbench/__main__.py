"""`python -m fglbench` is `fglbench`."""

import sys

from fglbench.cli import main

if __name__ == "__main__":
    sys.exit(main())
