"""
Handlers and holders of services: each handler declares the one holder that it uses, and gets only that one.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, cast

import pytest
from aiohttp.test_utils import make_mocked_request

from gateway.http.address import ApiAddress
from gateway.http.requests import services_type_of_handler
from gateway.mcp.tool import McpTool
from gateway.mcp.tools.list import TOOLS
from gateway.operations.holders.operators import (
    InstallationServices,
    MoneyServices,
    SenderServices,
    SpoolServices,
)
from gateway.operations.installation.status import FOR_OPERATORS, ON_EVERY_LISTENER, StatusServices
from gateway.operations.records.deliveries import list_deliveries
from gateway.operations.requests.address import OperatorApiAddress
from gateway.operations.requests.receiver_services import ReceiverServices
from gateway.operations.requests.requests import OperatorRequest
from gateway.operations.services import AllServices, OperatorServices, is_protocol
from gateway.operations.single_receivers import ServicesOfSingleReceivers
from gateway.service.addresses.areas import OPERATOR_AREAS, operator_addresses
from gateway.service.addresses.table import FOR_SENDERS
from spool.ledger.ledger import Ledger
from spool.registry.operators import ADMIN, Actor
from spool.registry.roles import EVERYTHING
from spool.settings import SpoolSettings
from spool.sqlite.in_memory import open_spool
from tests.moved_clock import MovedClock

ROWS = [row for area in OPERATOR_AREAS for row in operator_addresses(area)]
# These handlers combine several areas. Examples are the changes of any resource, the explanation of a record,
# facts for insights, MCP tools, the effect of a role, a report as another person sees it, and the erasure of a person.
OF_SEVERAL = {
    "apply_files",
    "changes", "download_person", "erase_person", "export_person", "let_person_leave", "list_assistant_tools",
    "overview",
    "preview_role", "preview_scheduled_report", "relay_mcp", "send_scheduled_report", "search", "set_assistant_tool",
    "run_all_detectors", "show_attention", "show_record", "show_waste", "tail",
}  # fmt: skip
KEY_ROWS = [*FOR_SENDERS, *ON_EVERY_LISTENER, *FOR_OPERATORS]
# A server has one holder of each of these classes. MCP over HTTP uses the tools of every area.
KEY_HOLDERS = {ReceiverServices, MoneyServices, SpoolServices}
GIVEN = {field.name for field in fields(ServicesOfSingleReceivers)}
OF_ASSISTANTS = ("gateway.mcp.endpoint", "gateway.mcp.metadata")


@pytest.mark.parametrize("row", KEY_ROWS, ids=lambda row: f"{row.name} {row.path}")
def test_a_handler_for_keys_names_one_holder(row: ApiAddress) -> None:
    """
    A decorator around the handler does not hide the holder. A protocol lists members that every server has.
    """
    named = services_type_of_handler(row.handler)
    if is_protocol(named):
        stated = {*named.__annotations__, *(name for name in vars(named) if not name.startswith("_"))}
        assert set() == stated - GIVEN
    elif getattr(row.handler, "__module__", "") in OF_ASSISTANTS:
        assert named is OperatorServices
    else:
        assert named in KEY_HOLDERS


@pytest.mark.parametrize("tool", TOOLS.values(), ids=lambda tool: tool.name)
def test_a_tool_of_assistants_names_one_holder(tool: McpTool[Any]) -> None:
    named = services_type_of_handler(tool.run)
    assert named in (MoneyServices, SpoolServices, SenderServices, InstallationServices)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_handler_names_one_holder(row: OperatorApiAddress) -> None:
    """Each handler of the operator API names one holder. Only a few handlers get all holders together."""
    named = services_type_of_handler(row.handler)
    assert (row.name in OF_SEVERAL) == (named is OperatorServices)
    assert isinstance(named, type)


async def test_a_handler_is_called_with_its_holder_alone() -> None:
    """
    Apart from its holder, a handler gets only the fields of every request. Nothing else of a server is created.
    """
    clock = MovedClock()
    spool = await open_spool(settings=SpoolSettings(), clock=clock)
    ledger = cast("Ledger", None)  # None, because the handler does not use the ledger
    request = OperatorRequest(
        http=make_mocked_request("GET", "/console/api/deliveries"),
        body=None,
        services=SpoolServices(
            log=spool.log, deliveries=spool.deliveries, streams=spool.streams, clock=clock
        ),
        shared=InstallationServices(registry=None, clock=clock, secret=b"secret", version="0"),
        whole_ledger=ledger,
        actor=Actor("ada@example.com", "local"),
        role=ADMIN,
        rights=EVERYTHING,
    )
    page = cast("dict[str, Any]", await list_deliveries(request))
    assert [] == page["deliveries"]
    await spool.close()


def test_a_holder_is_found_by_its_class() -> None:
    """An unknown holder fails at the first request of its area, before the handler reads a field."""
    held = dict.fromkeys(("money", "people", "senders", "assistants", "installation"), cast("Any", None))
    spool = cast("Any", SpoolServices.__new__(SpoolServices))
    services = OperatorServices(spool=spool, **held)
    assert services.services_of_type(SpoolServices) is spool
    assert services.services_of_type(OperatorServices) is services
    with pytest.raises(LookupError, match="no services have the class"):
        services.services_of_type(dict)
    receivers = cast("Any", ReceiverServices.__new__(ReceiverServices))
    more = dict.fromkeys(("storage", "single", "background", "reload"), cast("Any", None))
    server = AllServices(receivers=receivers, operators=services, **more)
    assert server.services_of_type(ReceiverServices) is receivers
    assert server.services_of_type(SpoolServices) is spool
    with pytest.raises(LookupError, match="no services have the class"):
        server.services_of_type(dict)
    assert server.services_of_type(StatusServices) is server.single
