"""Addresses of views. As the service's own clients expect, one that was created or changed is answered bare."""

from __future__ import annotations

from gateway.api.managed import managed_by_keys
from gateway.api.views import VIEW

ROWS = managed_by_keys(VIEW, "/v2/views", "view_id", group="views", endpoint="views", is_bare_when_made=True)
