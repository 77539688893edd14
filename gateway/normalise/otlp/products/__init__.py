"""
Every product, in order of precedence: of several whose marks a span bears the first counts.

Each is one module, which no other product knows; adding one is a module, its line here and its cases.
"""

from __future__ import annotations

from gateway.normalise.otlp.conventions import OTEL
from gateway.normalise.otlp.product import Product
from gateway.normalise.otlp.products.assistants import (
    claude_code,
    cline,
    codex,
    copilot_chat,
    copilot_cli,
    cursor,
    gemini_cli,
    goose,
    opencode,
    pi,
    qwen_code,
)
from gateway.normalise.otlp.products.frameworks import (
    ag2,
    azure_ai,
    genkit,
    google_adk,
    langfuse,
    langsmith,
    mlflow,
    openinference,
    openlit,
    openllmetry,
    pydantic_ai,
    semantic_kernel,
    spring_ai,
    strands,
    vercel_ai,
)
from gateway.normalise.otlp.products.gateways import (
    agentgateway,
    bifrost,
    cloudflare,
    coder,
    envoy_ai_gateway,
    kong,
    litellm,
    openrouter,
    portkey,
    tollhouse,
)
from gateway.normalise.otlp.products.servers import llama_cpp, nim, ollama, sglang, tgi, vllm

PRODUCTS: tuple[Product, ...] = (
    tollhouse.PRODUCT,
    portkey.PRODUCT,
    openinference.PRODUCT,
    langfuse.PRODUCT,
    mlflow.PRODUCT,
    vercel_ai.PRODUCT,
    langsmith.PRODUCT,
    spring_ai.PRODUCT,
    agentgateway.PRODUCT,
    kong.PRODUCT,
    cloudflare.PRODUCT,
    vllm.PRODUCT,
    litellm.PRODUCT,
    openrouter.PRODUCT,
    openlit.PRODUCT,
    bifrost.PRODUCT,
    ag2.PRODUCT,
    azure_ai.PRODUCT,
    genkit.PRODUCT,
    openllmetry.PRODUCT,
    copilot_cli.PRODUCT,
    pydantic_ai.PRODUCT,  # behind the others: Logfire marks every span that its provider makes
    # These bear no marks: they are recognised by scope, SDK or service alone.
    strands.PRODUCT,
    google_adk.PRODUCT,
    semantic_kernel.PRODUCT,
    envoy_ai_gateway.PRODUCT,
    claude_code.PRODUCT,
    codex.PRODUCT,
    gemini_cli.PRODUCT,
    qwen_code.PRODUCT,
    goose.PRODUCT,
    opencode.PRODUCT,
    pi.PRODUCT,
    cline.PRODUCT,
    cursor.PRODUCT,
    coder.PRODUCT,
    sglang.PRODUCT,
    tgi.PRODUCT,
    llama_cpp.PRODUCT,
    nim.PRODUCT,
    ollama.PRODUCT,
    copilot_chat.PRODUCT,
    OTEL,
)
