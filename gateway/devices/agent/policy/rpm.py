"""An RPM of the Linux files of a policy bundle, in the format of RPM 4. Equal inputs give equal bytes."""

from __future__ import annotations

import gzip
import hashlib
import struct
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final, TypeAlias

NAME: Final = "tollhouse-policy"
RELEASE: Final = "1"
_SUMMARY: Final = "managed settings of coding assistants, with which they report to Tollhouse"
_MODE: Final = 0o100644
# flags of a configuration file: rpm keeps an existing file, and writes the new one next to it as .rpmnew
_CONFIG_NOREPLACE: Final = 1 | 16
_EQUAL: Final = 8
_NEEDS_FEATURE: Final = 1 << 24 | _EQUAL | 2
_FEATURES: Final = {  # features of rpm, by the version that has them
    "rpmlib(CompressedFileNames)": "3.0.4-1",
    "rpmlib(FileDigests)": "4.6.0-1",
    "rpmlib(PayloadFilesHavePrefix)": "4.0-1",
}
_INT16, _INT32, _STRING, _BINARY, _STRINGS, _TRANSLATED = 3, 4, 6, 7, 8, 9
_SIZES: Final = {_INT16: 2, _INT32: 4}
_SHA256: Final = 8
_OF_SIGNATURE, _OF_HEADER = 62, 63  # tags of the signature and of the header in an rpm file

RpmValue: TypeAlias = str | bytes | Sequence[int] | Sequence[str]


def build_rpm_package(files: Mapping[str, bytes], version: str) -> bytes:
    """Return a package that installs files by their absolute paths, as configuration files."""
    paths = sorted(files)
    payload = _cpio_archive(paths, files)
    packed = gzip.compress(payload, mtime=0)
    header = _encode_header(_OF_HEADER, _rpm_header_values(paths, files, version, packed))
    whole = header + packed
    signature = _encode_header(
        _OF_SIGNATURE,
        {
            269: (_STRING, hashlib.sha1(header, usedforsecurity=False).hexdigest()),
            273: (_STRING, hashlib.sha256(header).hexdigest()),
            1000: (_INT32, [len(whole)]),
            1004: (_BINARY, hashlib.md5(whole, usedforsecurity=False).digest()),
            1007: (_INT32, [len(payload)]),
        },
    )
    name = f"{NAME}-{version}-{RELEASE}".encode()[:65]
    lead = struct.pack(">4sBBHH66sHH16x", b"\xed\xab\xee\xdb", 3, 0, 0, 1, name, 1, 5)
    return lead + signature + bytes(-len(signature) % 8) + whole


def _rpm_header_values(
    paths: Sequence[str], files: Mapping[str, bytes], version: str, packed: bytes
) -> dict[int, tuple[int, RpmValue]]:
    folders = sorted({f"{PurePosixPath(path).parent}/" for path in paths})
    sizes = [len(files[path]) for path in paths]
    each = [0] * len(paths)
    return {
        100: (_STRINGS, ["C"]),
        1000: (_STRING, NAME),
        1001: (_STRING, version),
        1002: (_STRING, RELEASE),
        1004: (_TRANSLATED, [_SUMMARY]),
        1005: (_TRANSLATED, [_SUMMARY]),
        1009: (_INT32, [sum(sizes)]),
        1014: (_STRING, "Apache-2.0"),
        1016: (_TRANSLATED, ["System Environment/Base"]),
        1021: (_STRING, "linux"),
        1022: (_STRING, "noarch"),
        1028: (_INT32, sizes),
        1030: (_INT16, [_MODE] * len(paths)),
        1033: (_INT16, each),
        1034: (_INT32, each),
        1035: (_STRINGS, [hashlib.sha256(files[path]).hexdigest() for path in paths]),
        1036: (_STRINGS, [""] * len(paths)),
        1037: (_INT32, [_CONFIG_NOREPLACE] * len(paths)),
        1039: (_STRINGS, ["root"] * len(paths)),
        1040: (_STRINGS, ["root"] * len(paths)),
        1044: (_STRING, f"{NAME}-{version}-{RELEASE}.src.rpm"),
        1045: (_INT32, [0xFFFFFFFF] * len(paths)),
        1047: (_STRINGS, [NAME]),
        1048: (_INT32, [_NEEDS_FEATURE] * len(_FEATURES)),
        1049: (_STRINGS, list(_FEATURES)),
        1050: (_STRINGS, list(_FEATURES.values())),
        1095: (_INT32, [1] * len(paths)),
        1096: (_INT32, list(range(1, len(paths) + 1))),
        1097: (_STRINGS, [""] * len(paths)),
        1112: (_INT32, [_EQUAL]),
        1113: (_STRINGS, [f"{version}-{RELEASE}"]),
        1116: (_INT32, [folders.index(f"{PurePosixPath(path).parent}/") for path in paths]),
        1117: (_STRINGS, [PurePosixPath(path).name for path in paths]),
        1118: (_STRINGS, folders),
        1124: (_STRING, "cpio"),
        1125: (_STRING, "gzip"),
        1126: (_STRING, "9"),
        5011: (_INT32, [_SHA256]),
        5092: (_STRINGS, [hashlib.sha256(packed).hexdigest()]),
        5093: (_INT32, [_SHA256]),
    }


def _encode_header(region: int, values: Mapping[int, tuple[int, RpmValue]]) -> bytes:
    index, store = b"", b""
    for tag, (kind, value) in sorted(values.items()):
        store += bytes(-len(store) % _SIZES.get(kind, 1))
        content, count = _encode_value(kind, value)
        index += struct.pack(">4I", tag, kind, len(store), count)
        store += content
    first = struct.pack(">4I", region, _BINARY, len(store), 16)
    entries = len(values) + 1
    store += struct.pack(">IIiI", region, _BINARY, -16 * entries, 16)
    return struct.pack(">4s4x2I", b"\x8e\xad\xe8\x01", entries, len(store)) + first + index + store


def _encode_value(kind: int, value: RpmValue) -> tuple[bytes, int]:
    if isinstance(value, bytes):
        return value, len(value)
    items = [value] if isinstance(value, str) else value
    if kind in _SIZES:
        return struct.pack(f">{len(items)}{'I' if kind == _INT32 else 'H'}", *items), len(items)
    return b"".join(f"{item}\0".encode() for item in items), len(items)


def _cpio_archive(paths: Sequence[str], files: Mapping[str, bytes]) -> bytes:
    members = [(f".{path}", files[path], number) for number, path in enumerate(paths, 1)]
    archive = b""
    for name, content, number in (*members, ("TRAILER!!!", b"", 0)):
        mode = _MODE if number else 0
        fields = (number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        archive += head + bytes(-len(head) % 4) + content + bytes(-len(content) % 4)
    return archive
