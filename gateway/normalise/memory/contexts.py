"""
Contexts of spans: the resource and the scope. Two contexts differ if the values that rules read differ.

A known context is found by a hash of its bytes and is not decoded again. Only the resource values that rules
read are stored.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from gateway.normalise.memory.slots import OF_RESOURCE, varying_resource_texts
from gateway.normalise.otlp.decoding import protobuf_decoder
from gateway.normalise.otlp.model import Resource, Scope
from gateway.normalise.otlp.senders import Senders, version_of_sender
from gateway.normalise.outcome import ReadOptions, ReadOutcome
from spool.caches import remove_oldest_eighth
from spool.packed.native import KnownItemKinds

MOST_CONTEXTS: Final = 4096
_LARGEST_CONTEXT: Final = 8192


class EncodedResource:
    """A resource of a request, decoded when it is first needed."""

    __slots__ = ("_decoded", "encoded")

    def __init__(self, encoded: bytes) -> None:
        self.encoded = encoded
        self._decoded: Resource | None = None

    @property
    def decoded_resource(self) -> Resource:
        """Return the decoded resource. Raises DecodeError or UnicodeDecodeError."""
        if self._decoded is None:
            self._decoded = protobuf_decoder.decode_resource(self.encoded)
        return self._decoded


class _Known(NamedTuple):
    """
    What is stored about a context (a resource with a scope): its number, the resource's texts that may differ
    under this number, the number of tags dropped from the resource, and the sender version.
    """

    number: int
    texts: tuple[str, ...]
    left_out: int
    version: str


class SpanContext:
    """
    Resource and scope of consecutive spans. `number` identifies them in the span memory, or is 0 if their
    spans are not looked up there. `texts` are the resource's texts that may differ under this number.
    """

    __slots__ = ("_scope", "encoded_scope", "left_out", "number", "of", "texts", "version")

    def __init__(self, known: _Known, of: EncodedResource, encoded_scope: bytes) -> None:
        self.number, self.texts, self.left_out, self.version = known
        self.of = of
        self.encoded_scope = encoded_scope
        self._scope: Scope | None = None

    @property
    def resource(self) -> Resource:
        return self.of.decoded_resource

    @property
    def scope(self) -> Scope:
        if self._scope is None:
            self._scope = protobuf_decoder.decode_scope(self.encoded_scope)
        return self._scope


class SpanContexts:
    """
    The numbers of known contexts (a resource with a scope). A number is never used again, because a body that
    is half read may still use numbers of forgotten contexts.
    """

    def __init__(self, memory: KnownItemKinds, forget: Callable[[], None]) -> None:
        """Create the table. `forget` is called when it is full, and must call `forget_contexts`."""
        self._memory = memory
        self._forget = forget
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._known: dict[bytes, _Known] = {}
        self._last = 0
        self._read = {*OF_RESOURCE}  # names of the resource attributes that the rules read

    def forget_contexts(self) -> None:
        self._numbers.clear()
        self._known.clear()

    def find_or_add_context(
        self, resource: EncodedResource, scope: bytes, options: ReadOptions
    ) -> SpanContext:
        """
        Return the context of spans, and number it if it is new. Raises DecodeError or UnicodeDecodeError.
        """
        encoded = resource.encoded
        hash = blake2b(encoded, digest_size=16, salt=len(encoded).to_bytes(8))
        hash.update(scope)
        digest = hash.digest()
        known = self._known.get(digest)
        if known is None:
            decoded = resource.decoded_resource
            decoded_scope = protobuf_decoder.decode_scope(scope)
            number, texts = self.find_or_assign_context_number(decoded, decoded_scope)
            version = version_of_sender(decoded, decoded_scope)
            known = _Known(number, texts, _count_left_out_of_resource(decoded, options), version)
            if len(self._known) >= MOST_CONTEXTS:
                remove_oldest_eighth(self._known)
            self._known[digest] = known
        return SpanContext(known, resource, scope)

    def find_or_assign_context_number(self, resource: Resource, scope: Scope) -> tuple[int, tuple[str, ...]]:
        """
        Return the number of a context (resource and scope) in the span memory, and the resource's texts that
        may differ under this number. The number is 0 if the context is too large to remember.
        """
        attributes = resource.attributes
        fixed = [scope.name, scope.version]
        fixed += [attributes[name] for name in attributes if name in self._read and name not in OF_RESOURCE]
        varying = varying_resource_texts(attributes, fixed)
        read = tuple(
            [
                (name, "" if name in varying else repr(attributes[name]))
                for name in attributes
                if name in self._read
            ]
        )
        key = (tuple(attributes), read, scope.name, scope.version)
        number = self._numbers.get(key)
        if number is None:
            size = sum(map(len, attributes)) + sum(len(text) for _, text in read) + len(scope.name)
            if size > _LARGEST_CONTEXT:
                return 0, ()
            if len(self._numbers) >= MOST_CONTEXTS:
                self._forget()
            self._last += 1
            number = self._numbers[key] = self._last
            fixed += [attributes[name] for name in OF_RESOURCE if name in attributes and name not in varying]
            self._memory.context(number, [text.encode() for text in fixed if type(text) is str])
        return number, tuple(varying.values())

    def add_distinguishing_attributes(self, attribute_names: set[str]) -> bool:
        """
        Let further resource attributes distinguish contexts (resource and scope), and forget the contexts
        that have them. Return False if all of `attribute_names` already did.
        """
        new = attribute_names - self._read
        self._read |= new
        for key in [key for key in self._numbers if not new.isdisjoint(key[0])]:
            del self._numbers[key]
        self._known.clear()
        return bool(new)


def _count_left_out_of_resource(resource: Resource, options: ReadOptions) -> int:
    outcome = ReadOutcome(keep_tags=options.keep_tags)
    Senders(outcome, options).set_current_resource(resource)
    return outcome.left_out
