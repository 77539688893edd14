"""The calls of the operator API on the configuration: what is in effect, and taking it over as it is now."""

from __future__ import annotations

from dataclasses import asdict

from gateway.configuration.in_effect import SOURCES, SettingInEffect
from gateway.configuration.sections import ConfigError
from gateway.errors import Refusal
from gateway.http.holders.installation import InstallationServices
from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.http.requests import Result
from gateway.operator.body import RequestBody
from gateway.operator.requests import OperatorRequest

CONFIGURATION: List[SettingInEffect] = List(
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


async def list_configuration(request: OperatorRequest[InstallationServices, None]) -> Result:
    return await request.list(CONFIGURATION, MemoryRows(request.services.settings()))


class ConfigReload(RequestBody):
    """An empty object."""


async def reload(request: OperatorRequest[InstallationServices, ConfigReload]) -> Result:
    """Refusal 422 with every problem, one a line: then the configuration before stays in force."""
    try:
        done = await request.services.reload(request.actor)
    except ConfigError as error:
        told = "\n".join(
            ("the configuration was refused, and the one before stays in force:", *error.problems)
        )
        raise Refusal(422, "bad_configuration", told) from error
    return {
        "reload": {
            "changed": done.changed,
            "needs_restart": done.needs_restart,
            "problems": done.problems,
        }
    }
