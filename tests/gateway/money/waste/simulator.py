"""
A provider's cache that knows the content of every call, and clients that break, pause, switch, prune, fail and repeat.

The amounts that it expects come from the content, and from prices that are written here. The rule sees only counts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

from gateway.money.waste.lane import Lane
from spool.record import Inference
from tests.gateway.money.waste.examples import call

SONNET, OPUS, GPT = "claude-sonnet-4-5", "claude-opus-4-5", "gpt-4o"
# dollars per million tokens: input, written, written for an hour, read, output
PRICES = {
    SONNET: ("3", "3.75", "6", "0.3", "15"),
    OPUS: ("5", "6.25", "10", "0.5", "25"),
    GPT: ("2.5", "0", "0", "1.25", "10"),
}
FIVE_MINUTES, HOUR = 300, 3600

Block = tuple[int, int]  # a number that stands for the content, and its tokens
Amounts = dict[str, Decimal]


@dataclass(slots=True)
class Entry:
    """A prefix of some content in the cache."""

    lifetime: int
    used: float


class ContentCache:
    """A cache by key, model and content. Every end of a block is a place up to which a later call may read."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str, tuple[Block, ...]], Entry] = {}

    def alive(self, key: str, model: str, blocks: Sequence[Block], at: float) -> int:
        """Return the number of tokens of some content that are in the cache at a time."""
        tokens = 0
        for end in range(1, len(blocks) + 1):
            entry = self._entries.get((key, model, tuple(blocks[:end])))
            if entry is None or at > entry.used + entry.lifetime:
                break
            tokens += blocks[end - 1][1]
        return tokens

    def use(self, key: str, model: str, blocks: Sequence[Block], at: float, lifetimes: Sequence[int]) -> int:
        """Read what is alive, renew it, write the rest, and return the tokens read."""
        read = self.alive(key, model, blocks, at)
        size = 0
        for end in range(1, len(blocks) + 1):
            size += blocks[end - 1][1]
            place = (key, model, tuple(blocks[:end]))
            if size <= read:
                self._entries[place].used = at
            else:
                self._entries[place] = Entry(lifetimes[end - 1], at)
        return read


@dataclass(slots=True, kw_only=True)
class Sent:
    """A call as its client knows it."""

    record: Inference
    blocks: list[Block]
    model: str
    at: float
    cached: int  # tokens of the content in the cache after the call


@dataclass(slots=True, kw_only=True)
class Session:
    """The calls of all lanes of a session, and the amount of each class of each call."""

    lanes: dict[Lane | None, list[Inference]] = field(default_factory=dict)
    expected: dict[bytes, Amounts] = field(default_factory=lambda: defaultdict(dict))


class Client:
    """Makes the lanes of one session. `tricks` are what its clients may do wrong, or choose."""

    def __init__(self, random: Random, tricks: Sequence[str], *, lifetime: str) -> None:
        self._random, self._tricks, self._lifetime = random, tricks, lifetime
        self._cache = ContentCache()
        self._content = 0
        self.session = Session()

    def block(self, least: int = 100, most: int = 6_000) -> Block:
        self._content += 1
        return (self._content, self._random.randint(least, most))

    def _chance(self, trick: str, share: float) -> bool:
        return trick in self._tricks and self._random.random() < share

    def _gap(self, *, is_sure: bool) -> float:
        """Choose a pause that no lifetime leaves in doubt. `is_sure`: also none that is not stated."""
        if not self._chance("pause", 0.15):
            return self._random.uniform(0, 270)
        return (
            self._random.uniform(3_700, 9_000)
            if is_sure or self._random.random() < 0.5
            else self._random.uniform(330, 3_000)
        )

    def _lifetimes(self, blocks: Sequence[Block]) -> list[int]:
        """The first block, the system prompt, may be cached for an hour, and the rest for five minutes."""
        first = HOUR if self._lifetime in ("hour", "mixed", "unstated") else FIVE_MINUTES
        rest = HOUR if self._lifetime in ("hour", "unstated") else FIVE_MINUTES
        return [first] + [rest] * (len(blocks) - 1)

    def _send(self, lane: Lane, key: str, model: str, blocks: list[Block], at: float, **fields: Any) -> Sent:
        lifetimes = self._lifetimes(blocks)
        size = sum(tokens for _, tokens in blocks)
        rest = self._random.randint(0, 50)  # the end of the input is not cached
        read = self._cache.use(key, model, blocks, at, lifetimes)
        hour = max(
            0, sum(tokens for (_, tokens), life in zip(blocks, lifetimes, strict=True) if life == HOUR) - read
        )
        fields = {"cache_write_1h_tokens": None if self._lifetime == "unstated" else hour, **fields}
        record = call(
            at, size + fields.pop("rest", rest), read, size - read,
            request_model=model, response_model=model, api_key=key, **fields,
        )  # fmt: skip
        self.session.lanes.setdefault(lane, []).append(record)
        return Sent(record=record, blocks=list(blocks), model=model, at=at, cached=size)

    def conversation(
        self, lane: Lane, key: str, at: float, calls: int, system: Block, *, is_shared: bool
    ) -> None:
        """Make a growing conversation. If its system prompt `is_shared`, other lanes may have cached it."""
        random, model = self._random, SONNET
        blocks = [system, self.block()]
        is_sure = is_shared or self._lifetime == "unstated" or "switch" in self._tricks
        last = self._send(lane, key, model, blocks, at)
        for number in range(1, calls):
            at = (
                last.at
                + 5
                + (random.uniform(0, 270) if is_shared and number == 1 else self._gap(is_sure=is_sure))
            )
            may_act = not is_shared or number > 1
            if may_act and self._chance("fail", 0.1):
                last = self._repeat(lane, key, last, blocks)
                continue
            blocks = [*blocks, *(self.block() for _ in range(random.randint(1, 2)))]
            if may_act and self._chance("switch", 0.1):
                model = OPUS if model == SONNET else SONNET
            if may_act and self._chance("prune", 0.1) and len(blocks) > 4:
                blocks = [*blocks[: random.randint(1, 2)], *blocks[len(blocks) // 2 + 1 :]]
            elif may_act and self._chance("break", 0.15):
                place = random.randint(1 if is_shared else 0, len(blocks) - 2)
                self._content += 1
                blocks = [*blocks[:place], (self._content, blocks[place][1]), *blocks[place + 1 :]]
            alive = self._cache.alive(key, last.model, last.blocks, at)
            sent = self._send(lane, key, model, blocks, at)
            self._expect_again(last, sent, alive)
            last = sent
        self._expect_unread(lane)

    def _repeat(self, lane: Lane, key: str, last: Sent, blocks: list[Block]) -> Sent:
        """Send a call whose answer is lost or fails, then the same again."""
        fails = self._random.random() < 0.5
        named: dict[str, Any] = {"status": "error", "output_tokens": 0} if fails else {}
        blocks += [self.block()]
        at = last.at + 6
        alive = self._cache.alive(key, last.model, last.blocks, at)
        lost = self._send(lane, key, last.model, blocks, at, rest=7, **named)
        again = self._send(lane, key, last.model, blocks, at + 5 + self._random.uniform(0, 59), rest=7)
        self._expect_again(last, lost, alive)
        price = _prices(last.model)
        record, expected = lost.record, self.session.expected[lost.record.id]
        hour = record.cache_write_1h_tokens or 0
        used = hour * (price[2] - price[3]) + ((record.cache_write_tokens or 0) - hour) * (
            price[1] - price[3]
        )
        expected["repeated"] = Decimal(record.estimated_cost or 0) - used
        return again

    def _expect_again(self, last: Sent, sent: Sent, alive: int) -> None:
        record, expected = sent.record, self.session.expected[sent.record.id]
        read = record.cache_read_tokens or 0
        grows = (record.input_tokens or 0) >= (last.record.input_tokens or 0)
        if grows and last.model == sent.model:
            moves = [("break", alive - read), ("pause", last.cached - max(alive, read))]
        else:
            least = min(last.cached, record.input_tokens or 0)
            moves = [("model_switch" if grows else "shortened", least - read)]
        price = _prices(sent.model)
        hour, written = record.cache_write_1h_tokens or 0, record.cache_write_tokens or 0
        plain = (record.input_tokens or 0) - read - written
        paid = [(hour, price[2]), (written - hour, price[1]), (plain, price[0])]
        for name, tokens in moves:
            for place, (count, each) in enumerate(paid):
                moved = max(0, min(tokens, count))
                tokens -= moved
                paid[place] = (count - moved, each)
                expected[name] = expected.get(name, Decimal(0)) + moved * (each - price[3])

    def _expect_unread(self, lane: Lane) -> None:
        """A lane that never read what it wrote. What it paid again is not unread as well."""
        calls = self.session.lanes[lane]
        if any(one.cache_read_tokens for one in calls[1:]):
            return
        for one in calls:
            price, written = _prices(one.request_model or ""), one.cache_write_tokens or 0
            hour = one.cache_write_1h_tokens or 0
            expected = self.session.expected[one.id]
            whole = hour * (price[2] - price[0]) + (written - hour) * (price[1] - price[0])
            again = sum(
                expected.get(name, Decimal(0)) for name in ("break", "pause", "model_switch", "shortened")
            )
            if not again:
                expected["unread"] = whole
                continue
            # tokens that were paid again left the hour's part first, at the price of reads
            left_hour, left = hour, written
            for tokens, each in ((hour, price[2]), (written - hour, price[1])):
                moved = min(tokens, int(again / (each - price[3]))) if tokens else 0
                again -= moved * (each - price[3])
                left -= moved
                left_hour -= moved if each == price[2] else 0
            expected["unread"] = left_hour * (price[2] - price[0]) + (left - left_hour) * (
                price[1] - price[0]
            )

    def workers(self, key: str, at: float, number: int) -> None:
        """Make lanes of one call each, such as titles, that share a system prompt. Nobody reads what follows it."""
        system = self.block(2_000, 4_000)
        for each in range(number):
            blocks = [system, self.block()]
            lane = ("worker", key, str(each))
            sent = self._send(lane, key, SONNET, blocks, at + each * 40)
            record, price = sent.record, _prices(SONNET)
            hour = record.cache_write_1h_tokens or 0
            is_read = each > 0 or number > 1
            hour_left = max(0, hour - (system[1] if is_read and not each else 0))
            rest = (record.cache_write_tokens or 0) - (system[1] if is_read and not each else 0) - hour_left
            self.session.expected[record.id]["unread"] = hour_left * (price[2] - price[0]) + rest * (
                price[1] - price[0]
            )

    def uncached(self, lane: Lane, at: float, calls: int) -> None:
        """Make a conversation that caches nothing. A content cache of its own tells what caching would have saved."""
        blocks, cache, price = [self.block(4_200, 9_000)], ContentCache(), _prices(SONNET)
        total = best = Decimal(0)
        for _ in range(calls):
            size = sum(tokens for _, tokens in blocks)
            record = call(at, size, 0, 0, request_model=SONNET, response_model=SONNET, api_key=str(lane))
            self.session.lanes.setdefault(lane, []).append(record)
            read = cache.use("", SONNET, blocks, at, [FIVE_MINUTES] * len(blocks))
            total += read * (price[0] - price[3]) - (size - read) * (price[1] - price[0])
            self.session.expected[record.id]["uncached"] = max(total - best, Decimal(0))
            best = max(best, total)
            at += 5 + self._gap(is_sure=True)
            blocks = [*blocks, self.block()]

    def automatic(self, lane: Lane, at: float, calls: int) -> None:
        """Make a conversation with a provider that caches by itself, and may lose what it cached."""
        size, before, started = self._random.randint(500, 3_000), 0, at
        for _ in range(calls):
            held = before // 128 * 128 if before >= 1024 else 0
            is_lost = self._chance("miss", 0.2)
            read = self._random.randrange(held // 128 + 1) * 128 if is_lost else held
            record = call(at, size, read, None, provider="openai", request_model=GPT, response_model=GPT)
            self.session.lanes.setdefault(lane, []).append(record)
            if at - started <= 300:
                price = _prices(GPT)
                self.session.expected[record.id]["missed"] = (held - read) * (price[0] - price[3])
            started, before = at, size
            at += 5 + self._gap(is_sure=True)
            size += self._random.randint(1, 3_000)


def _prices(model: str) -> list[Decimal]:
    return [Decimal(each) / 1_000_000 for each in PRICES[model]]


TRICKS = ("break", "pause", "switch", "prune", "fail", "miss")


def random_session(seed: int, tricks: Sequence[str] = TRICKS, *, lifetime: str | None = None) -> Session:
    """Make a session of a main agent, sub-agents, titles, and other programs. All start within an hour."""
    random = Random(seed)
    client = Client(random, tricks, lifetime=lifetime or random.choice(("five", "hour", "mixed", "unstated")))
    client.conversation(
        ("main",), "main", 0, random.randint(2, 12), client.block(2_000, 9_000), is_shared=False
    )
    agent = client.block(2_000, 9_000)
    for number in range(random.randint(0, 3)):
        client.conversation(
            ("agent", str(number)),
            "agents",
            number * 9_999 + random.uniform(0, 999),
            random.randint(2, 6),
            agent,
            is_shared=True,
        )
    if tricks:
        client.workers("titles", random.uniform(0, 3_000), random.randint(1, 4))
        client.uncached(("uncached",), random.uniform(0, 3_000), random.randint(1, 6))
    client.automatic(("automatic",), random.uniform(0, 3_000), random.randint(1, 6))
    return client.session
