"""Serves the page that shows what a model translated and what it left out.

    python scripts/demo.py outputs/gdr                    # on this machine alone
    python scripts/demo.py a=outputs/a b=outputs/b --port 7860

As a Space: a repository with this file as app.py, `hf-capsule-mt[demo]` in its requirements, and the names of models
on the hub, separated by spaces, in the variable CAPSULE_MODELS.
"""

import os
import sys

from hf_capsule_mt.demo.__main__ import main

if __name__ == "__main__":
    if len(sys.argv) == 1 and os.environ.get("CAPSULE_MODELS"):
        sys.argv += os.environ["CAPSULE_MODELS"].split()
    main()
