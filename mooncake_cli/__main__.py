"""`python -m mooncake_cli`, the same as `mooncake`."""

import sys

from mooncake_cli.app import main

sys.exit(main())
