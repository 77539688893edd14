"""What a new configuration changes in a running server: what it takes over, and what needs a restart."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gateway.configuration.sections import Config, ServerSettings, settings_of

# Sections and settings that are taken over while running; every other one is read at the start alone.
LIVE = frozenset({
    "upstream", "destinations", "devices", "clusters", "privacy", "prices", "currency", "attribution", "sources",
    "streams", "billed",
    "publish", "log", "billing", "notify", "views", "budgets", "allocation", "mcp", "reconciliation",
    "scheduled_reports", "annotations", "plans", "channels", "roles", "answers", "operators",
    "server.accept_bearer", "server.api_key_file", "server.chain_keys", "server.max_key_requests_per_s",
    "server.max_key_bytes_per_s", "server.min_upload_rate", "server.max_listed_records",
})  # fmt: skip
_TLS_FILES = ("tls_cert_file", "tls_key_file", "tls_client_ca_file")


@dataclass(frozen=True, kw_only=True)
class ConfigChange:
    """`config` is the new configuration with the running values of what needs a restart; both lists name settings."""

    config: Config
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]


def change(running: Config, new: Config) -> ConfigChange:
    """Compare a running configuration with a new one: the settings that change now, and those that need a restart."""
    values = {name: value for name, _, _, value in settings_of(running)}
    changed, needs_restart = [], []
    kept: dict[str, Any] = {}
    for name, _, _, value in settings_of(new):
        if value == values[name]:
            continue
        if _is_live(name, running.server, new.server):
            changed.append(name)
        else:
            needs_restart.append(name)
            kept[name] = values[name]
    return ConfigChange(config=_with(new, kept), changed=tuple(changed), needs_restart=tuple(needs_restart))


def _is_live(name: str, running: ServerSettings, new: ServerSettings) -> bool:
    section, _, setting = name.partition(".")
    if setting in _TLS_FILES:  # another file is, TLS or client certificates where there were none are not
        return all(bool(getattr(running, file)) == bool(getattr(new, file)) for file in _TLS_FILES)
    return section in LIVE or name in LIVE


def _with(config: Config, values: dict[str, Any]) -> Config:
    for name, value in values.items():
        section, _, setting = name.partition(".")
        of_section = replace(getattr(config, section), **{setting: value}) if setting else value
        config = replace(config, **{section: of_section})
    return config
