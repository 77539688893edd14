"""
Stores the parts of two public price lists that the rate card and its test use:
`python -m docs.generate.price_sources LITELLM_WHEEL PI_AI_PACKAGE`.

`litellm` has the list of LiteLLM. `models-dev` has the catalogue of models.dev, as the package pi-ai carries it.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import msgspec

PLACE: Final = Path(__file__).parent / "price_lists"
LITELLM: Final = PLACE / "litellm.json.gz"
MODELS_DEV: Final = PLACE / "models-dev.json.gz"
# Sellers of the two lists that are compared, by the provider's name in records.
LITELLM_SELLERS: Final = {
    "anthropic": "anthropic",
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "bedrock_converse": "aws.bedrock",
    "cohere": "cohere",
    "cohere_chat": "cohere",
    "dashscope": "dashscope",
    "deepseek": "deepseek",
    "gemini": "gcp.gemini",
    "groq": "groq",
    "minimax": "minimax",
    "mistral": "mistral_ai",
    "moonshot": "moonshot_ai",
    "openai": "openai",
    "perplexity": "perplexity",
    "vertex_ai-anthropic_models": "gcp.vertex_ai",
    "vertex_ai-language-models": "gcp.vertex_ai",
    "voyage": "voyageai",
    "xai": "x_ai",
    "zai": "zai",
}
MODELS_DEV_SELLERS: Final = {
    "amazon-bedrock": "aws.bedrock",
    "anthropic": "anthropic",
    "azure": "azure.ai.openai",
    "deepseek": "deepseek",
    "google": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai",
    "groq": "groq",
    "minimax": "minimax",
    "mistral": "mistral_ai",
    "moonshotai": "moonshot_ai",
    "openai": "openai",
    "xai": "x_ai",
    "zai": "zai",
}
_KEPT: Final = (
    "litellm_provider",
    "mode",
    "alias_of",
    "provider_specific_entry",
    "currency",
    "tiered_pricing",
)


def read(path: Path) -> dict[str, Any]:
    """Read a stored list. All numbers are exact."""
    document: dict[str, Any] = _exact(gzip.decompress(path.read_bytes()))
    return document


def litellm(wheel: Path) -> dict[str, Any]:
    version = wheel.name.split("-")[1]
    with zipfile.ZipFile(wheel) as package:
        content = package.read("litellm/model_prices_and_context_window_backup.json")
    document = _exact(content)
    entries = {
        name: {
            field: value
            for field, value in entry.items()
            if "cost" in field or "uplift" in field or field in _KEPT
        }
        for name, entry in document.items()
        if document.get(entry.get("alias_of"), entry).get("litellm_provider") in LITELLM_SELLERS
    }
    return {
        "name": "LiteLLM",
        "package": f"litellm {version}",
        "licence": "MIT, Copyright (c) Berri AI",
        "models": entries,
    }


def models_dev(package: Path) -> dict[str, Any]:
    matched = re.search(r"-(\d[\d.]*)\.tgz$", package.name)
    assert matched is not None, package.name
    prices: dict[str, dict[str, Any]] = {}
    with tarfile.open(package) as files:
        for seller in MODELS_DEV_SELLERS:
            member = files.extractfile(f"package/dist/providers/data/{seller}.json")
            assert member is not None
            groups: Mapping[str, Mapping[str, Any]] = _exact(member.read())
            models = [model for group in groups.values() for model in group.values()]
            prices[seller] = {
                model["id"]: model["cost"]
                for model in models
                if model.get("type") == "chat" and "cost" in model
            }
    return {
        "name": "models.dev",
        "package": f"@earendil-works/pi-ai {matched[1]}",
        "licence": "MIT",
        "models": prices,
    }


def _exact(content: bytes) -> Any:
    return json.loads(content, parse_float=Decimal, parse_int=Decimal)


def write(path: Path, document: Mapping[str, Any]) -> None:
    text = msgspec.json.Encoder(decimal_format="number", order="sorted").encode(document)
    path.write_bytes(gzip.compress(text, mtime=0))


def main() -> None:
    wheel, package = map(Path, sys.argv[1:3])
    PLACE.mkdir(exist_ok=True)
    write(LITELLM, litellm(wheel))
    write(MODELS_DEV, models_dev(package))


if __name__ == "__main__":
    main()
