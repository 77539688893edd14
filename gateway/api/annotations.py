"""Annotations as people manage them. What a person does not see is answered as if it were not there."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET

from gateway.api.managed import Answer, Asker, ManagedResource
from gateway.errors import Refusal
from gateway.http.lists import Filter, List, MemoryRows, Sort
from gateway.resources.annotations import (
    AnnotationChanges,
    AnnotationItem,
    NewAnnotation,
    OneAnnotation,
)
from gateway.resources.declaration import answer, stated
from spool.errors import Invalid, NotThere
from spool.record import moment
from spool.registry.registry import Registry
from spool.registry.tables.annotations import NO_VIEW, Annotation, AnnotationDraft

Row = tuple[Annotation, str | None]  # with the name of its view


def _item(row: Row) -> Answer:
    annotation, view = row
    return answer(
        AnnotationItem,
        annotation,
        view=annotation.view_id,
        view_name=view,
        created=moment(annotation.created),
        last_updated=moment(annotation.last_updated),
    )


ANNOTATIONS: List[Row] = List(
    root="annotations",
    show=_item,
    identity=Sort(value=lambda row: row[0].id),
    sorts={
        "day": Sort(value=lambda row: row[0].day),
        "text": Sort(value=lambda row: row[0].text),
        "author": Sort(value=lambda row: row[0].author),
    },
    default_sort=("day", "desc"),
    filters={
        "day": Filter(values=lambda row: (row[0].day,)),
        "author": Filter(values=lambda row: (row[0].author,)),
        "view": Filter(values=lambda row: (row[0].view_id,)),
    },
)


async def _rows(asking: Asker) -> MemoryRows[Row]:
    registry, sees = asking.registry, await asking.sees()
    kept = [each for each in registry.annotations.all() if sees.annotation(each)]
    return MemoryRows([_row(registry, each) for each in kept])


def _row(registry: Registry, annotation: Annotation) -> Row:
    view = registry.views.find(annotation.view_id)
    return annotation, None if view is None else view.name


async def _create(asking: Asker, given: NewAnnotation) -> Answer:
    draft = AnnotationDraft(**await _fields(asking, given))
    table = asking.registry.annotations
    most = asking.shared.most(table.limit)
    return _one(asking, await table.create(draft, most=most, actor=asking.actor))


async def _show(asking: Asker, id: str) -> Answer:
    return _one(asking, await _found(asking, id))


async def _change(asking: Asker, id: str, given: Any) -> Answer:
    before, fields = await _found(asking, id), await _fields(asking, given)
    table = asking.registry.annotations
    return _one(asking, await table.change(before.id, fields, version=given.version, actor=asking.actor))


async def _delete(asking: Asker, id: str) -> str:
    await _found(asking, id)
    await asking.registry.annotations.delete(id, actor=asking.actor)
    return id


async def _found(asking: Asker, id: str) -> Annotation:
    annotation = asking.registry.annotations.get(id)
    if not (await asking.sees()).annotation(annotation):
        raise NotThere("there is no annotation with this id")
    return annotation


def _one(asking: Asker, annotation: Annotation) -> Answer:
    return {"annotation": _item(_row(asking.registry, annotation))}


async def _fields(asking: Asker, given: Any) -> dict[str, Any]:
    """Return the stated fields by the names of a draft. Refusal 403 for words about unseen calls."""
    found = stated(given)
    word = found.pop("view", UNSET)
    if word is UNSET:
        return found
    sees = await asking.sees()
    if not word and not sees.is_whole:
        raise Refusal(403, "limited_data", "name a view: who may see some calls alone writes about these")
    try:
        found["view_id"] = asking.registry.views.find_any(word, sees.view).id if word else ""
    except NotThere:
        raise Invalid(NO_VIEW) from None
    return found


ANNOTATION = ManagedResource(
    noun="annotation",
    root="annotation",
    lists=ANNOTATIONS,
    new=NewAnnotation,
    changes=AnnotationChanges,
    item=AnnotationItem,
    one=OneAnnotation,
    rows=_rows,
    create=_create,
    show=_show,
    change=_change,
    delete=_delete,
)
