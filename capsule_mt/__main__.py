"""`python -m capsule_mt`."""

import sys

from capsule_mt.commands import program

if __name__ == "__main__":
    sys.exit(program())
