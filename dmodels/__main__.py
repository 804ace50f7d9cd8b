"""`python -m dmodels` is `dmodels`."""

import sys

from dmodels.cli import main

sys.exit(main())
