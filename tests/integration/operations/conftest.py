"""Fixtures that start storage from copied, already created tables."""

from __future__ import annotations

from tests.made_files import made_files

__all__ = ["made_files"]
