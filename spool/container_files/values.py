"""Values of container metrics: files of a cluster's agent, remote-write bodies, and newest statuses."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from spool.log.partial_reports import Expectation

# Kinds of container metrics: files, remote-write bodies and statuses.
FILE, REMOTE_WRITE, STATUS = "file", "remote-write", "status"
KINDS = (FILE, REMOTE_WRITE, STATUS)

# States of a file. A deleted row stays counted in the accounting.
ANNOUNCED = "announced"  # an upload address was issued for the file, and no bytes have arrived
UNUSED = "unused"  # the upload address expired before any upload
UPLOADED = "uploaded"  # bytes are stored, and the file waits for delivery
DELIVERED = "delivered"
# the sender no longer has the file, or the cost service requested a file that is unknown here
ABANDONED = "abandoned"
DAMAGED = "damaged"  # the stored bytes are lost or damaged, so the sender is asked to send the file again
EXPIRED = "expired"  # deleted after the retention time, because no cost service is configured
DISCARDED = "discarded"  # an operator discarded the file, so it is not delivered
STATES = (ANNOUNCED, UNUSED, UPLOADED, DELIVERED, ABANDONED, DAMAGED, EXPIRED, DISCARDED)
OPEN_STATES = (ANNOUNCED, UPLOADED)

# Terms of the accounting in addition to the states.
REFERENCES = "references"  # all files ever named, which is the sum of the states and `superseded`
SUPERSEDED = "superseded"  # statuses that a newer one replaced before delivery
REPLAYED = "replayed"  # files delivered again on request; not part of the sum
SUMMED = (*STATES, SUPERSEDED)


@dataclass(frozen=True, slots=True, order=True)
class ClusterIdentity:
    """The ids of a cluster."""

    account: str
    region: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedFile:
    """Announcement of a file before its upload."""

    reference: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSender:
    """
    Sender of files: the name of its key, and what the agent reports about itself.

    `expects` are conditions under which its files are stored. They fail if another process has ended the key.
    """

    key: str
    shipper: str = ""
    agent_version: str = ""
    expects: tuple[Expectation, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFile:
    """
    One row. `kept`: the bytes of the file are stored. `asked`: the file is requested again, by the cost
    service or because of damage.

    `untold`: the cost service must still be informed that the file is abandoned. `request`: the path and
    headers that are needed to send a remote-write body as it was received.
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
    problem: str | None = None  # why it was not sent yet, or why it was abandoned
    body: bytes = field(default=b"", repr=False)  # content of a status

    @property
    def identity(self) -> ClusterIdentity:
        return ClusterIdentity(self.account, self.region, self.cluster)

    @property
    def is_due(self) -> bool:
        """Return True if the file must be sent."""
        return self.state == UPLOADED or (self.asked and self.kept)

    @property
    def is_missing(self) -> bool:
        """Return True if the file's bytes must still be uploaded."""
        return self.state in (ANNOUNCED, UNUSED) or (self.asked and not self.kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class BookChange:
    """Change of a term's count. `carried` is the part of the change that belongs to deleted rows."""

    kind: str
    term: str
    n: int
    carried: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerBooks:
    """Count of every accounting term, by kind. `imbalances` has one sentence for each difference."""

    terms: Mapping[str, Mapping[str, int]]
    imbalances: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFiles:
    """
    Files that wait for delivery. `oldest` is the earliest upload time among them, None if no file waits.
    """

    files: int
    bytes: int
    oldest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldFiles:
    """
    Sums of the files that one key sent for one cluster.

    `open` counts the rows that wait, `bytes` the stored bytes, and `waiting_bytes` the stored bytes that
    wait for delivery.
    """

    identity: ClusterIdentity
    key: str
    open: int
    bytes: int
    waiting_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFiles:
    """Stored files of one cluster."""

    identity: ClusterIdentity
    waiting: int
    bytes: int
    newest: float | None


# -- first line of a stored file: a copy of the file's row, in case the row is lost --------------------------


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


def encode_head(file: ContainerFile) -> bytes:
    """Encode the metadata of a file as one line of JSON, which precedes the file's bytes."""
    known = asdict(file)
    return json.dumps({name: known[name] for name in _NAMES}, separators=(",", ":")).encode() + b"\n"


def decode_head(head: bytes) -> ContainerFile | None:
    """
    Restore a row from a head, without size and checksum of the bytes. Return None if the head is invalid.
    """
    try:
        facts = json.loads(head)
        at = float(facts.pop("announced_at"))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    texts = set(_NAMES) - {"announced_at"}
    if set(facts) != texts or not all(isinstance(value, str) for value in facts.values()):
        return None
    return ContainerFile(**facts, announced_at=at)
