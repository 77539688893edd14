"""Settings of the types of recommendations, as a file."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.money.recommendations.list import BY_NAME
from gateway.operations.files.declared import ResourceFiles
from gateway.operations.files.kinds import MoneyCaller, ObjectFileHandler
from gateway.operations.files.text import suggestion
from gateway.operations.requests.requests import RequestBody
from spool.errors import Invalid, NotThere
from spool.registry.file_owners import owner_document_id
from spool.registry.permission_sets import VIEW_RECOMMENDATIONS, WORK_ON_INSIGHTS
from spool.registry.recommendations import TypeSettings
from spool.registry.registry import Registry
from spool.registry.tables.recommendations import TYPE_KIND

_DEFAULT = TypeSettings()


class TypeInFile(RequestBody):
    type: str
    enabled: bool = _DEFAULT.enabled
    least_savings: str = _DEFAULT.least_savings
    least_share: str = _DEFAULT.least_share


class RecommendationTypeFileHandler(ObjectFileHandler):
    """
    The settings of recommendation types in a file. A type with only default settings appears only if a file
    states it.
    """

    files = ResourceFiles(name="recommendation-types", key=("type",), ignores_case=False)
    noun = "recommendation type"
    action = TYPE_KIND
    new = TypeInFile
    reads = VIEW_RECOMMENDATIONS
    changes = WORK_ON_INSIGHTS

    def id_of(self, row: TypeInFile) -> str:
        return row.type

    async def find_visible(
        self, caller: MoneyCaller, id_or_name: str, *, has_limited_data_access: bool
    ) -> TypeInFile:
        if id_or_name not in BY_NAME:
            raise NotThere("there is no such type of recommendations")
        return await self.find(caller.registry, id_or_name)

    async def rows_by_id(self, registry: Registry) -> Mapping[str, TypeInFile]:
        types = {name: await self.find(registry, name) for name in BY_NAME}
        owners = registry.file_owners.all()
        return {
            name: row
            for name, row in types.items()
            if row != TypeInFile(type=name) or owner_document_id(self.action, name) in owners
        }

    async def find(self, registry: Registry, id: str) -> TypeInFile:
        settings = (await registry.recommendations.stored_type_settings()).get(id, _DEFAULT)
        return TypeInFile(
            type=id,
            enabled=settings.enabled,
            least_savings=settings.least_savings,
            least_share=settings.least_share,
        )

    async def create(self, caller: MoneyCaller, new_values: TypeInFile, secret: str | None) -> str:
        if new_values.type not in BY_NAME:
            raise Invalid(
                f"type: there is no such type of recommendations{suggestion(new_values.type, [*BY_NAME])}"
            )
        settings = {name: getattr(new_values, name) for name in self.defaults}
        await caller.registry.recommendations.change_type(new_values.type, settings, actor=caller.actor)
        return new_values.type

    async def change(
        self, caller: MoneyCaller, row: TypeInFile, new_values: TypeInFile, secret: str | None
    ) -> None:
        await self.create(caller, new_values, secret)

    async def delete(self, caller: MoneyCaller, row: TypeInFile) -> None:
        await self.create(caller, TypeInFile(type=row.type), None)


RECOMMENDATION_TYPE_KIND = RecommendationTypeFileHandler()
