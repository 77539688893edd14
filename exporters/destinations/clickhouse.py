"""A table of ClickHouse: see `exporters.clickhouse`."""

from __future__ import annotations

from exporters.clickhouse.destination import TYPE

__all__ = ["TYPE"]
