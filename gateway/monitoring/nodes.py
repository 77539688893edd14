"""The gateways that share a storage, as every answer on the operator's side shows them."""

from __future__ import annotations

from collections.abc import Sequence

from spool.errors import SpoolError
from spool.leases import Leases, NodeState


def describe_node(node: NodeState, now: float) -> dict[str, object]:
    """`leases` are the routes and tasks that it runs, and no other gateway."""
    return {
        "node": node.id,
        "name": node.name,
        "version": node.version,
        "live": node.is_live,
        "this": node.is_this,
        "up_s": max(0.0, now - node.started_at),
        "seen_s": max(0.0, now - node.seen_at),
        "leases": list(node.leases),
    }


async def describe_nodes(leases: Leases, now: float) -> Sequence[dict[str, object]]:
    """None where one gateway has the storage for itself, and while they cannot be read."""
    try:
        return [describe_node(node, now) for node in await leases.nodes()]
    except SpoolError:
        return []
