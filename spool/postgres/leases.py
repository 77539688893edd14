"""
This gateway's session on a shared database, and the leases that it holds.

A session is a row that is renewed every second. After SESSION_S without a renewal, other gateways take over its
leases and deliveries. This gateway stops its tasks earlier, by its own timer. If the process is suspended at that
moment, others take its deliveries; when it continues, its results have old fences and are ignored.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from math import ceil
from typing import Any
from uuid import UUID, uuid4

from spool.clock import Clock
from spool.errors import OtherSchema, SpoolError, SpoolUnavailable
from spool.leases import LeaseTasks, NodeSettings, NodeState, Work
from spool.loops import ENOUGH, log_failure, repeat
from spool.postgres.database import LIVE, SESSION_S, Connection, Database
from spool.postgres.migrations import (
    MAY_JOIN,
    VERSION,
    accepted_schema_version_parameters,
    require_schema_not_upgraded,
)

# seconds after the start of a renewal for which this gateway trusts its session; other gateways end it later
TRUST_S = 4.0
LOOK_S = 1.0
WATCH_S = 0.25  # seconds between time checks while the database does not respond
# seconds between two leases that this gateway gives up for an even share
LET_GO_S = 10.0
SHOWN_S = 3600.0  # seconds for which ended sessions remain in the list
NAMED_S = 60.0  # after these seconds, a route that no gateway names is orphaned

_log = logging.getLogger(__name__)

JOIN = f"""
    INSERT INTO {{schema}}.nodes (id, name, version, schema_version, started_at, seen_at, routes, wants)
    SELECT %(id)s, %(name)s::text, %(version)s::text, %(schema_version)s, {{now}}, {{now}}, %(routes)s::text[],
           %(wants)s::text[]
     WHERE ({MAY_JOIN})
    ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at"""
RENEW = f"""
    UPDATE {{schema}}.nodes SET seen_at = {{now}}, wants = %(wants)s::text[], routes = %(routes)s::text[]
     WHERE id = %(id)s AND {LIVE}"""
# Other gateways see at once that this session has ended, but its routes are orphaned only later.
LEAVE = f"UPDATE {{schema}}.nodes SET seen_at = least(seen_at, {{now}} - {SESSION_S}) WHERE id = %(id)s"
FORGET = f"""
    WITH gone AS MATERIALIZED (
        SELECT id FROM {{schema}}.nodes WHERE seen_at < {{now}} - {SHOWN_S} FOR UPDATE SKIP LOCKED)
    DELETE FROM {{schema}}.nodes n USING gone WHERE n.id = gone.id"""

ORPHAN = f"""
    WITH old AS MATERIALIZED (
        SELECT name FROM {{schema}}.routes r
         WHERE shard = 0 AND NOT orphaned AND named_at < {{now}} - {NAMED_S}
           AND NOT EXISTS (SELECT 1 FROM {{schema}}.nodes n
                            WHERE n.seen_at > {{now}} - {NAMED_S} AND r.name = ANY(n.routes))
           FOR UPDATE SKIP LOCKED)
    UPDATE {{schema}}.routes SET orphaned = true FROM old WHERE routes.shard = 0 AND routes.name = old.name"""

ADD = """
    INSERT INTO {schema}.leases (name) SELECT unnest(%(names)s::text[]) ON CONFLICT (name) DO NOTHING"""
LEASES = "SELECT name, node, woken FROM {schema}.leases"
WAKE = "UPDATE {schema}.leases SET woken = woken + 1 WHERE name = %(name)s"
WANTED = f"SELECT id, wants FROM {{schema}}.nodes WHERE {LIVE}"
TAKE = f"""
    WITH free AS MATERIALIZED (
        SELECT l.name FROM {{schema}}.leases l
         WHERE l.name = ANY(%(wants)s::text[])
           AND (l.node IS NULL OR NOT EXISTS (SELECT 1 FROM {{schema}}.nodes n WHERE n.id = l.node AND n.{LIVE}))
           AND EXISTS (SELECT 1 FROM {{schema}}.nodes n WHERE n.id = %(id)s AND n.{LIVE})
      ORDER BY l.name LIMIT %(room)s FOR UPDATE SKIP LOCKED)
    UPDATE {{schema}}.leases SET node = %(id)s, fence = fence + 1, since = {{now}}
      FROM free WHERE leases.name = free.name"""
RELEASE = "UPDATE {schema}.leases SET node = NULL WHERE name = ANY(%(names)s::text[]) AND node = %(id)s"

TELL = "UPDATE {schema}.nodes SET settings_hash = %(hash)s, note = %(note)s::jsonb WHERE id = %(id)s"
# The hash is empty while a gateway starts, because it has not reported its settings.
SETTINGS = f"""
    WITH told AS (SELECT id, name, settings_hash, note FROM {{schema}}.nodes WHERE {LIVE} AND settings_hash <> '')
    SELECT id, name, note FROM told WHERE (SELECT count(DISTINCT settings_hash) FROM told) > 1 ORDER BY name, id"""

NODES = f"""
    SELECT id, name, version, started_at, seen_at, {LIVE},
           ARRAY(SELECT l.name FROM {{schema}}.leases l WHERE l.node = n.id ORDER BY l.name)
      FROM {{schema}}.nodes n WHERE seen_at > {{now}} - {SHOWN_S} ORDER BY name, started_at, id"""


@dataclass(frozen=True, slots=True, kw_only=True)
class _ReportedSettings:
    """The digests of this node's settings, unchanged since `since`."""

    digests: Mapping[str, str]
    since: float

    def encode_report(self) -> Mapping[str, str]:
        text = json.dumps(self.digests, sort_keys=True)
        note = json.dumps({"since": self.since, "settings": self.digests})
        return {"hash": blake2b(text.encode(), digest_size=16).hexdigest(), "note": note}


@dataclass(frozen=True, slots=True, kw_only=True)
class _StoredLeases:
    """The leases of this gateway's session as stored in the database. `is_live`: the session still exists."""

    is_live: bool
    leases: Mapping[str, int] = field(default_factory=dict)  # lease -> number of its wake-ups
    # lease that another gateway wants, which has fewer leases
    surplus: str | None = None


class PostgresLeases:
    """
    The session of this gateway and its leases. The session begins with the first task, or when routes are
    first named.

    `name` and `version` are shown to operators. `renew_session` runs every second; tests call it directly.
    """

    def __init__(self, database: Database, clock: Clock, *, name: str, version: str) -> None:
        self._database = database
        self._clock = clock
        self._name = name
        self._version = version
        self._tasks = LeaseTasks()
        self.routes: frozenset[str] = frozenset()  # routes of this gateway's configuration
        self._known: frozenset[str] = frozenset()  # names of the leases with a row in the database
        self._woken: Mapping[str, int] = {}
        self._gains = Counter[str]()  # lease -> how often this gateway gained it
        self._going: dict[str, asyncio.Task[None]] = {}
        self._let_go_at = clock.monotonic()
        self._trusted_until = 0.0
        self._has_joined = False
        self._may_be_live = False  # True once the database was asked for a session
        self._turn = asyncio.Lock()
        self._keeper: asyncio.Task[None] | None = None
        self._asked = asyncio.Event()
        self._is_away = False
        self._told: _ReportedSettings | None = None  # digests to report to the other gateways
        self._is_written = False  # whether the digests are stored in the row of this session
        self.session = uuid4()  # id that marks the deliveries that this session sends

    @property
    def running_leases(self) -> Collection[str]:
        return frozenset(self._tasks.held)

    def lease_tenure_id(self, lease_name: str) -> object:
        """
        Return a value that changes whenever this session loses and regains the lease.

        Work that was started under another value has ended.
        """
        return self.session, self._gains[lease_name]

    async def run_while_leased(
        self,
        lease_name: str,
        work: Work,
        *,
        finish: Callable[[], None] | None = None,
        wake: Callable[[], None] | None = None,
    ) -> None:
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._renew_forever(), name="leases")
        self._asked.set()
        await self._tasks.run_while_leased(lease_name, work, finish=finish, wake=wake)

    async def node_states(self) -> Sequence[NodeState]:
        def read_node_states(connection: Connection) -> list[NodeState]:
            return [
                NodeState(
                    id=str(id),
                    name=name,
                    version=version,
                    started_at=started_at,
                    seen_at=seen_at,
                    is_live=is_live,
                    is_this=id == self.session,
                    leases=tuple(leases),
                )
                for id, name, version, started_at, seen_at, is_live, leases in self._execute(
                    connection, NODES
                )
            ]

        return await self._database.read(read_node_states)

    def publish_settings(self, digests: Mapping[str, str]) -> None:
        """Publish the digests of this node's settings. A running session writes them with its next renewal."""
        if self._told is None or digests != self._told.digests:
            self._told = _ReportedSettings(digests=dict(digests), since=self._clock.now())
            self._is_written = False

    async def differing_node_settings(self) -> Sequence[NodeSettings]:
        rows = await self._database.read(lambda connection: self._execute(connection, SETTINGS).fetchall())
        return [
            NodeSettings(node=str(id), name=name, since=note["since"], digests=note["settings"])
            for id, name, note in rows
        ]

    async def set_routes(self, routes: Sequence[str]) -> None:
        """Begin a session, if there is none, so that deliveries can be assigned to it."""
        self.routes = frozenset(routes)
        await self.renew_session()

    async def wake_tasks(self, lease_name: str) -> None:
        self._tasks.wake_running_tasks(lease_name)
        # the holder of the lease still checks for work later
        with suppress(SpoolError):
            await self._database.run(lambda connection: self._execute(connection, WAKE, name=lease_name))

    async def renew_session(self) -> None:
        """
        Renew the session, take free leases up to this gateway's fair number, and start and end tasks
        accordingly.
        """
        async with self._turn:
            if self._has_joined and self._clock.monotonic() >= self._trusted_until:
                self._stop_tasks_and_begin_session()
            for _ in range(2):
                session = self.session
                began = self._clock.monotonic()
                for name in self._tasks.held - self._tasks.wanted_leases:
                    self._tasks.lose_lease(name)
                wants = sorted(self._tasks.wanted_leases)
                joins = not self._has_joined
                look = partial(
                    self._renew_session_and_leases, session=session, begins_session=joins, wanted_leases=wants
                )
                self._may_be_live = True
                state = await self._database.control.run(look)
                if state.is_live and session == self.session and self._clock.monotonic() < began + TRUST_S:
                    self._has_joined = True
                    self._trusted_until = began + TRUST_S
                    self._apply_stored_leases(state)
                    return
                self._stop_tasks_and_begin_session()
            raise SpoolUnavailable("the database responds too slowly to keep a session")

    async def close(self) -> None:
        """End the session, so that other gateways take over at once."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        self._lose_all_leases()
        await asyncio.gather(*self._going.values(), return_exceptions=True)
        if not self._may_be_live:
            return

        def release_leases_and_leave(
            connection: Connection,
        ) -> None:  # this also runs after a cancelled call that has not finished
            self._execute(connection, RELEASE, names=sorted(self._known))
            self._execute(connection, LEAVE)

        with suppress(SpoolError):  # the session otherwise expires within seconds
            await self._database.control.run(release_leases_and_leave)

    async def _renew_forever(self) -> None:
        await repeat(
            self._renew_and_wait,
            every_s=0.0,
            failed="the session could not be renewed",
            action="session_not_renewed",
            retry_s=LOOK_S,
        )

    async def _renew_and_wait(self) -> object:
        self._asked.clear()
        try:
            await self._renew_within_time()
        except OtherSchema as error:  # the schema was upgraded while this gateway had no session
            self._tasks.fail_runs(error)
            return ENOUGH
        except Exception as error:  # noqa: BLE001 - without a session, this gateway does no leased task
            if not self._is_away:
                log_failure("the session could not be renewed", error, action="session_not_renewed")
            self._is_away = True
        else:
            self._is_away = False
        self._end_session_if_expired()
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S * random.uniform(0.8, 1.2)):
                await self._asked.wait()
        return None

    async def _renew_within_time(self) -> None:
        look = asyncio.create_task(self.renew_session(), name="look")
        try:
            while not (await asyncio.wait({look}, timeout=WATCH_S))[0]:
                self._end_session_if_expired()
        finally:
            look.cancel()
            await asyncio.gather(look, return_exceptions=True)
        await look

    def _end_session_if_expired(self) -> None:
        """
        If the session may have expired, end its tasks. The next session gets another id, because interrupted
        deliveries stay assigned to the old one.
        """
        if (self._tasks.held or self._going) and self._clock.monotonic() >= self._trusted_until:
            self._stop_tasks_and_begin_session()

    def _renew_session_and_leases(
        self, connection: Connection, *, session: UUID, begins_session: bool, wanted_leases: Sequence[str]
    ) -> _StoredLeases:
        execute = partial(self._execute, connection, id=session)
        if begins_session:
            execute(FORGET)
            about = {"name": self._name, "version": self._version, "schema_version": VERSION}
            if (
                execute(JOIN, **about, **accepted_schema_version_parameters(), wants=wanted_leases).rowcount
                != 1
            ):
                require_schema_not_upgraded(self._database, connection)
                return _StoredLeases(is_live=False)
        elif execute(RENEW, wants=wanted_leases).rowcount != 1:
            return _StoredLeases(is_live=False)
        settings = self._told
        if settings is not None and (begins_session or not self._is_written):
            execute(TELL, **settings.encode_report())
            # changed settings are written by the next renewal
            self._is_written = settings is self._told
        missing = sorted(set(wanted_leases) - self._known)
        if missing:
            execute(ADD, names=missing)
            self._known |= set(missing)
        execute(ORPHAN)
        wants_by_node = {id: frozenset(names) for id, names in execute(WANTED)}
        share = _fair_share(wants_by_node)
        holders, woken = self._read_holders(connection)
        own = {name for name, node in holders.items() if node == session}
        if len(own) < share and any(holders.get(name) not in wants_by_node for name in wanted_leases):
            execute(TAKE, wants=wanted_leases, room=share - len(own))
            holders, woken = self._read_holders(connection)
            own = {name for name, node in holders.items() if node == session}
        unwanted = sorted(own.difference(wanted_leases))
        if unwanted:  # routes of this gateway's earlier configuration, which other gateways may still want
            execute(RELEASE, names=unwanted)
            own.difference_update(unwanted)
        return _StoredLeases(
            is_live=True,
            leases={name: woken[name] for name in own},
            surplus=_lease_to_give_up(session, holders, wants_by_node, share) if len(own) > share else None,
        )

    def _read_holders(self, connection: Connection) -> tuple[dict[str, UUID | None], dict[str, int]]:
        rows = self._execute(connection, LEASES).fetchall()
        return {name: node for name, node, _ in rows}, {name: woken for name, _, woken in rows}

    def _execute(self, connection: Connection, statement: str, **values: object) -> Any:
        parameters = {
            "id": self.session,
            "now": self._database.now_unless_database_clock(),
            "routes": sorted(self.routes),
            **values,
        }
        return connection.execute(self._database.fill_in_table_names(statement), parameters)

    def _apply_stored_leases(self, held_leases: _StoredLeases) -> None:
        for name in self._tasks.held - held_leases.leases.keys():
            self._tasks.lose_lease(name)
        for name in sorted(self._tasks.held):
            if held_leases.leases[name] != self._woken.get(name):
                self._tasks.wake_running_tasks(name)
        for name in sorted(held_leases.leases.keys() - self._tasks.held - self._going.keys()):
            self._gains[name] += 1
            self._tasks.gain_lease(name)
        self._woken = held_leases.leases
        now = self._clock.monotonic()
        if held_leases.surplus is not None and not self._going and now >= self._let_go_at + LET_GO_S:
            self._let_go_at = now
            self._going[held_leases.surplus] = asyncio.create_task(
                self._finish_and_release(held_leases.surplus), name="let go"
            )

    async def _finish_and_release(self, lease_name: str) -> None:
        try:
            await self._tasks.finish_tasks_and_wait(lease_name)
            async with self._turn:
                # if the release fails, this gateway still holds the lease and restarts its tasks
                with suppress(SpoolError):
                    await self._database.control.run(
                        lambda connection: self._execute(connection, RELEASE, names=[lease_name])
                    )
                del self._going[lease_name]
        finally:
            self._going.pop(lease_name, None)

    def _lose_all_leases(self) -> None:
        for name in [*self._tasks.held, *self._going]:
            self._tasks.lose_lease(name)

    def _stop_tasks_and_begin_session(self) -> None:
        """Begin a new session, because other gateways may already run the tasks of this one."""
        _log.error("the session has ended: tasks were stopped", extra={"action": "session_over"})
        self._lose_all_leases()
        self.session = uuid4()
        self._has_joined = False


def _fair_share(wants_by_node: Mapping[UUID, frozenset[str]]) -> int:
    names = frozenset[str]().union(*wants_by_node.values())
    return ceil(len(names) / max(1, sum(bool(wants) for wants in wants_by_node.values())))


def _lease_to_give_up(
    own_session: UUID,
    holders: Mapping[str, UUID | None],
    wants_by_node: Mapping[UUID, frozenset[str]],
    share: int,
) -> str | None:
    for name in sorted(name for name, node in holders.items() if node == own_session):
        for id, wants in wants_by_node.items():
            if id != own_session and name in wants and sum(node == id for node in holders.values()) < share:
                return name
    return None
