"""What the configuration says to who reads payloads: which sources count, and which tags are kept."""

from __future__ import annotations

from gateway.configuration.sections import Config


def counted_sources(config: Config) -> frozenset[str]:
    """
    Names with `[sources.NAME] count = true` written down; a source without an entry is not among them.

    Some counters repeat calls unless the operator knows better.
    """
    return frozenset(name for name, source in config.sources.items() if source.count)


def kept_tags(config: Config) -> frozenset[str]:
    """
    Names in privacy.keep_attributes, in ledger.tags, and in what rules of attribution match.

    The values of these tags may be long: an operator knows what they hold.
    """
    matched = frozenset(name for rule in config.attribution for name in rule.match.tag)
    return matched.union(config.privacy.keep_attributes, config.ledger.tags)
