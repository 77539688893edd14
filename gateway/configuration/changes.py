"""
Differences between two configurations: the changes that a reload applies, and digests by which several
gateways on one storage compare their settings. A digest does not reveal a value.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Set
from dataclasses import dataclass, fields, is_dataclass, replace
from hashlib import blake2b
from typing import Any

from gateway.configuration.sections import Config, all_settings
from gateway.configuration.server import ServerSettings
from spool.installation import derive_secret

# Sections and settings that a reload applies. All other settings take effect only when the server starts.
LIVE = frozenset({
    "upstream", "destinations", "devices", "clusters", "privacy", "prices", "currency", "attribution", "sources",
    "streams", "billed",
    "publish", "log", "billing", "notify", "views", "budgets", "allocation", "mcp", "reconciliation", "enforcers",
    "scheduled_reports", "annotations", "plans", "files", "contracts", "channels", "roles", "answers", "operators",
    "server.accept_bearer", "server.api_key_file", "server.chain_keys", "server.key_headers", "server.key_addresses",
    "server.figure_keys", "server.max_key_requests_per_s", "server.max_key_bytes_per_s", "server.min_upload_rate",
    "server.max_listed_records", "work.links",
})  # fmt: skip
_TLS_FILES = ("tls_cert_file", "tls_key_file", "tls_client_ca_file")
# Settings that may differ between gateways that share storage, because addresses, files, memory and logging
# belong to each gateway. All other settings must be equal.
OWN_SECTIONS = frozenset({"data_dir", "agent", "log", "storage", "server"})
SHARED_SETTINGS = frozenset({
    "storage.durability", "server.accept_bearer", "server.chain_keys", "server.key_headers", "server.key_addresses",
    "server.figure_keys", "server.max_body_bytes", "server.max_items", "server.max_key_requests_per_s",
    "server.max_key_bytes_per_s",
})  # fmt: skip
OWN_ENDINGS = ("_file", "_env", ".file", ".proxy")
PRICES = "prices"  # name of the price list's content, which may come from different files


@dataclass(frozen=True, kw_only=True)
class ConfigChange:
    """
    The result of comparing two configurations. `config` is the new configuration, but keeps the running value
    of each setting that needs a restart. Both lists contain names of settings.
    """

    config: Config
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]


def compare_configs(running: Config, new: Config) -> ConfigChange:
    """
    Compare the running configuration with a new one. Return the settings that change now and those that
    need a restart.
    """
    values = {name: value for name, _, _, value in all_settings(running)}
    changed, needs_restart = [], []
    kept_values: dict[str, Any] = {}
    for name, _, _, value in all_settings(new):
        if value == values[name]:
            continue
        if _can_apply_live(name, running.server, new.server):
            changed.append(name)
        else:
            needs_restart.append(name)
            kept_values[name] = values[name]
    return ConfigChange(
        config=_with_settings(new, kept_values), changed=tuple(changed), needs_restart=tuple(needs_restart)
    )


def _can_apply_live(name: str, running: ServerSettings, new: ServerSettings) -> bool:
    section, _, setting = name.partition(".")
    # a reload can apply another certificate file, but cannot switch TLS or client certificates on or off
    if setting in _TLS_FILES:
        return all(bool(getattr(running, file)) == bool(getattr(new, file)) for file in _TLS_FILES)
    return section in LIVE or name in LIVE


def _with_settings(config: Config, values: dict[str, Any]) -> Config:
    for name, value in values.items():
        section, _, setting = name.partition(".")
        of_section = replace(getattr(config, section), **{setting: value}) if setting else value
        config = replace(config, **{section: of_section})
    return config


def digest_settings(config: Config, *, prices: str, secret: bytes) -> Mapping[str, str]:
    """
    Hash each shared setting under its name, keyed with the installation's `secret`. Equal values have equal hashes.
    """
    keyed = hmac.new(derive_secret(secret, "digests of settings"), digestmod=blake2b)
    values = {
        name: value for name, _, _, value in all_settings(config) if is_setting_shared_by_gateways(name)
    }
    return {
        name: _hash_setting(keyed.copy(), name, value) for name, value in {**values, PRICES: prices}.items()
    }


def is_setting_shared_by_gateways(setting_name: str) -> bool:
    """Return whether a setting must be the same on all gateways."""
    if setting_name in SHARED_SETTINGS:
        return True
    return setting_name.partition(".")[0] not in OWN_SECTIONS and not setting_name.endswith(OWN_ENDINGS)


def _hash_setting(keyed: hmac.HMAC, name: str, value: object) -> str:
    keyed.update(f"{name}={_canonical_text(value)}".encode("utf-8", "surrogatepass"))
    return keyed.hexdigest()[:16]


def _canonical_text(value: Any) -> str:
    if is_dataclass(value):
        members = (f"{field.name}={_canonical_text(getattr(value, field.name))}" for field in fields(value))
        return f"({','.join(members)})"
    if isinstance(value, Mapping):
        pairs = sorted(f"{_canonical_text(name)}={_canonical_text(item)}" for name, item in value.items())
        return f"{{{','.join(pairs)}}}"
    if isinstance(value, Set):
        return f"{{{','.join(sorted(map(_canonical_text, value)))}}}"
    if isinstance(value, tuple | list):
        return f"[{','.join(map(_canonical_text, value))}]"
    return repr(value)
