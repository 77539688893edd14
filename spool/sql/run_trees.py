"""SQL for the trees of runs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spool.ledger.work import EDGE, REST, RUN, UNITS

# UNION reaches each run only once, because the rows have no level. So circles end as well.
_ABOVE = """
WITH RECURSIVE {seen}above (run) AS (
  SELECT CASE s.unit_run WHEN {rest} THEN s.parent_run ELSE s.unit_run END FROM {sets} s
  WHERE s.id IN ({used}) AND (s.unit_run > {rest} OR s.unit_run = {rest} AND s.parent_run > {rest}){linked}
  UNION SELECT s.parent_run FROM above a JOIN {sets} s ON s.unit_run = a.run
  WHERE s.unit_run > {rest} AND s.parent_run > {rest}{s_is_seen}
)
SELECT s.unit_run, s.unit_session, MIN(CASE WHEN s.parent_run > {rest} THEN s.parent_run END)
FROM above a JOIN {sets} s ON s.unit_run = a.run WHERE s.unit_run > {rest}{s_is_seen} GROUP BY 1, 2"""
_LINEAGE = """
WITH RECURSIVE {seen}own (run) AS (
  SELECT DISTINCT unit_run FROM {own} WHERE unit_run > {rest}
), below (run) AS (
  SELECT run FROM own{and_below}
), above (run) AS (
  SELECT run FROM own UNION
  SELECT s.parent_run FROM above a JOIN {sets} s ON s.unit_run = a.run
  WHERE s.unit_run > {rest} AND s.parent_run > {rest}{s_is_seen}
)
SELECT unit_run, MIN(CASE WHEN parent_run > {rest} THEN parent_run END),
  MIN(CASE WHEN unit_session > {rest} THEN unit_session END)
FROM {sets} s WHERE unit_run > {rest} AND unit_run IN (SELECT run FROM below UNION SELECT run FROM above){s_is_seen}
GROUP BY unit_run LIMIT :most"""
_AND_BELOW = """ UNION SELECT s.unit_run FROM below b JOIN {sets} s ON s.parent_run = b.run
  WHERE s.unit_run > {rest} AND s.parent_run > {rest}{s_is_seen}"""
_BELOW = """
WITH RECURSIVE below (run) AS (
  {runs}{and_below}
)
SELECT s.id FROM {sets} s WHERE s.unit_run > {rest} AND s.unit_run IN (SELECT run FROM below)
UNION SELECT s.id FROM {sets} s WHERE s.parent_run > {rest} AND s.parent_run IN (SELECT run FROM below)"""
# units to keep, because a used set of units leads to them
_KEPT = """
WITH RECURSIVE used (id) AS ({used}), linked (run) AS (
  SELECT s.parent_run FROM {sets} s WHERE s.id IN (SELECT id FROM used) AND s.parent_run > {rest}
  UNION SELECT s.parent_run FROM linked l JOIN {sets} s ON s.unit_run = l.run
  WHERE s.unit_run > {rest} AND s.parent_run > {rest} AND s.unit_ticket = {edge}
), kept (id) AS (
  SELECT id FROM used UNION SELECT s.id FROM linked l JOIN {sets} s ON s.unit_run = l.run
  WHERE s.unit_run > {rest} AND s.unit_ticket = {edge}
)"""
_SETS_OF_SESSIONS = " UNION SELECT s.id FROM {sets} s WHERE s.unit_session IN ({numbers})"


def descendant_runs_sql(unit_sets_table: str, numbers: Collection[int], *, starts_from_runs: bool) -> str:
    names = {"sets": unit_sets_table, "rest": REST, "numbers": ", ".join(map(str, numbers))}
    names["and_below"] = _AND_BELOW.format(**names, s_is_seen="")
    # SQLite accepts 500 VALUES before UNION. A run without calls is known only as the starter of another run.
    runs = """SELECT unit_run FROM {sets} WHERE unit_run IN ({numbers}) AND unit_run > {rest}
  UNION SELECT parent_run FROM {sets} WHERE parent_run IN ({numbers}) AND parent_run > {rest}"""
    if starts_from_runs:
        return _BELOW.format(runs=runs.format(**names), **names)
    runs = "SELECT DISTINCT unit_run FROM {sets} WHERE unit_session IN ({numbers}) AND unit_run > {rest}"
    return (_BELOW + _SETS_OF_SESSIONS).format(runs=runs.format(**names), **names)


def used_unit_sets_and_run_links_sql(unit_sets_table: str, used_unit_sets_sql: str) -> str:
    """
    Return SQL for the table `kept`: the sets of units in `used_unit_sets_sql`, and the sets that state who started
    the runs above the runs in `used_unit_sets_sql`.
    """
    return _KEPT.format(sets=unit_sets_table, used=used_unit_sets_sql, rest=REST, edge=EDGE)


def lineage_sql(
    unit_sets_table: str, column: str, *, has_below: bool, visible_unit_sets_sql: str = ""
) -> str:
    """
    Return SQL for runs, each with the run that started it and one of its sessions. `visible_unit_sets_sql`: SQL for
    the sets of units of work that may decide this, "" for all.
    """
    names = {"sets": unit_sets_table, "rest": REST, **_visible_unit_sets_sql_parts(visible_unit_sets_sql)}
    and_below = _AND_BELOW.format(**names) if has_below else ""
    own = f"(SELECT unit_run FROM {unit_sets_table} WHERE {column} IN :numbers) s"
    if visible_unit_sets_sql:
        # read all visible sets, because the time would reveal whether a hidden set has the unit
        visible = f"seen v JOIN {unit_sets_table} s ON s.id = v.id"
        own = f"(SELECT s.unit_run FROM {visible} WHERE s.{column} + 0 * v.id IN :numbers) s"
    return _LINEAGE.format(own=own, and_below=and_below, **names)


def ancestor_runs_sql(
    unit_sets_table: str, used_unit_sets_sql: str, *, links_table: str = "", visible_unit_sets_sql: str = ""
) -> str:
    """
    Return SQL for run, session and starting run of the sets of units in `used_unit_sets_sql`, and of all runs
    above them. `links_table`: table with links to starting runs, or "". `visible_unit_sets_sql`: SQL for the
    visible sets of units, or "" for all.
    """
    linked = (
        f" UNION SELECT l.linked FROM {links_table} l WHERE l.target = {UNITS[RUN].number}"
        if links_table
        else ""
    )
    return _ABOVE.format(
        sets=unit_sets_table,
        rest=REST,
        used=used_unit_sets_sql,
        linked=linked,
        **_visible_unit_sets_sql_parts(visible_unit_sets_sql),
    )


def _visible_unit_sets_sql_parts(visible_unit_sets_sql: str) -> Mapping[str, str]:
    return {
        "seen": f"seen (id) AS MATERIALIZED ({visible_unit_sets_sql}), " if visible_unit_sets_sql else "",
        "s_is_seen": " AND s.id IN (SELECT id FROM seen)" if visible_unit_sets_sql else "",
    }
