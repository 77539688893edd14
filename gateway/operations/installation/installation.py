"""Operator API handlers for the installation: configuration, backup and demo month."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import msgspec

from gateway.configuration.settings_in_effect import SOURCES, SettingInEffect
from gateway.configuration.values import ConfigError
from gateway.core.errors import Refusal
from gateway.core.fields import one_field_answer
from gateway.http.lists import Filter, ListDefinition, MemoryRows, SearchableObject, Sort
from gateway.http.requests import Result
from gateway.operations.holders.operators import InstallationServices, SpoolServices
from gateway.operations.requests.address import operator_call
from gateway.operations.requests.requests import OperatorRequest, RequestBody
from spool.errors import Invalid
from spool.record import utc_iso
from spool.registry.field_notes import example, words
from spool.registry.permission_sets import INSTALLATION_ADMINISTRATION, OPERATE_SPOOL, VIEW_OPERATION
from spool.transfer import backups

CONFIGURATION: ListDefinition[SettingInEffect] = ListDefinition(
    root="configuration",
    show=asdict,
    identity=Sort(value=lambda setting: setting.name),
    sorts={
        "name": Sort(value=lambda setting: setting.name),
        "source": Sort(value=lambda setting: SOURCES.index(setting.source)),
    },
    default_sort=("name", "asc"),
    filters={
        "section": Filter(values=lambda setting: (setting.name.partition(".")[0],)),
        "name": Filter(values=lambda setting: (setting.name,)),
        "source": Filter(values=lambda setting: (setting.source,), valid_values=SOURCES),
    },
)


class ConfigurationItem(msgspec.Struct, kw_only=True):
    name: Annotated[str, words("The name of the setting."), example("agent.device_id")]
    value: Annotated[Any, words("The value of the setting; `set` in place of a secret."), example("")]
    source: Annotated[
        str, words("The origin of the value, such as the file or the default."), example("default")
    ]
    words: Annotated[
        str,
        words("The meaning of the setting."),
        example("id of the device; if empty, the agent creates one and stores it"),
    ]


class ReloadResult(msgspec.Struct, kw_only=True):
    changed: Annotated[list[str], words("The changed settings that are now in effect."), example([])]
    needs_restart: Annotated[list[str], words("The changed settings that need a restart."), example([])]
    problems: Annotated[list[str], words("The problems with secrets and channels."), example([])]


class BackupResult(msgspec.Struct, kw_only=True):
    directory: Annotated[
        str, words("The directory on the machine of the server."), example("/var/backups/tollhouse")
    ]
    made_at: Annotated[str, words("When the backup was made."), example("2026-11-27T01:45:03.994Z")]
    bytes: Annotated[int, words("The size of the backup in bytes."), example(9871678)]


class DemoState(msgspec.Struct, kw_only=True):
    state: Annotated[
        str | None, words("The state of the demo month; null if this server can have none."), example("none")
    ]


class StartedDemo(msgspec.Struct, kw_only=True):
    state: Annotated[str, words("The state of the demo month."), example("loaded")]


class StartDemoAnswer(msgspec.Struct, kw_only=True):
    demo: Annotated[StartedDemo, words("The demo month.")]


async def _names_of_settings(
    request: OperatorRequest[InstallationServices, None],
) -> Iterator[SearchableObject]:
    settings = request.services.settings()
    return (SearchableObject(setting.name, (setting.name, setting.words)) for setting in settings)


@operator_call(
    "GET",
    "/configuration",
    OPERATE_SPOOL,
    "List the settings in effect",
    names=_names_of_settings,
    lists=CONFIGURATION,
    item=ConfigurationItem,
)
async def list_configuration(request: OperatorRequest[InstallationServices, None]) -> Result:
    return await request.list_page(CONFIGURATION, MemoryRows(request.services.settings()))


class ConfigReload(RequestBody):
    """The request body, an empty JSON object."""


@operator_call(
    "POST",
    "/reload",
    INSTALLATION_ADMINISTRATION,
    "Reload the configuration",
    answers=one_field_answer("OneReload", reload=Annotated[ReloadResult, words("The result of the reload.")]),
)
async def reload(request: OperatorRequest[InstallationServices, ConfigReload]) -> Result:
    """
    Reload the configuration. Refusal 422 lists every problem, one per line. In that case, the earlier
    configuration stays in effect.
    """
    try:
        reloaded = await request.services.reload(request.actor)
    except ConfigError as error:
        message = "\n".join(
            ("the configuration is invalid, so the earlier one stays in effect:", *error.problems)
        )
        raise Refusal(422, "bad_configuration", message) from error
    return {
        "reload": {
            "changed": reloaded.changed,
            "needs_restart": reloaded.needs_restart,
            "problems": reloaded.problems,
        }
    }


def require_local_path(
    request: OperatorRequest[Any, Any], field: str, path_text: str, *, elsewhere: str
) -> Path:
    """
    Return the path. Raises Invalid unless it is absolute, and Refusal 403 with the text `elsewhere` if the
    request did not come over the operator socket.
    """
    if request.session is not None:
        raise Refusal(403, "socket_only", elsewhere)
    if not Path(path_text).is_absolute():
        raise Invalid(f"{field} must be an absolute path")
    return Path(path_text)


class BackupPlace(RequestBody):
    """The absolute path of a directory that does not exist yet."""

    directory: Annotated[
        str, words("The absolute path of a directory on the server that does not exist yet.")
    ]


@operator_call(
    "POST",
    "/backup",
    INSTALLATION_ADMINISTRATION,
    "Back up the data into a directory on the server's machine",
    status=201,
    answers=one_field_answer(
        "OneBackup", backup=Annotated[BackupResult, words("The backup, with the fields below.")]
    ),
)
async def back_up(request: OperatorRequest[SpoolServices, BackupPlace]) -> Result:
    """
    Make a backup in the given directory. Only the operator socket allows this, because the path is on
    the server's machine.
    """
    services = request.services
    elsewhere = "backups are made on the server's machine: run tollhouse backup there"
    directory = require_local_path(request, "directory", request.body.directory, elsewhere=elsewhere)
    if request.shared.copy is None:
        raise Refusal(503, "no_storage", "this server has no storage to back up")
    topics = (await services.log.books()).topics
    records = {topic: terms.get("accepted", 0) for topic, terms in topics.items()}
    async with request.audited_change("backup", str(directory), {}):
        manifest = await backups.back_up(
            request.shared.copy,
            directory,
            version=request.shared.version,
            made_at=utc_iso(request.now()),
            records=records,
        )
    return {"backup": {"directory": str(directory), "made_at": manifest.made_at, "bytes": manifest.bytes}}


_NO_PLACE = (
    "only a single server with its own storage can create a demo month here; elsewhere, run tollhouse "
    "demo --data DIR"
)

_HAS_RECORDS = "the console already has records; to see the demo separately, run tollhouse demo --data DIR"


class DemoLoad(RequestBody):
    """The request body, an empty JSON object."""


@operator_call(
    "GET",
    "/demo",
    VIEW_OPERATION,
    "Read whether a demo month is loaded",
    answers=one_field_answer("OneDemo", demo=Annotated[DemoState, words("The demo month.")]),
)
async def read_demo(request: OperatorRequest[SpoolServices, None]) -> Result:
    return _describe_installation(request.shared)


@operator_call(
    "POST",
    "/demo",
    INSTALLATION_ADMINISTRATION,
    "Load a demo month, separate from real data, while there are no records",
    status=201,
    answers=StartDemoAnswer,
)
async def load_demo(request: OperatorRequest[SpoolServices, DemoLoad]) -> Result:
    """
    Create the demo month. Refusal 409 if records exist, because people with real calls do not
    need an invented month.
    """
    demo = request.shared.demo
    if demo is None:
        raise Refusal(503, "no_demo", _NO_PLACE)
    topics = (await request.services.log.books()).topics
    if any(terms.get("accepted", 0) for terms in topics.values()):
        raise Refusal(409, "has_records", _HAS_RECORDS)
    async with request.audited_change("demo.load", "demo", {}):
        await demo().load()
    return _describe_installation(request.shared)


@operator_call(
    "DELETE", "/demo", INSTALLATION_ADMINISTRATION, "Remove the demo month", answers=StartDemoAnswer
)
async def remove_demo(request: OperatorRequest[SpoolServices, None]) -> Result:
    demo = request.shared.demo
    if demo is None:
        raise Refusal(503, "no_demo", _NO_PLACE)
    async with request.audited_change("demo.remove", "demo", {}):
        await demo().remove()
    return _describe_installation(request.shared)


def _describe_installation(installation: InstallationServices) -> dict[str, object]:
    return {"demo": {"state": installation.demo_state}}
