"""The device's id and fingerprint, created once and stored in the agent's data directory."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
from dataclasses import dataclass, field
from pathlib import Path

from spool.devices.device import is_device_id
from spool.disks import replace_file

FILE = "device.json"
KEY_FILE = "device.key"
_STRANGE = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceIdentity:
    """The identity of a device. The fingerprint distinguishes this machine from others with the same id."""

    device_id: str
    fingerprint: str = field(repr=False)


def load_or_create_identity(directory: Path, *, device_id: str = "") -> DeviceIdentity:
    """
    Return the stored identity, or create one. A given `device_id` replaces the stored id. Raises OSError if
    the stored identity is damaged.
    """
    path = directory / FILE
    try:
        document = json.loads(path.read_text("utf-8"))
        stored = DeviceIdentity(
            device_id=str(document["device_id"]), fingerprint=str(document["fingerprint"])
        )
        if not is_device_id(stored.device_id):
            raise ValueError(stored.device_id)
    except FileNotFoundError:
        stored = DeviceIdentity(
            device_id=device_id or _generate_device_id(), fingerprint=secrets.token_hex(16)
        )
    except (ValueError, KeyError, TypeError) as error:
        raise OSError(
            f"{path} is damaged: restore it, or delete it to make this machine a new device"
        ) from error
    chosen = DeviceIdentity(device_id=device_id or stored.device_id, fingerprint=stored.fingerprint)
    text = json.dumps({"device_id": chosen.device_id, "fingerprint": chosen.fingerprint}) + "\n"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not path.exists() or path.read_text("utf-8") != text:
        write_private_file(path, text)
    return chosen


def write_private_file(path: Path, text: str) -> None:
    """Write a file with mode 0600 by renaming a draft. A crash leaves either the old or the new content."""
    draft = path.with_name(f"{path.name}.new")
    draft.unlink(missing_ok=True)
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    replace_file(draft, path)


def _generate_device_id() -> str:
    """Return the machine's name with random digits, because two machines may have the same name."""
    name = _STRANGE.sub("-", socket.gethostname().partition(".")[0]).strip("-.")[:64]
    return f"{name or 'device'}-{secrets.token_hex(4)}"
