"""
The ledger: what AI costs, by whom and for what, summed by the hour of the call in ledger.sqlite.

It is a reader of the log like a route: its sums and the number they reach move in one transaction, so nothing is
counted twice or left out, and the whole file can be made again from the log.
"""

from spool.ledger.ledger import Ledger, LedgerState, Rebuilt
from spool.ledger.queries import DIMENSIONS, GRANULARITIES, CostQuery, CostRow
from spool.ledger.repricing import Pricer, Repriced, TokenSum
from spool.ledger.sums import SIZES

__all__ = [
    "DIMENSIONS",
    "GRANULARITIES",
    "SIZES",
    "CostQuery",
    "CostRow",
    "Ledger",
    "LedgerState",
    "Pricer",
    "Rebuilt",
    "Repriced",
    "TokenSum",
]
