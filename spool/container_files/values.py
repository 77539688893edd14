"""The values that describe files, remote-write bodies and statuses of container metrics."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from spool.log.partial_reports import ExpectedVersion

FILE, REMOTE_WRITE, STATUS = "file", "remote-write", "status"
KINDS = (FILE, REMOTE_WRITE, STATUS)

# States of a file.
ANNOUNCED = "announced"  # state: an upload address was issued
UNUSED = "unused"  # state: the address expired without an upload
UPLOADED = "uploaded"  # state: stored, and waits for delivery
DELIVERED = "delivered"
# state: the sender no longer has the file, or the cost service requested an unknown file
ABANDONED = "abandoned"
DAMAGED = "damaged"  # state: the bytes are lost, so the sender is asked again
EXPIRED = "expired"  # state: deleted after the retention because no cost service received it
DISCARDED = "discarded"  # state: given up by an operator before delivery
STATES = (ANNOUNCED, UNUSED, UPLOADED, DELIVERED, ABANDONED, DAMAGED, EXPIRED, DISCARDED)
OPEN_STATES = (ANNOUNCED, UPLOADED)

# Further accounting terms.
REFERENCES = "references"  # all files ever named: those in each state, and `superseded`
SUPERSEDED = "superseded"  # term: statuses that a newer one replaced before delivery
REPLAYED = "replayed"  # delivered again on request; not part of REFERENCES
SUMMED = (*STATES, SUPERSEDED)


@dataclass(frozen=True, slots=True, order=True)
class ClusterIdentity:
    account: str
    region: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnnouncedFile:
    reference: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSender:
    """
    The sender of a file: its key's name, and the agent's name and version as reported.

    `expects`: a write is refused if another process has ended the key.
    """

    key: str
    shipper: str = ""
    agent_version: str = ""
    expects: tuple[ExpectedVersion, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFile:
    """
    The row of one file, remote-write body or status. `kept`: its bytes are stored. `asked`: it must be
    uploaded or delivered again. `untold`: the cost service must be informed that it is abandoned. `request`:
    path and headers of a remote-write body.
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
    problem: str | None = None  # why the file was not sent yet, or why it is abandoned
    body: bytes = field(default=b"", repr=False)  # content, only of a status

    @property
    def identity(self) -> ClusterIdentity:
        return ClusterIdentity(self.account, self.region, self.cluster)

    @property
    def is_due(self) -> bool:
        return self.state == UPLOADED or (self.asked and self.kept)

    @property
    def is_missing(self) -> bool:
        """Return whether the bytes must still be uploaded."""
        return self.state in (ANNOUNCED, UNUSED) or (self.asked and not self.kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCountChange:
    """
    A change of one running count by `n`. `carried`: the change of its part that belongs to deleted rows.
    """

    kind: str
    term: str
    n: int
    carried: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerAccounting:
    """
    The recounted accounting terms by kind. `imbalances`: a sentence for each running count that differs.
    """

    terms: Mapping[str, Mapping[str, int]]
    imbalances: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingFiles:
    """The files that wait for delivery. `oldest`: when the first of them was uploaded, or None."""

    files: int
    bytes: int
    oldest: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerFileSums:
    """
    Sums over the files of one key and cluster.

    `open`: the number of rows that wait for delivery. `waiting_bytes`: their bytes, which are part of
    `bytes`.
    """

    identity: ClusterIdentity
    key: str
    open: int
    bytes: int
    waiting_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFiles:
    identity: ClusterIdentity
    waiting: int
    bytes: int
    newest: float | None


# -- first line of a stored file: a copy of its row
# ------------------------------------------------------------


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
    """Encode the row of a file as one JSON line, without size and checksum."""
    known = asdict(file)
    return json.dumps({name: known[name] for name in _NAMES}, separators=(",", ":")).encode() + b"\n"


def decode_head(head: bytes) -> ContainerFile | None:
    """
    Return the file that a line of `encode_head` describes, or None if the line is invalid. The line has no
    size and no checksum.
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
