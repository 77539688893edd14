"""The memory for bodies is shared fairly between keys, so that no key locks out another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from gateway.core.errors import Refusal
from gateway.http.inflight_bytes import InflightBytes, RequestByteReservation


class Senders:
    """Requests of several keys, and a list of the uploads that the gateway ended early."""

    def __init__(self, limit: int, *, reserve: int = 0, small: int = 0) -> None:
        self.inflight = InflightBytes(limit, reserve=reserve, small=small)
        self.cut: list[str] = []
        self.stack = ExitStack()

    def ask(self, key: str, n: int, *, arrived: bool = False) -> RequestByteReservation:
        share = self.stack.enter_context(self.inflight.new_share(key))
        share.reserve_bytes(n)
        if not arrived:
            self.stack.enter_context(share.allow_cutoff_during_upload(lambda: self.cut.append(key)))
        return share


@pytest.fixture
def senders() -> Iterator[Senders]:
    made = Senders(100)
    with made.stack:
        yield made
    assert 0 == made.inflight.held_bytes


def test_key_may_use_all_memory_while_it_is_free(senders: Senders) -> None:
    """While memory is free, one key may use all of it."""
    for _ in range(10):
        senders.ask("large", 10)
    assert senders.inflight.held_bytes == 100
    assert senders.cut == []
    with pytest.raises(Refusal, match="in flight"):
        senders.ask("large", 1)


def test_an_upload_over_the_share_is_cut_for_another_key(senders: Senders) -> None:
    """
    A key that holds more than half yields to a key that needs at most half. The cut upload gets 503 and may repeat.
    """
    large = senders.ask("large", 100)
    senders.ask("other", 50)
    assert ["large"] == senders.cut
    with pytest.raises(Refusal) as refused:
        large.reserve_bytes(1)
    assert refused.value.status == 503
    assert refused.value.retry_after_s == 1
    assert 50 == senders.inflight.held_bytes


def test_a_key_within_its_share_loses_nothing(senders: Senders) -> None:
    """With two keys, half of the bytes are safe for each. Only the necessary uploads are cut."""
    for _ in range(3):
        senders.ask("large", 20)
    senders.ask("steady", 40)
    with pytest.raises(Refusal):
        senders.ask("third", 60)  # this request is more than a third of the limit
    senders.ask("third", 20)
    assert ["large"] == senders.cut


def test_shares_shrink_with_the_number_of_keys(senders: Senders) -> None:
    senders.ask("first", 50)
    senders.ask("second", 50)
    senders.ask("third", 33)
    assert 1 == len(senders.cut)


def test_a_body_that_has_arrived_is_never_cut(senders: Senders) -> None:
    """
    A complete body is never discarded for another key, because it is already being processed. The other key
    gets 503 and repeats. Small bodies are accepted in any case.
    """
    senders.ask("large", 100, arrived=True)
    with pytest.raises(Refusal):
        senders.ask("other", 10)
    assert [] == senders.cut


def test_small_bodies_are_held_in_the_reserve() -> None:
    """While arrived bodies use all bytes, a small body of any key is accepted, and a larger one is not."""
    senders = Senders(100, reserve=16, small=4)
    with senders.stack:
        senders.ask("large", 100, arrived=True)
        senders.ask("other", 4)
        with pytest.raises(Refusal):
            senders.ask("other", 5)
        growing = senders.ask("third", 4)
        with pytest.raises(Refusal):
            growing.reserve_bytes(1)
        assert senders.inflight.general.held == 100
        assert senders.inflight.reserve.held == 8
    assert 0 == senders.inflight.held_bytes


def test_no_key_gets_more_of_the_reserve_than_it_leaves_free() -> None:
    """Each key leaves as much of the reserve free as it uses, so there is always space for another key."""
    senders = Senders(1, reserve=64, small=1)
    with senders.stack:
        senders.ask("large", 1, arrived=True)
        held = {}
        for key in ("a", "b", "c"):
            held[key] = 0
            with pytest.raises(Refusal):
                for _ in range(65):
                    senders.ask(key, 1)
                    held[key] += 1
        assert {"a": 32, "b": 16, "c": 8} == held
        senders.ask("d", 1)


def test_a_small_body_that_grows_moves_to_the_general_pool() -> None:
    """The reserve holds only small bodies. Bytes are counted once, whichever pool holds them."""
    senders = Senders(10, reserve=8, small=4)
    with senders.stack:
        first = senders.ask("first", 10)
        growing = senders.ask("second", 3)
        assert senders.inflight.reserve is growing.pool
        first.release_bytes(10)
        growing.reserve_bytes(2)
        assert senders.inflight.general.held == 5
        assert senders.inflight.reserve.held == 0


def test_every_upload_can_be_ended(senders: Senders) -> None:
    """A stop ends all unfinished uploads. Complete bodies are still processed."""
    senders.ask("a", 10)
    senders.ask("b", 10, arrived=True)
    senders.inflight.cut_uploads(Refusal(503, "stopping", "stopping"))
    assert senders.cut == ["a"]
    assert senders.inflight.held_bytes == 10
