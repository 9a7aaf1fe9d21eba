"""``python -m batonflow``: the same as the command ``batonflow``."""

import sys

from batonflow.cli import main

if __name__ == "__main__":
    sys.exit(main())
