"""API keys and their scopes."""

from __future__ import annotations

from gateway.addresses.operator_call import call
from gateway.operator import keys, scopes
from gateway.operator.address import NOTHING
from spool.registry.permission_sets import API_KEY_MANAGEMENT, VIEW_OPERATION

ROWS = (
    call("GET", "/keys", VIEW_OPERATION, keys.list_keys, "List API keys", lists=keys.KEYS),
    call("POST", "/keys", API_KEY_MANAGEMENT, keys.create_key, "Create an API key", takes=keys.NewKey, status=201),
    call("POST", "/keys/adopt", API_KEY_MANAGEMENT, keys.adopt_key,
         "Let the key of server.api_key_file open again after it was deleted"),
    call("GET", "/keys/{name}", VIEW_OPERATION, keys.show_key, "Show an API key"),
    call("PATCH", "/keys/{name}", API_KEY_MANAGEMENT, keys.edit_key, "Edit an API key", takes=keys.KeyChanges),
    call("POST", "/keys/{name}/rotate", API_KEY_MANAGEMENT, keys.rotate_key, "Give a key a new secret",
         takes=keys.Rotation),
    call("POST", "/keys/{name}/enable", API_KEY_MANAGEMENT, keys.enable_key, "Enable an API key"),
    call("POST", "/keys/{name}/disable", API_KEY_MANAGEMENT, keys.disable_key, "Disable an API key"),
    call("DELETE", "/keys/{name}", API_KEY_MANAGEMENT, keys.delete_key, "Delete an API key", required=("confirm",)),
    call("GET", "/scopes", VIEW_OPERATION, scopes.list_scopes, "List the scopes of keys, with what each opens",
         lists=scopes.SCOPE_LIST, shows=NOTHING),
)  # fmt: skip
