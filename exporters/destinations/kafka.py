"""Topics of Kafka: see `exporters.kafka`."""

from __future__ import annotations

from exporters.kafka.destination import TYPE

__all__ = ["TYPE"]
