"""
The names of tags that the configuration speaks of. Their values may be long: an operator knows what they
hold.
"""

from __future__ import annotations

from gateway.configuration.sections import Config


def kept_tags(config: Config) -> frozenset[str]:
    """Names in privacy.keep_attributes, in ledger.tags, and in what rules of attribution match."""
    matched = frozenset(name for rule in config.attribution for name in rule.match.tag)
    return matched.union(config.privacy.keep_attributes, config.ledger.tags)
