"""The severity of a problem that some machines have in common, by their share of the fleet."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gateway.devices.fleet.coverage import FleetRow, machines_to_count
from gateway.devices.fleet.uses import LOSING
from gateway.devices.machine_state import AGENT_STOPPED
from spool.registry.notices import CRITICAL, INFO, SEVERITIES, WARNING

MANY = 20  # number of affected machines that is a warning in a fleet of any size
WARNING_PERCENT, LEAST_OF_WARNING = 10, 3
CRITICAL_PERCENT, LEAST_OF_CRITICAL = 50, 10
# states in which calls are lost; in the other states no call is lost yet, so they are one step less severe
LOSING_STATES = frozenset({LOSING, AGENT_STOPPED})


def severity_of_machines(rows: Collection[FleetRow], fleet: Sequence[FleetRow]) -> str:
    """
    Return the severity of a problem of the machines in `rows`. `fleet` must have no machine that has not
    reported for long (`is_away`). Machines outside of the inventory count as part of the fleet, because they
    may be among the rows.
    """
    machines = len(machines_to_count(fleet, has_inventory=False))
    losing = sum(row.state in LOSING_STATES for row in rows)
    lowered = max(0, _severity_by_share(len(rows), machines) - 1)
    return SEVERITIES[max(_severity_by_share(losing, machines), lowered)]


def _severity_by_share(count: int, machines: int) -> int:
    severity = INFO
    percent = 100 * count / max(1, machines)
    if count >= MANY or (count >= LEAST_OF_WARNING and percent >= WARNING_PERCENT):
        severity = WARNING
    if count >= LEAST_OF_CRITICAL and percent >= CRITICAL_PERCENT:
        severity = CRITICAL
    return SEVERITIES.index(severity)
