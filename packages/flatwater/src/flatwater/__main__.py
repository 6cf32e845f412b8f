"""`python -m flatwater`: the command, where its script is not on the path."""

import sys

from flatwater.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
