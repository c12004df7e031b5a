"""`python -m tools.reliability`."""

from tools.reliability.page import main

raise SystemExit(main())
