"""
What several gateways on one storage are to have the same: a digest of each such setting, which shows no value.

Addresses, files, memory and what is told of the process itself are of each gateway.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Set
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

from gateway.configuration.sections import Config, settings_of
from spool.installation import derived

OWN_SECTIONS = frozenset({"data_dir", "agent", "log", "storage", "server"})
SHARED_SETTINGS = frozenset(
    {
        "storage.durability",
        "server.accept_bearer",
        "server.chain_keys",
        "server.max_body_bytes",
        "server.max_items",
        "server.max_key_requests_per_s",
        "server.max_key_bytes_per_s",
    }
)
OWN_ENDINGS = ("_file", "_env", ".file", ".proxy")
PRICES = "prices"  # the book itself, whichever file it comes from


def digests(config: Config, *, prices: str, secret: bytes) -> Mapping[str, str]:
    """Hash each shared setting by its name, under the installation's `secret`: equal values have equal hashes."""
    keyed = hmac.new(derived(secret, "digests of settings"), digestmod=blake2b)
    values = {name: value for name, _, _, value in settings_of(config) if is_shared(name)}
    return {name: _digest(keyed.copy(), name, value) for name, value in {**values, PRICES: prices}.items()}


def is_shared(name: str) -> bool:
    """True if a setting must be the same on all gateways."""
    if name in SHARED_SETTINGS:
        return True
    return name.partition(".")[0] not in OWN_SECTIONS and not name.endswith(OWN_ENDINGS)


def _digest(keyed: hmac.HMAC, name: str, value: object) -> str:
    keyed.update(f"{name}={_text(value)}".encode("utf-8", "surrogatepass"))
    return keyed.hexdigest()[:16]


def _text(value: Any) -> str:
    """The same text in every process, in whatever order its members stand."""
    if is_dataclass(value):
        members = (f"{field.name}={_text(getattr(value, field.name))}" for field in fields(value))
        return f"({','.join(members)})"
    if isinstance(value, Mapping):
        return f"{{{','.join(sorted(f'{_text(name)}={_text(each)}' for name, each in value.items()))}}}"
    if isinstance(value, Set):
        return f"{{{','.join(sorted(map(_text, value)))}}}"
    if isinstance(value, tuple | list):
        return f"[{','.join(map(_text, value))}]"
    return repr(value)
