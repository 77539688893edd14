"""What passes between the server and a worker, both ways over one socket: a head, then so many bytes."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import Final, NamedTuple

HEAD: Final = Struct("<IBI")  # bytes of the payload, kind, number of the job
PIECE: Final = 4096  # rows of a list that one message holds: some milliseconds of the event loop


class MessageKind(IntEnum):
    """The kinds of messages."""

    # To a worker. Jobs are done in their order.
    OPTIONS = 1  # of the normaliser, for the jobs that follow
    READER = 2  # of the bodies that follow: `SentBody.reader`
    DECODE = 3  # a body as it is: one of 64 MiB is not copied to be read
    ENCODE = 4
    GO_ON = 5  # the answer to HOLD
    GIVE_UP = 6  # or this
    # From a worker.
    READY = 10
    HOLD = 11  # the job needs memory: the worker waits for the answer
    TURN = 12  # the job goes on
    PART = 13  # finished records, packed
    ROWS = 14  # a piece of the result's lists
    DONE = 15  # the rest of the result
    REFUSED = 16  # the sender's fault
    FAILED = 17  # any other error: the server does the job itself
    GIVEN_UP = 18


class WorkerMessage(NamedTuple):
    kind: int
    job: int
    payload: bytes


class MessageReader:
    """Messages out of what arrives, in pieces of any size."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[WorkerMessage]:
        """The messages that are whole by now."""
        rest = self._rest
        rest += data
        messages: list[WorkerMessage] = []
        at, end = 0, len(rest)
        with memoryview(rest) as view:
            while end - at >= HEAD.size:
                size, kind, job = HEAD.unpack_from(view, at)
                begin = at + HEAD.size
                if end - begin < size:
                    break
                at = begin + size
                messages.append(WorkerMessage(kind, job, bytes(view[begin:at])))
        del rest[:at]
        return messages
