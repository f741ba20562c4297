"""`python -m hf_capsule_mt` is `capsule-mt`."""

import sys

from capsule_mt import main

sys.exit(main())
