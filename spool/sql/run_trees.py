"""SQL of the trees of runs: the runs and sessions above a call, to whose aggregated cost it belongs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from spool.ledger.work import EDGE, MAX_LEVELS, REST, RUN, SESSION, UNITS

# A run has one parent: of several, the one with the smallest number. If runs start each other in a circle, the one
# with the smallest number has no parent. Both rules do not depend on the order of the reports.
# Only a climb to the last level (`long`) can be in a circle, so that all others need not be searched.
_PARENT = """(SELECT MIN(p.parent_run) FROM {sets} p
  WHERE p.unit_run = {of} AND p.unit_run > {rest} AND p.parent_run > {rest}{p_is_seen})"""
# a run whose calls state no parent may be linked to one
_PARENT_OR_LINKED = f"""COALESCE({_PARENT}, (SELECT l.linked FROM {{links}} l
  WHERE l.target = {{kind}} AND l.unit = {{kind}} AND l.id = {{of}} AND l.linked > {{rest}}{{of_is_seen}}))"""
_ABOVE = """(
WITH RECURSIVE {seen}climbed (units, own, run, level) AS (
  SELECT s.id, s.unit_run, CASE s.unit_run WHEN {rest} THEN s.parent_run ELSE {parent} END, 1 FROM {sets} s
  WHERE s.id IN ({used}) AND (s.unit_run > {rest} OR s.unit_run = {rest} AND s.parent_run > {rest})
  UNION ALL SELECT c.units, c.own, {above}, c.level + 1 FROM climbed c WHERE c.run IS NOT NULL AND c.level < {most}
), long (units) AS (
  SELECT DISTINCT units FROM climbed WHERE run IS NOT NULL AND level = {most}
), nearest (units, own, run, level, visits) AS (
  SELECT units, own, run, MIN(level), COUNT(*) FROM climbed
  WHERE run IS NOT NULL AND units IN (SELECT units FROM long) GROUP BY units, own, run
), roots (units, run) AS (
  SELECT units, MIN(run) FROM nearest WHERE visits > 1 GROUP BY units
), stops (units, run, level) AS (
  SELECT r.units, r.run, n.level FROM roots r JOIN nearest n ON n.units = r.units AND n.run = r.run
), above (units, run) AS (
  SELECT units, run FROM climbed WHERE run IS NOT NULL AND units NOT IN (SELECT units FROM long)
  UNION ALL SELECT n.units, n.run FROM nearest n LEFT JOIN stops s ON s.units = n.units
  WHERE n.run <> n.own AND n.level <= COALESCE(s.level, {most}) AND n.own <> COALESCE(s.run, {rest} - 1)
) {chosen})"""
_RUNS = "SELECT units, run AS unit FROM above"
# a run that only calls outside the slice have made is left out
_SEEN_RUNS = (
    f"{_RUNS} WHERE run IN (SELECT s.unit_run FROM {{sets}} s WHERE s.unit_run > {{rest}}{{s_is_seen}})"
)
_SESSIONS = """SELECT DISTINCT a.units, s.unit_session AS unit FROM above a JOIN {sets} s ON s.unit_run = a.run
  JOIN {sets} o ON o.id = a.units WHERE s.unit_run > {rest} AND s.unit_session > {rest}
  AND s.unit_session <> o.unit_session{s_is_seen}"""
# The same, and the sessions above these by links, and those above the call's own session. SQLite would look up each
# pair of a link and a set in use, if it could use the index for `+s.id`.
_LINKED_SESSIONS = """, reached (units, session) AS (
  SELECT a.units, s.unit_session FROM above a JOIN {sets} s ON s.unit_run = a.run
  WHERE s.unit_run > {rest} AND s.unit_session > {rest}{s_is_seen}
  UNION SELECT s.id, s.unit_session FROM {sets} s
  JOIN {links} l ON l.target = {kind} AND l.unit = {kind} AND l.id = s.unit_session WHERE +s.id IN ({used})
  UNION SELECT r.units, l.linked FROM reached r
  JOIN {links} l ON l.target = {kind} AND l.unit = {kind} AND l.id = r.session WHERE l.linked > {rest}{of_is_seen}
) SELECT r.units, r.session AS unit FROM reached r JOIN {sets} o ON o.id = r.units
  WHERE r.session <> o.unit_session{of_is_seen}"""
# a link of or to a unit that only calls outside the slice have is left out
_IS_SEEN = " AND {of} IN (SELECT s.{column} FROM {sets} s WHERE s.{column} > {rest}{s_is_seen})"

_LINEAGE = """
WITH RECURSIVE {seen}own (run) AS (
  SELECT DISTINCT unit_run FROM {sets} s WHERE {column} IN :numbers AND unit_run > {rest}{s_is_seen}
), below (run, level) AS (
  SELECT run, 0 FROM own UNION
  SELECT s.unit_run, b.level + 1 FROM below b JOIN {sets} s ON s.parent_run = b.run
  WHERE s.unit_run > {rest} AND s.parent_run > {rest} AND b.level < {below}{s_is_seen}
), above (run, level) AS (
  SELECT run, 0 FROM own UNION
  SELECT s.parent_run, a.level + 1 FROM above a JOIN {sets} s ON s.unit_run = a.run
  WHERE s.unit_run > {rest} AND s.parent_run > {rest} AND a.level < {most}{s_is_seen}
)
SELECT unit_run, MIN(CASE WHEN parent_run > {rest} THEN parent_run END),
  MIN(CASE WHEN unit_session > {rest} THEN unit_session END)
FROM {sets} s WHERE unit_run > {rest} AND unit_run IN (SELECT run FROM below UNION SELECT run FROM above){s_is_seen}
GROUP BY unit_run LIMIT :most"""
_BELOW = """
WITH RECURSIVE below (run, level) AS (
  {runs} UNION SELECT s.unit_run, b.level + 1 FROM below b JOIN {sets} s ON s.parent_run = b.run
  WHERE s.unit_run > {rest} AND s.parent_run > {rest} AND b.level < {most}
)
SELECT s.id FROM {sets} s WHERE s.unit_run > {rest} AND s.unit_run IN (SELECT run FROM below)
UNION SELECT s.id FROM {sets} s WHERE s.parent_run > {rest} AND s.parent_run IN (SELECT run FROM below)"""
# edges are kept while a used set leads to them
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


def below(sets: str, numbers: Collection[int], *, of_runs: bool) -> str:
    """Return the query that finds the sets of units of some runs or sessions, and of all runs below them."""
    names = {"sets": sets, "rest": REST, "most": MAX_LEVELS, "numbers": ", ".join(map(str, numbers))}
    # SQLite accepts 500 rows of VALUES before UNION. A run without calls is only known as a parent.
    runs = """SELECT unit_run, 0 FROM {sets} WHERE unit_run IN ({numbers}) AND unit_run > {rest}
  UNION SELECT parent_run, 0 FROM {sets} WHERE parent_run IN ({numbers}) AND parent_run > {rest}"""
    if of_runs:
        return _BELOW.format(runs=runs.format(**names), **names)
    runs = "SELECT DISTINCT unit_run, 0 FROM {sets} WHERE unit_session IN ({numbers}) AND unit_run > {rest}"
    return (_BELOW + _SETS_OF_SESSIONS).format(runs=runs.format(**names), **names)


def linked_sets(sets: str, used: str) -> str:
    """Return the beginning of a statement with the table `kept`: used sets, and the edges above their runs."""
    return _KEPT.format(sets=sets, used=used, rest=REST, edge=EDGE)


def lineage(sets: str, column: str, *, has_below: bool, seen: str = "") -> str:
    """
    Return the query for the runs of units in `column` and their trees, with the parent and a session of each. `seen` is
    the SQL for the sets of units of which the trees consist, "" for all.
    """
    names = {"sets": sets, "rest": REST, "most": MAX_LEVELS, "below": MAX_LEVELS if has_below else 0}
    return _LINEAGE.format(column=column, **names, **_of_seen(seen))


def above(sets: str, used: str, *, of_runs: bool, links: Mapping[str, str], seen: str = "") -> str:
    """
    Return a table with the columns `units` and `unit`: for each set of units among `used`, the runs above its run,
    or the other sessions of these runs. `seen` is as for `lineage`. `links` are the tables with the links of sessions
    and of runs to those that started them, "" if there are none.
    """
    names = {"sets": sets, "rest": REST, "used": used, "most": MAX_LEVELS, **_of_seen(seen)}

    def formatted(text: str, unit: str, column: str, of: str) -> str:
        of_unit = {"links": links[unit], "kind": UNITS[unit].number, "of": of}
        is_seen = _IS_SEEN.format(**names, of=of, column=column) if seen else ""
        return text.format(**names, **of_unit, of_is_seen=is_seen)

    parent = _PARENT_OR_LINKED if links[RUN] else _PARENT
    parents = {
        name: formatted(parent, RUN, "unit_run", of)
        for name, of in (("parent", "s.unit_run"), ("above", "c.run"))
    }
    chosen = _LINKED_SESSIONS if links[SESSION] else _SESSIONS
    if of_runs:
        chosen = _SEEN_RUNS if seen else _RUNS
    chosen = formatted(chosen, SESSION, "unit_session", "r.session")
    return _ABOVE.format(**names, **parents, chosen=chosen)


def _of_seen(seen: str) -> Mapping[str, str]:
    """Return the parts of a statement that limit its trees to some sets of units."""
    conditions = {
        f"{table}_is_seen": f" AND {table}.id IN (SELECT id FROM seen)" if seen else "" for table in "ps"
    }
    return {"seen": f"seen (id) AS MATERIALIZED ({seen}), " if seen else "", **conditions}
