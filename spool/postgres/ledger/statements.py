"""Statements that keep dimensions, and what a sum costs."""

from __future__ import annotations

from spool.ledger.sums import Dimensions

COST = (  # what counts of a sum
    "CASE WHEN k.status = 'cached' THEN 0 WHEN k.cost_source = 'reported' THEN h.reported"
    " WHEN k.cost_source = 'estimated' THEN h.estimated ELSE 0 END"
)
_KEY_COLUMNS = ", ".join(f'"{name}"' for name in Dimensions._fields)
_KEY_VALUES = ", ".join("%s" for _ in Dimensions._fields)
ADD_KEY = f"""
    INSERT INTO {{schema}}.ledger_keys (digest, tag_values, {_KEY_COLUMNS}) VALUES (%s, %s::jsonb, {_KEY_VALUES})
    RETURNING id"""
DROP_KEYS = """
    DELETE FROM {schema}.ledger_keys k
     WHERE NOT EXISTS (SELECT FROM {schema}.ledger_hours h WHERE h.key = k.id)
       AND NOT EXISTS (SELECT FROM {schema}.ledger_days d WHERE d.key = k.id)
       AND NOT EXISTS (SELECT FROM {schema}.ledger_billed b WHERE b.key = k.id)"""
