"""The spool: routes, deliveries, books, dead letters and findings."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.operator import findings, spool
from gateway.operator.delivery import dead_letters, deliveries, lakes
from spool.registry.permission_sets import OPERATE_SPOOL, VIEW_OPERATION, VIEW_RECORDS

ROWS = (
    call("GET", "/status", VIEW_OPERATION, spool.status, "Topics, routes and space"),
    call("GET", "/routes", VIEW_OPERATION, spool.list_routes, "List routes", lists=spool.ROUTES),
    call("DELETE", "/routes/{destination}/{topic}", OPERATE_SPOOL, spool.drop_route, "Forget an orphaned route"),
    call("POST", "/routes/{destination}/{topic}/try", OPERATE_SPOOL, spool.try_route, "Have a route send at once",
         takes=spool.TryRoute),
    call("GET", "/deliveries", VIEW_OPERATION, deliveries.list_deliveries, "List deliveries that are not settled",
         lists=deliveries.DELIVERIES),
    call("POST", "/replay", OPERATE_SPOOL, spool.replay, "Send settled records again", takes=spool.Replay),
    call("POST", "/lake-repairs", OPERATE_SPOOL, lakes.repair_lake, "Put missing files of a lake again",
         takes=lakes.Repair),
    call("GET", "/clock", VIEW_OPERATION, spool.show_clock, "The time that is used, and a step of the clock"),
    call("POST", "/clock/accept", OPERATE_SPOOL, spool.accept_clock, "Believe the clock after a step of it",
         takes=spool.AcceptClock),
    call("GET", "/receipts/{id}", VIEW_RECORDS, spool.receipt, "What became of a submission"),
    call("GET", "/books", VIEW_OPERATION, spool.show_running_books, "The running books"),
    call("GET", "/verify", VIEW_OPERATION, spool.verify, "Recount the books"),
    call("GET", "/dead", VIEW_OPERATION, dead_letters.list_dead, "List dead letters", lists=dead_letters.DEAD),
    call("GET", "/dead/{id}", VIEW_OPERATION, dead_letters.show_dead, "Show a dead letter's record"),
    call("PATCH", "/dead/{id}", OPERATE_SPOOL, dead_letters.edit_dead, "Send a dead letter again with other values",
         takes=dead_letters.Edit),
    call("POST", "/dead/retry", OPERATE_SPOOL, dead_letters.retry_dead, "Send dead letters again",
         takes=dead_letters.Letters),
    call("POST", "/dead/discard", OPERATE_SPOOL, dead_letters.discard_dead, "Give dead letters up",
         takes=dead_letters.Letters),
    call("GET", "/partial-refusals", VIEW_OPERATION, dead_letters.list_refusals, "List what partial successes refused",
         lists=dead_letters.REFUSALS),
    call("GET", "/ignored", VIEW_OPERATION, findings.list_ignored, "List unrecognised AI shapes",
         lists=findings.IGNORED),
    call("GET", "/conflicts", VIEW_OPERATION, findings.list_conflicts, "List reports that disagreed",
         lists=findings.CONFLICTS),
)  # fmt: skip
