"""Settings of clusters by people, keys and files. They may exist before a cluster reports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from typing import Any, TypeAlias

from spool.errors import Invalid
from spool.registry.changes import RegistryChangeWriter
from spool.registry.documents import DocumentCollection, stored_body, with_change_fields_if_changed
from spool.registry.file_owners import check_unmanaged
from spool.registry.following import ChangedRowId
from spool.registry.keys import check_labels
from spool.registry.operators import Actor
from spool.registry.registry_rows import RegistryRows
from spool.registry.tables import cluster_configs

MAX_TEXT = 256
MAX_CONFIG_BYTES = 16 * 1024
MAX_CONFIG_DEPTH = 16  # levels of nested objects and lists
ACTION = "cluster"  # name of audit actions before the dot
ClusterName: TypeAlias = tuple[str, str, str]  # account, region and name


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredCluster:
    """The settings of a cluster. It is immutable, so a change replaces it."""

    id: str
    account: str
    region: str
    name: str
    display_name: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    enabled: bool = True
    config: Mapping[str, Any] = field(default_factory=dict)  # configuration of the agent, a JSON object
    updated_at: float | None = None  # time of the last change
    updated_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterChange:
    """A change of settings. None leaves a field unchanged, or removes a label."""

    display_name: str | None = None
    labels: Mapping[str, str | None] | None = None
    enabled: bool | None = None
    config: Mapping[str, Any] | None = None


SET_FIELDS = tuple(each.name for each in fields(ClusterChange))
SETTINGS = DocumentCollection("cluster_settings", ConfiguredCluster, "configuration of a cluster")


def cluster_id(account: str, region: str, name: str) -> str:
    """Return a cluster's id, which every installation computes in the same way."""
    return sha256(json.dumps([account, region, name]).encode()).hexdigest()[:24]


def check_cluster_name(name: ClusterName) -> None:
    """Raise Invalid if the name is missing or a part of it is too long."""
    if not name[2] or max(map(len, name)) > MAX_TEXT:
        raise Invalid(
            f"a cluster needs a name. Its name, account and region have at most {MAX_TEXT} characters each"
        )


class ClusterSettingsTable:
    """The settings by cluster id, in memory. Each change is one transaction with its audit row."""

    announced_subjects: tuple[ChangedRowId, ...] = (SETTINGS.announced_subject,)

    def __init__(self, change_writer: RegistryChangeWriter) -> None:
        self._changes = change_writer
        self._settings: Mapping[str, ConfiguredCluster] = {}
        self.version = 0  # number that grows with every change

    async def load(self) -> None:
        self._set_settings(await self._changes.read(SETTINGS.all))

    def all(self) -> Mapping[str, ConfiguredCluster]:
        return self._settings

    def find(self, id: str) -> ConfiguredCluster | None:
        return self._settings.get(id)

    async def change(self, name: ClusterName, change: ClusterChange, *, actor: Actor) -> None:
        """
        Change the settings of a cluster, which may not have reported yet. Equal settings are not stored.

        Raises Invalid, or Managed if a file manages the settings, except for `enabled`.
        """
        now = self._changes.now()

        def store_change(registry_rows: RegistryRows) -> ConfiguredCluster | None:
            before = _stored_or_default(registry_rows, name)
            changes = _check_changed_fields(change, before)
            after = with_change_fields_if_changed(
                before, replace(before, **changes), updated_at=now, updated_by=actor.name
            )
            if after is before:
                registry_rows.require_valid_actor_key(actor)
                return self.find(before.id)
            names = [field for field in SET_FIELDS if getattr(after, field) != getattr(before, field)]
            if names != ["enabled"]:
                check_unmanaged(self._changes, registry_rows, ACTION, before.id)
            is_stored = _needs_storing(registry_rows, after)
            if is_stored:
                SETTINGS.store_row(registry_rows, after)
            else:
                SETTINGS.delete(registry_rows, after.id)
            old, new = _audited_fields(before, names), _audited_fields(after, names)
            registry_rows.add_audit(
                now, actor, f"{ACTION}.update", _audit_target(before), before=old, after=new
            )
            return after if is_stored else None

        await self._changes.change_rows(
            store_change, lambda row: self._remember_settings(cluster_id(*name), row)
        )

    async def delete(self, name: ClusterName, *, actor: Actor) -> None:
        """Delete the settings. Raises Managed if a file manages them."""
        now = self._changes.now()

        def delete_settings(registry_rows: RegistryRows) -> None:
            before = _stored_or_default(registry_rows, name)
            check_unmanaged(self._changes, registry_rows, ACTION, before.id)
            SETTINGS.delete(registry_rows, before.id)
            old = _audited_fields(before, SET_FIELDS)
            registry_rows.add_audit(now, actor, f"{ACTION}.delete", _audit_target(before), before=old)

        await self._changes.change_rows(
            delete_settings, lambda _: self._remember_settings(cluster_id(*name), None)
        )

    def _remember_settings(self, id: str, row: ConfiguredCluster | None) -> None:
        others = {other: each for other, each in self._settings.items() if other != id}
        self._set_settings(others if row is None else {**others, id: row})

    def _set_settings(self, settings: Mapping[str, ConfiguredCluster]) -> None:
        self._settings = settings
        self.version += 1


def _stored_or_default(registry_rows: RegistryRows, name: ClusterName) -> ConfiguredCluster:
    account, region, own = name
    id = cluster_id(*name)
    return SETTINGS.find(registry_rows, id) or ConfiguredCluster(
        id=id, account=account, region=region, name=own
    )


def _needs_storing(registry_rows: RegistryRows, settings: ConfiguredCluster) -> bool:
    """
    Return whether settings must be stored. Defaults are stored only for a cluster that reports its
    configuration, because `updated_at` then shows since when it should have no configuration.
    """
    is_set = bool(settings.display_name or settings.labels or settings.config) or not settings.enabled
    return is_set or registry_rows.document(cluster_configs.KIND, settings.id) is not None


def _audit_target(settings: ConfiguredCluster) -> str:
    return f"{settings.name} ({settings.id})"


def _audited_fields(settings: ConfiguredCluster, names: Sequence[str]) -> Mapping[str, Any]:
    body = stored_body(settings)
    return {name: body[name] for name in names}


def _check_changed_fields(change: ClusterChange, before: ConfiguredCluster) -> dict[str, Any]:
    changes = {name: value for name in SET_FIELDS if (value := getattr(change, name)) is not None}
    name = changes.get("display_name", "")
    if len(name) > MAX_TEXT or not name.isprintable():
        raise Invalid(f"display_name must have at most {MAX_TEXT} characters and no control characters")
    if change.labels is not None:
        merged = {**before.labels, **change.labels}
        changes["labels"] = check_labels({name: text for name, text in merged.items() if text is not None})
    if change.config is not None:
        if _nesting_depth(change.config) > MAX_CONFIG_DEPTH:
            raise Invalid(f"config must have at most {MAX_CONFIG_DEPTH} levels of objects and lists")
        if len(json.dumps(change.config).encode()) > MAX_CONFIG_BYTES:
            raise Invalid(f"config must have at most {MAX_CONFIG_BYTES} bytes as JSON")
    return changes


def _nesting_depth(value: object) -> int:
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(_nesting_depth, inner), default=0)
