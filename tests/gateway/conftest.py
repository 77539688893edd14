"""What all tests of the package share."""

from __future__ import annotations

from tests.spool.disks.flushing import flushed, unflushed

__all__ = ["flushed", "unflushed"]
