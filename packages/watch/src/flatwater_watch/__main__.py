"""`python -m flatwater_watch`: the command, where its script is not on the path."""

import sys

from flatwater_watch.faces.main import main

if __name__ == "__main__":
    sys.exit(main())
