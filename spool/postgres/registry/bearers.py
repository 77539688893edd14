"""Whether the keys under which a group was sent are still good, asked under the head: `spool.registry.shared`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from spool.postgres.database import Connection, Database
from spool.registry.shared import bearers

Versions = Callable[[Connection, Sequence[bytes]], Callable[[], Mapping[bytes, int]]]

_SECRETS = """
    SELECT s.digest FROM {schema}.secrets s JOIN {schema}.keys k ON k.id = s.key_id
     WHERE s.digest = ANY(%(digests)s) AND k.status = 'Enabled' AND (s.ends_at IS NULL OR s.ends_at > {now})"""
_DEVICES = """
    SELECT d.id, d.generation FROM {schema}.devices d
      JOIN unnest(%(ids)s::text[], %(generations)s::bigint[]) AS wanted (id, generation)
           ON d.id = wanted.id AND d.generation = wanted.generation
     WHERE d.has_key AND d.state <> 'revoked'"""


def with_bearers(database: Database, versions: Versions) -> Versions:
    """The versions of what a group was made from; those of its keys, too."""

    def ask(connection: Connection, keys: Sequence[bytes]) -> Callable[[], Mapping[bytes, int]]:
        digests, devices = bearers.digests(keys), bearers.devices(keys)
        values = {"digests": digests, "now": database.now()}
        of = {"ids": [id for id, _ in devices], "generations": [number for _, number in devices]}
        good_keys = connection.execute(database.sql(_SECRETS), values) if digests else ()
        good_devices = connection.execute(database.sql(_DEVICES), of) if devices else ()
        rest = [key for key in keys if not key.startswith((bearers.KEYS, bearers.DEVICES))]
        others = versions(connection, rest) if rest else dict

        def found() -> Mapping[bytes, int]:
            good = dict(bearers.key_is_good(digest) for (digest,) in good_keys)
            good.update(bearers.device_is_good(id, generation) for id, generation in good_devices)
            return {**good, **others()}

        return found

    return ask
