"""
The whole table of addresses. Importing it imports every handler, so servers use `areas` instead, which
imports an area at the first request.
"""

from __future__ import annotations

from gateway.http.address import ApiAddress
from gateway.operations.installation.status import FOR_OPERATORS, ON_EVERY_LISTENER
from gateway.operations.requests.address import OperatorApiAddress
from gateway.service.addresses.areas import FOR_SENDERS as SENDER_AREAS
from gateway.service.addresses.areas import OPERATOR_AREAS, operator_addresses, sender_addresses

FOR_SENDERS: tuple[ApiAddress, ...] = tuple(row for area in SENDER_AREAS for row in sender_addresses(area))
OPERATOR_ADDRESSES: tuple[OperatorApiAddress, ...] = tuple(
    row for area in OPERATOR_AREAS for row in operator_addresses(area)
)
ADDRESSES: tuple[ApiAddress, ...] = (*FOR_SENDERS, *ON_EVERY_LISTENER, *FOR_OPERATORS, *OPERATOR_ADDRESSES)
