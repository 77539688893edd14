"""Fixtures for all tests of the gateway."""

from __future__ import annotations

from tests.spool.disks.flushing import flushed, unflushed

__all__ = ["flushed", "unflushed"]
