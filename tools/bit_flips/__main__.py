"""`python -m tools.bit_flips`."""

from tools.bit_flips.campaign import main

raise SystemExit(main())
