"""A lake in Google Cloud Storage: see `exporters.lake`."""

from __future__ import annotations

from exporters.lake.destination import lake_type

TYPE = lake_type("gcs")
