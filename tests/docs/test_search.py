"""The site's search of questions in full sentences."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from tests.documents import ROOT, parsed_yaml

SCRIPT = ROOT / "docs/javascripts/search.js"
WORKER = "globalThis.Worker = class { postMessage(message) { console.log(JSON.stringify(message)); } };"


@pytest.mark.skipif(not shutil.which("node"), reason="needs node")
def test_common_words_of_a_query_match_only_themselves() -> None:
    """
    In the site's search, a word of a query also finds longer words that begin with it. A common word such as "a"
    matches only itself, because it would find every word with this letter.
    """
    sent = [{"type": 2, "data": "How do I add a gateway?"}, {"type": 0, "data": {"docs": ["a"]}}]
    posts = "".join(f"new Worker().postMessage({json.dumps(message)});" for message in sent)
    program = WORKER + SCRIPT.read_text() + posts
    result = subprocess.run(["node", "--eval", program], capture_output=True, text=True, check=True)
    assert [{"type": 2, "data": "How^1 do^1 I^1 add a^1 gateway "}, sent[1]] == [
        json.loads(line) for line in result.stdout.splitlines()
    ]


def test_the_site_loads_the_script() -> None:
    config = parsed_yaml((ROOT / "mkdocs.yml").read_text())
    assert [str(SCRIPT.relative_to(ROOT / "docs"))] == config["extra_javascript"]
