"""Addresses of views."""

from __future__ import annotations

from functools import partial

from gateway.addresses.managing import managing
from gateway.api import views
from gateway.api.view_lists import VIEWS
from gateway.http.answers import JSON
from gateway.schemas import TEXT, closed

_ALL = "/v2/views"
_ONE = _ALL + "/{view_id}"


_view = partial(managing, group="views", endpoint="views")

VIEW_ROWS = (
    _view("GET", _ALL, views.read_views, "List views", lists=VIEWS, item=views.ViewItem),
    _view("POST", _ALL, views.create_view, "Create a view", takes=views.NewView, gives={JSON: views.ViewItem}),
    _view("GET", _ONE, views.read_view, "A view", gives={JSON: views.OneView}),
    _view("PATCH", _ONE, views.update_view, "Change a view", takes=views.ViewChanges, gives={JSON: views.ViewItem}),
    _view("DELETE", _ONE, views.delete_view, "Delete a view", gives={JSON: closed({"view": closed({"id": TEXT})})}),
)
