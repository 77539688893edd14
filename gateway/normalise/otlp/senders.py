"""On whose account a log record or a metric point stands, and its tags: the item first, then its resource."""

from __future__ import annotations

from gateway.normalise.options import Options
from gateway.normalise.otlp import item_tags, semconv, shapes
from gateway.normalise.otlp.decoding.model import Attributes, Resource
from gateway.normalise.otlp.shapes import Shape, shape_of
from gateway.normalise.otlp.who import NOBODY, device_of, end_user_of, nearest, resource_who, who_of
from gateway.normalise.outcome import Outcome
from gateway.normalise.reading import tags as tag_rules
from gateway.normalise.reading import vocabulary as words
from spool.record import AiRecord

# Names that mean this only in one source.
_USER = {"claude_code": semconv.CLAUDE_USER, "cline": ("user_id",)}
_SESSION = {"cline": ("ulid",)}
_TAGS: dict[str, dict[str, tuple[str, ...]]] = {
    "claude_code": {name: (name,) for name in semconv.CLAUDE_TAGS},
    "cline": {"organization": ("organization_id",), "device": ("distinct_id",)},
}


class Senders:
    """Signs the records of one payload; what a resource says is read once for neighbours."""

    def __init__(self, outcome: Outcome, options: Options) -> None:
        self._outcome = outcome
        self._keep = options.keep_attributes
        self._host_id = options.host_id
        self.device: str | None = None  # as the resource of the record that was signed last names it
        self._resource: Resource | None = None
        self._resource_who = NOBODY
        self._resource_tags: dict[str, str] = {}

    def sign(self, record: AiRecord, resource: Resource, attributes: Attributes) -> None:
        """Fill user, team, session, api_key and tags of a record whose source is known."""
        self._read(resource)
        source = record.source
        shape = shape_of(attributes)
        own = who_of(attributes, shape, _USER.get(source, semconv.USER))
        if source in _SESSION:
            own = own._replace(session=semconv.first_text(attributes, _SESSION[source]))
        record.user, record.team, record.session, record.api_key = nearest(own, self._resource_who)
        record.tags = self._tags(source, record.user, attributes, shape)

    def tags_of(self, resource: Resource) -> dict[str, str]:
        """What a resource says of everything it sends; `device` is its own afterwards."""
        self._read(resource)
        return self._resource_tags

    def _read(self, resource: Resource) -> None:
        if resource is not self._resource:
            self._resource = resource
            self._resource_who = resource_who(resource.attributes)
            self.device = device_of(resource.attributes, self._host_id)
            self._resource_tags = item_tags.resource_tags(resource.attributes, self._keep)

    def _tags(self, source: str, user: str | None, attributes: Attributes, shape: Shape) -> dict[str, str]:
        tags = dict(self._resource_tags)
        left_out = 0
        # The names that every source may use are stronger and come last.
        for tag, names in _TAGS.get(source, {}).items():
            if (value := semconv.first_text(attributes, names)) is not None:
                left_out += not tag_rules.put(tags, tag, value)
        if source == "claude_code" and (device := words.text(attributes.get("user.id"))) not in (None, user):
            left_out += not tag_rules.put(tags, "device", device)
        if shape.marks & shapes.END_USER and (end_user := end_user_of(attributes, user)) is not None:
            left_out += not tag_rules.put(tags, "end_user", end_user)
        if shape.named_tags or shape.metadata or self._keep:
            left_out += item_tags.add_tags(tags, attributes, shape, self._keep)
        self._outcome.left_out += left_out
        return tags
