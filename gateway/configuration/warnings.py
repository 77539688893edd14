"""What a configuration allows and probably should not: one sentence each. The server runs with it."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.configuration.sections import Config, names_some


def warnings(config: Config) -> Iterator[str]:
    """Yield the warnings that `tollhouse check` adds to the problems, in the user's own key names."""
    server = config.server
    if server.operator_plaintext and not server.trusted_proxies:
        yield (
            "server.trusted_proxies is empty: attempts to sign in of all people behind the proxy share one "
            "limit; name "
            "the proxy's addresses"
        )
    if not all(map(names_some, server.chain_keys)):
        yield (
            'server.chain_keys has "*": whoever has a key that may send can name the key, the user and the '
            "team of its "
            "records, as another Tollhouse does; name the keys of your gateways, or leave it empty"
        )
