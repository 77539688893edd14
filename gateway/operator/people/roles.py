"""What operators ask of permission sets, which are read and never changed."""

from __future__ import annotations

from gateway.api.roles import PERMISSION_SET_LIST, permission_set_rows
from gateway.http.holders.people import PeopleServices
from gateway.http.requests import Result
from gateway.operator.requests import OperatorRequest


async def list_permission_sets(request: OperatorRequest[PeopleServices, None]) -> Result:
    return await request.list(PERMISSION_SET_LIST, permission_set_rows())
