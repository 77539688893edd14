"""A lake in a folder: see `exporters.lake`."""

from __future__ import annotations

from exporters.lake.destination import lake_type

TYPE = lake_type("file")
