"""
Checks in the database that the keys of a request are still valid. See `spool.registry.key_expectations`.

A transaction holds the registry's head lock, or locks its keys' rows. So a key ends either before or after
the transaction. A commit of the log holds only the log's head lock. The process that ends a key waits for
that lock.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from spool.errors import KeyEnded
from spool.log.partial_reports import ExpectedVersion
from spool.postgres.database import Connection, Database, LockWaitTimedOut
from spool.registry import key_expectations

Versions = Callable[[Connection, Sequence[bytes]], Callable[[], Mapping[bytes, int]]]
# Maximum attempts to get a head lock. After a failed attempt, the server ends the session of a suspended
# process that holds the lock.
WAITS = 3

_SECRETS = """
    SELECT s.digest FROM {schema}.secrets s JOIN {schema}.keys k ON k.id = s.key_id
     WHERE s.digest = ANY(%(digests)s) AND k.status = 'Enabled' AND (s.ends_at IS NULL OR s.ends_at > {now})"""
_NUMBERS = """
    SELECT k.id FROM {schema}.keys k
     WHERE k.id = ANY(%(numbers)s::bigint[]) AND k.status = 'Enabled'
       AND EXISTS (SELECT FROM {schema}.secrets s WHERE s.key_id = k.id AND (s.ends_at IS NULL OR s.ends_at > {now}))"""
_DEVICES = """
    SELECT d.id, d.generation FROM {schema}.devices d
      JOIN unnest(%(ids)s::text[], %(generations)s::bigint[]) AS wanted (id, generation)
           ON d.id = wanted.id AND d.generation = wanted.generation
     WHERE d.has_key AND d.state <> 'revoked'"""
_TOKENS = """
    SELECT t.id FROM {schema}.documents t
     WHERE t.kind = 'enrolment_token' AND t.id = ANY(%(tokens)s) AND t.body::json ->> 'revoked_at' IS NULL"""
# Lock the rows of keys. Updates of the time of the last use remain possible.
_HOLD = """
    SELECT id FROM {schema}.keys
     WHERE id = ANY(%(numbers)s::bigint[])
        OR id IN (SELECT key_id FROM {schema}.secrets WHERE digest = ANY(%(digests)s))
  ORDER BY id FOR KEY SHARE"""
_HEAD = "SELECT shard FROM {schema}.heads WHERE shard = 0 FOR KEY SHARE"


def with_key_versions(database: Database, versions: Versions) -> Versions:

    def query_key_versions(
        connection: Connection, keys: Sequence[bytes]
    ) -> Callable[[], Mapping[bytes, int]]:
        good = _query_valid_keys(
            connection, database.fill_in_table_names, keys, now=database.now_unless_database_clock()
        )
        rest = [key for key in keys if not key.startswith(key_expectations.BEARERS)]
        other_versions = versions(connection, rest) if rest else dict
        return lambda: {**good(), **other_versions()}

    return query_key_versions


def require_valid_keys(
    connection: Connection,
    sql: Callable[[str], Any],
    expected_versions: Collection[ExpectedVersion],
    *,
    now: float | None,
) -> None:
    """
    Raise KeyEnded if a key is not valid. The transaction must hold the registry's lock, so that no key ends
    meanwhile.
    """
    if expected_versions_of_keys_no_longer_valid(connection, sql, expected_versions, now=now):
        raise KeyEnded("the key of this request has ended, so nothing was stored")


def expected_versions_of_keys_no_longer_valid(
    connection: Connection,
    sql: Callable[[str], Any],
    expected_versions: Collection[ExpectedVersion],
    *,
    now: float | None,
) -> Collection[ExpectedVersion]:
    if not expected_versions:
        return ()
    good = _query_valid_keys(
        connection, sql, [expectation.key for expectation in expected_versions], now=now
    )()
    return {bearer for bearer in expected_versions if good.get(bearer.key) != bearer.version}


def lock_keys(
    connection: Connection, sql: Callable[[str], Any], expected_versions: Collection[ExpectedVersion]
) -> None:
    """Lock keys, so that none ends during this transaction, which does not hold the registry's lock."""
    keys = [expectation.key for expectation in expected_versions]
    lock_values = {
        "digests": key_expectations.parse_key_digests(keys),
        "numbers": key_expectations.parse_key_numbers(keys),
    }
    if any(lock_values.values()):
        connection.execute(sql(_HOLD), lock_values)


async def wait_for_running_commits(database: Database) -> None:
    for attempt in range(1, WAITS + 1):
        try:
            await database.transaction(
                lambda connection: connection.execute(database.fill_in_table_names(_HEAD))
            )
        except LockWaitTimedOut:
            if attempt == WAITS:
                raise
        else:
            return


def _query_valid_keys(
    connection: Connection, sql: Callable[[str], Any], keys: Sequence[bytes], *, now: float | None
) -> Callable[[], Mapping[bytes, int]]:
    """Query in a pipeline which keys are valid. The returned function reads the result."""
    digests = key_expectations.parse_key_digests(keys)
    numbers = key_expectations.parse_key_numbers(keys)
    devices = key_expectations.parse_device_generations(keys)
    tokens = key_expectations.parse_token_ids(keys)
    parameters = {"ids": [id for id, _ in devices], "generations": [number for _, number in devices]}
    secrets = connection.execute(sql(_SECRETS), {"digests": digests, "now": now}) if digests else ()
    good_numbers = connection.execute(sql(_NUMBERS), {"numbers": numbers, "now": now}) if numbers else ()
    good_devices = connection.execute(sql(_DEVICES), parameters) if devices else ()
    good_tokens = connection.execute(sql(_TOKENS), {"tokens": tokens}) if tokens else ()

    def read_valid_keys() -> Mapping[bytes, int]:
        good = dict(key_expectations.valid_key_expectation(digest) for (digest,) in secrets)
        good.update(key_expectations.enabled_key_expectation(id) for (id,) in good_numbers)
        good.update(
            key_expectations.current_device_expectation(id, generation) for id, generation in good_devices
        )
        good.update(key_expectations.live_token_expectation(id) for (id,) in good_tokens)
        return good

    return read_valid_keys
