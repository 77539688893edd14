"""A lake in S3, or in a store like it: see `exporters.lake`."""

from __future__ import annotations

from exporters.lake.destination import lake_type

TYPE = lake_type("s3")
