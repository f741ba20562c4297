"""`python -m capsule_mt`."""

import sys

from capsule_mt.commands import main

if __name__ == "__main__":
    sys.exit(main())
