"""What is kept of container metrics: files of a cluster's agent, bodies of remote write, and newest statuses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from spool.log.partial_reports import Expectation

# Kinds.
FILE, REMOTE_WRITE, STATUS = "file", "remote-write", "status"
KINDS = (FILE, REMOTE_WRITE, STATUS)

# States. A row that was forgotten keeps its place in the books.
ANNOUNCED = "announced"  # its address was given out
UNUSED = "unused"  # the address was not used in time
UPLOADED = "uploaded"  # on disk, and waits for the upstream
DELIVERED = "delivered"
ABANDONED = "abandoned"  # the sender does not have it any more, or it was asked for and is unknown here
DAMAGED = "damaged"  # what was on disk is gone or is not what was received; the sender is asked for it
EXPIRED = "expired"  # kept for its time without an upstream
DISCARDED = "discarded"  # given up by an operator
STATES = (ANNOUNCED, UNUSED, UPLOADED, DELIVERED, ABANDONED, DAMAGED, EXPIRED, DISCARDED)
OPEN_STATES = (ANNOUNCED, UPLOADED)

# Terms of the books beside the states.
REFERENCES = "references"  # all that were ever named: the sum of the states and `superseded`
SUPERSEDED = "superseded"  # statuses that a newer one replaced before they left
REPLAYED = "replayed"  # files that were delivered again because the upstream asked; no part of the sum
SUMMED = (*STATES, SUPERSEDED)


@dataclass(frozen=True, slots=True, order=True)
class ClusterIdentity:
    """How a cluster is known."""

    account: str
    region: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedFile:
    """What a sender tells of a file before it sends it."""

    reference: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSender:
    """
    Who sends: the name of the key, and what the agent says of itself.

    `expects`: what it brings is kept only while the key is good, where other processes may end it.
    """

    key: str
    shipper: str = ""
    agent_version: str = ""
    expects: tuple[Expectation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFile:
    """
    One row. `kept`: its bytes are here; `asked`: it is wanted again, by the upstream or because it was damaged.

    `untold`: the upstream is still to hear that it is abandoned. `request` is what a body needs to be sent
    as it came.
    """

    id: str
    kind: str
    account: str
    region: str
    cluster: str
    reference: str
    key: str
    shipper: str = ""
    agent_version: str = ""
    state: str = ANNOUNCED
    request: str = ""
    announced_size: int | None = None
    announced_sha256: str | None = None
    size: int = 0
    sha256: str = ""
    kept: bool = False
    asked: bool = False
    untold: bool = False
    announced_at: float
    expires_at: float = 0.0
    uploaded_at: float | None = None
    done_at: float | None = None
    not_before: float = 0.0
    problem: str | None = None  # why it did not leave yet, or why it was abandoned
    body: bytes = field(default=b"", repr=False)  # of a status

    @property
    def identity(self) -> ClusterIdentity:
        return ClusterIdentity(self.account, self.region, self.cluster)

    @property
    def is_due(self) -> bool:
        """True if the file is to be sent to the upstream."""
        return self.state == UPLOADED or (self.asked and self.kept)

    @property
    def is_missing(self) -> bool:
        """True if the upload of the file's bytes is awaited."""
        return self.state in (ANNOUNCED, UNUSED) or (self.asked and not self.kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class BookChange:
    """What a transaction adds to a term, and how much of that no row shows any more."""

    kind: str
    term: str
    n: int
    carried: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerBooks:
    """By kind, the number of every term. `imbalances` are sentences; the books balance when there is none."""

    terms: Mapping[str, Mapping[str, int]]
    imbalances: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFiles:
    """What waits for the upstream; `oldest` is when the first of it came, None if nothing waits."""

    files: int
    bytes: int
    oldest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFiles:
    """
    What one key brought of one cluster.

    `open` rows wait for something; of the `bytes` that are here `waiting_bytes` wait for the upstream.
    """

    identity: ClusterIdentity
    key: str
    open: int
    bytes: int
    waiting_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFiles:
    """What is kept of one cluster."""

    identity: ClusterIdentity
    waiting: int
    bytes: int
    newest: float | None


# -- the line before the bytes of a kept file: what its row says, for the case that the row is lost ----------


_NAMES = (
    "id",
    "kind",
    "account",
    "region",
    "cluster",
    "reference",
    "key",
    "shipper",
    "agent_version",
    "request",
    "announced_at",
)
MAX_HEAD_BYTES = 64 * 1024


def head_of(file: ContainerFile) -> bytes:
    """Write the head of a file as one line, with its end."""
    known = asdict(file)
    return json.dumps({name: known[name] for name in _NAMES}, separators=(",", ":")).encode() + b"\n"


def file_of(head: bytes) -> ContainerFile | None:
    """The row that a head tells of, without what is known of the bytes; None if it is none."""
    try:
        told = json.loads(head)
        at = float(told.pop("announced_at"))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    texts = set(_NAMES) - {"announced_at"}
    if set(told) != texts or not all(isinstance(value, str) for value in told.values()):
        return None
    return ContainerFile(**told, announced_at=at)
