"""
Which sources count by an entry of their own: some counters repeat calls unless the operator knows better.
"""

from __future__ import annotations

from gateway.configuration.sections import Config


def counted_sources(config: Config) -> frozenset[str]:
    """Names with `[sources.NAME] count = true` written down; a source without an entry is not among them."""
    return frozenset(name for name, source in config.sources.items() if source.count)
