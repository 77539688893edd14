"""`python -m gateway` is the same as the command `tollhouse`."""

from __future__ import annotations

from gateway.cli import main

main()
