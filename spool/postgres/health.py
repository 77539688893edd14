"""State of the database for operators: standbys, waiting sessions, and transactions that prevent cleanup."""

from __future__ import annotations

from typing import Any

from spool.postgres.database import LIVE, Connection, Database
from spool.postgres.log.queries import HEARD_ROWS
from spool.settings import REPLICATED
from spool.storage import DatabaseHealth, Standby

# A session without this role sees which other sessions are connected, but not what they do.
SEES_ALL = "SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')"
STANDBYS = """
    SELECT application_name, bool_or(sync_state IN ('sync', 'quorum')),
           max(coalesce(pg_wal_lsn_diff(pg_current_wal_flush_lsn(), flush_lsn), 0))::bigint,
           coalesce(max(extract(epoch FROM flush_lag)), 0)::float8
      FROM pg_stat_replication GROUP BY application_name ORDER BY application_name"""
# Sessions that wait. Sessions of the same role are always visible, and an append waits only for the head
# lock.
WAITS = """
    WITH waiting AS (
        SELECT wait_event = 'SyncRep' AS for_standby,
               wait_event_type = 'Lock' AND application_name LIKE 'tollhouse append%%' AS for_head,
               extract(epoch FROM clock_timestamp() - query_start)::float8 AS s
          FROM pg_stat_activity
         WHERE datname = current_database() AND usename = current_user AND application_name LIKE 'tollhouse %%')
    SELECT count(*) FILTER (WHERE for_standby), coalesce(max(s) FILTER (WHERE for_standby), 0),
           count(*) FILTER (WHERE for_head), coalesce(max(s) FILTER (WHERE for_head), 0)
      FROM waiting"""
OLDEST = """
    SELECT coalesce(max(extract(epoch FROM clock_timestamp() - began)), 0)::float8
      FROM (SELECT xact_start AS began FROM pg_stat_activity
             WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
         UNION ALL SELECT prepared FROM pg_prepared_xacts WHERE database = current_database()) AS transactions"""
CONNECTIONS = """
    SELECT (SELECT sum(numbackends) FROM pg_stat_database)::bigint, current_setting('max_connections')::bigint"""
NODES = f"""
    WITH live AS (SELECT id, wants FROM {{schema}}.nodes WHERE {LIVE}),
         held AS (SELECT name FROM {{schema}}.leases WHERE node IN (SELECT id FROM live))
    SELECT (SELECT count(*) FROM live), (SELECT count(*) FROM held),
           (SELECT count(DISTINCT name) FROM live, unnest(wants) AS name WHERE name NOT IN (SELECT name FROM held))"""


async def read_health(database: Database, durability: str) -> DatabaseHealth:

    def read_database_health(connection: Connection) -> DatabaseHealth:
        def read_one_row(statement: str) -> tuple[Any, ...]:
            row = connection.execute(
                database.fill_in_table_names(statement), {"now": database.now_unless_database_clock()}
            ).fetchone()
            assert row is not None
            return row

        sees_all = read_one_row(SEES_ALL)[0]
        standbys = connection.execute(STANDBYS.encode()).fetchall() if sees_all else None
        standby_waits, standby_wait_s, head_waits, head_wait_s = read_one_row(WAITS)
        connections, max_connections = read_one_row(CONNECTIONS)
        nodes, leases_held, leases_free = read_one_row(NODES)
        return DatabaseHealth(
            needs_standby=durability == REPLICATED,
            standbys=None
            if standbys is None
            else [
                Standby(name=name, is_synchronous=is_synchronous, lag_bytes=lag_bytes, lag_s=lag_s)
                for name, is_synchronous, lag_bytes, lag_s in standbys
            ],
            standby_waits=standby_waits,
            standby_wait_s=standby_wait_s,
            head_waits=head_waits,
            head_wait_s=head_wait_s,
            oldest_transaction_s=read_one_row(OLDEST)[0] if sees_all else None,
            connections=connections,
            max_connections=max_connections,
            failed_connections=database.failed_connection_count,
            nodes=nodes,
            leases_held=leases_held,
            leases_free=leases_free,
            reporters=read_one_row(HEARD_ROWS)[0],
        )

    return await database.read(read_database_health)
