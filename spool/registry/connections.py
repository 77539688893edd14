"""
Billing connections: where billing data are from, and where they are sent upstream. Values and rules.

The published interface defines the field names. The upstream may use another id, which is stored separately.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from math import isfinite

from spool.errors import Invalid
from spool.registry.texts import check_text

MAX_NAME = 200
MAX_TEXT = 200
MAX_BUCKET_PATH = 1024
MAX_RATE = 1e15

_ID = re.compile(r"[A-Za-z0-9._:@-]{1,128}")
_BUCKET = re.compile(r"[A-Za-z0-9.-]{3,63}")
_ACCOUNT = re.compile(r"\d{12}")


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Bucket:
    """The S3 bucket with a provider's files. It is stored and shown, but never read."""

    bucket_name: str
    bucket_path: str
    cloud_account_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionDraft:
    """
    The fields of a connection that a person or key sets. `upstream_id`: the upstream's id; "" means the same
    id as here.
    """

    name: str
    cloud_provider: str
    expected_ingest_rate: float | None = None
    is_enabled: bool = True
    s3_bucket: S3Bucket | None = None
    upstream_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BillingConnection:
    """A billing connection as stored. Times are epoch seconds."""

    id: str
    name: str
    cloud_provider: str
    expected_ingest_rate: float | None
    is_enabled: bool
    s3_bucket: S3Bucket | None
    upstream_id: str
    created: float
    last_updated: float

    @property
    def connection_id_upstream(self) -> str:
        return self.upstream_id or self.id


def is_connection_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def check_connection_id(id: str) -> str:
    if not is_connection_id(id):
        raise Invalid("a connection id must have 1 to 128 letters, digits or any of . _ : @ -")
    return id


def check_connection(draft: ConnectionDraft) -> ConnectionDraft:
    if draft.upstream_id:
        check_connection_id(draft.upstream_id)
    return replace(
        draft,
        name=check_text("name", draft.name, MAX_NAME),
        cloud_provider=check_text("cloud_provider", draft.cloud_provider, MAX_TEXT),
        expected_ingest_rate=_check_ingest_rate(draft.expected_ingest_rate),
        s3_bucket=draft.s3_bucket and _check_bucket(draft.s3_bucket),
    )


def _check_bucket(bucket: S3Bucket) -> S3Bucket:
    if not _BUCKET.fullmatch(bucket.bucket_name):
        raise Invalid("s3_bucket_info.bucket_name must have 3 to 63 letters, digits, dots or hyphens")
    if not _ACCOUNT.fullmatch(bucket.cloud_account_id):
        raise Invalid("s3_bucket_info.cloud_account_id must have 12 digits")
    if len(bucket.bucket_path) > MAX_BUCKET_PATH or not bucket.bucket_path.isprintable():
        raise Invalid(f"s3_bucket_info.bucket_path must have at most {MAX_BUCKET_PATH} printable characters")
    return bucket


def _check_ingest_rate(rate: float | None) -> float | None:
    if rate is not None and not (isfinite(rate) and 0 <= rate <= MAX_RATE):
        raise Invalid("expected_ingest_rate must be a number from 0 to 1e15")
    return rate
