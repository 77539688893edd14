"""Storages of these tests begin with tables that are copied."""

from __future__ import annotations

from tests.made_files import made_files

__all__ = ["made_files"]
