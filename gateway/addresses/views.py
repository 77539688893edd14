"""Addresses of views."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gateway.api import views
from gateway.api.view_lists import VIEWS
from gateway.http.address import READ, WRITE, Address, Content
from gateway.http.answers import JSON
from gateway.http.lists import List
from gateway.http.requests import AddressHandler, check_json
from gateway.schemas import TEXT, closed

_ALL = "/v2/views"
_ONE = _ALL + "/{view_id}"


def _view(
    method: str,
    path: str,
    handler: AddressHandler,
    summary: str,
    *,
    takes: type | None = None,
    gives: Content | None = None,
    lists: List[Any] | None = None,
) -> Address:
    """A handler is named as its scope is."""
    answers: Mapping[int, Content] = {200: gives} if gives else {}
    return Address(
        methods=("GET", "HEAD") if method == "GET" else (method,),
        path=path,
        name=handler.__name__,
        summary=summary,
        handler=handler,
        endpoint="views",
        scope=f"views:{handler.__name__}",
        check=check_json if takes else None,
        body=takes,
        takes={JSON: takes} if takes else {},
        gives=answers,
        lists=lists,
        item=views.ViewItem,
        refusals=(*(WRITE if takes else READ), 404, 409),
    )


VIEW_ROWS = (
    _view("GET", _ALL, views.read_views, "List views", lists=VIEWS),
    _view("POST", _ALL, views.create_view, "Create a view", takes=views.NewView, gives={JSON: views.ViewItem}),
    _view("GET", _ONE, views.read_view, "A view", gives={JSON: views.OneView}),
    _view("PATCH", _ONE, views.update_view, "Change a view", takes=views.ViewChanges, gives={JSON: views.ViewItem}),
    _view("DELETE", _ONE, views.delete_view, "Delete a view", gives={JSON: closed({"view": closed({"id": TEXT})})}),
)
