"""`python -m indextables.cli`."""

import sys

from indextables.cli.main import main

sys.exit(main())
