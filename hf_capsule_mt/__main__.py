"""`python -m hf_capsule_mt`: the program `capsule-mt`."""

import sys

from capsule_mt.commands import main

if __name__ == "__main__":
    sys.exit(main())
