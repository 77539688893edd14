"""Third-party images are pinned by digest before a release."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# These images are pinned only by tag, because this machine reached no image registry. A release is refused
# until each image has its digest. Then remove the image from this list.
WITHOUT_DIGEST = [
    "docker.io/library/alpine:3.22",
    "docker.io/library/debian:trixie-slim",
    "docker.io/library/haproxy:3.2",
    "docker.io/library/postgres:17",
    "ghcr.io/berriai/litellm:main-stable",
]


def test_which_images_lack_a_digest() -> None:
    """No image outside the list lacks a digest."""
    found = runpy.run_path(str(ROOT / "deploy/images.py"))
    assert WITHOUT_DIGEST == list(found["without_digest"]())


def test_a_digest_is_seen(tmp_path: Path) -> None:
    """The check covers a Containerfile, Compose and Kubernetes. Our own image needs no digest."""
    found = runpy.run_path(str(ROOT / "deploy/images.py"))
    pinned = f"registry.example/base:1@sha256:{'ab' * 32}"
    container = tmp_path / "deploy/container"
    container.mkdir(parents=True)
    (container / "Containerfile").write_text(f"FROM {pinned} AS build\nFROM registry.example/last:2\n")
    (tmp_path / "deploy/compose.yaml").write_text(
        f'  image: tollhouse\n  image: {pinned}\n    - image: "other:3"\n'
    )
    assert ["other:3", pinned, "registry.example/last:2"] == list(found["images"](tmp_path))
    assert ["other:3", "registry.example/last:2"] == list(found["without_digest"](tmp_path))


@pytest.mark.proves("images, locks, the metrics listener")
@pytest.mark.proves("A dependency is replaced, or known to be unsafe")
def test_a_release_wants_digests() -> None:
    """The release build fails first with the names of images without a digest."""
    code = "import release; release.is_described = lambda *_: True; release.main()"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT / "deploy", capture_output=True, text=True)
    assert 1 == done.returncode
    assert f"these images have no digest: {', '.join(WITHOUT_DIGEST)}" in done.stderr
