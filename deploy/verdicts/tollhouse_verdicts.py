"""A callback of LiteLLM's proxy that refuses calls by the verdicts of Tollhouse: docs/money/verdict-adapters.md."""

import asyncio
import base64
import json
import os
import time
import urllib.error
import urllib.request
from datetime import datetime
from pathlib import Path

from cryptography.hazmat.primitives.serialization import load_pem_public_key
from fastapi import HTTPException
from litellm.integrations.custom_logger import CustomLogger

URL = os.environ["TOLLHOUSE_URL"] + "/v2/budgets/verdicts"
KEY = os.environ["TOLLHOUSE_KEY"]  # scope budgets:read_budgets
PUBLIC = load_pem_public_key(Path(os.environ["TOLLHOUSE_VERDICT_KEY"]).read_bytes())
IS_CLOSED = False  # True: refuse calls while no valid table is known


class TollhouseVerdicts(CustomLogger):
    def __init__(self):
        self.table, self.tag, self.task = None, "", None

    async def async_pre_call_hook(self, user_api_key_dict, cache, data, call_type):
        if self.task is None:
            self.task = asyncio.create_task(self.follow())
        call = {
            "api_key": user_api_key_dict.key_alias or user_api_key_dict.api_key,
            "team": user_api_key_dict.team_id or user_api_key_dict.team_alias,
            "user": user_api_key_dict.user_id,
            "model": data.get("model"),
            "source": "litellm",
        }
        reason = self.reason(call)
        if reason:
            raise HTTPException(status_code=429, detail={"error": reason})
        return data

    def reason(self, call):
        table = self.table
        if table is None or time.time() >= datetime.fromisoformat(table["valid_until"]).timestamp():
            return "no valid verdicts are known" if IS_CLOSED else None
        for row in table["rows"]:
            if row["state"] == "over" and matches(row["match"], call):
                return f"budget {row['name']} is spent until {row['resets_at']}"
        return None

    async def follow(self):
        while True:
            try:
                await asyncio.to_thread(self.pull)
            except Exception as error:  # noqa: BLE001 - any failure is tried again
                print("the verdicts could not be read:", type(error).__name__)
                await asyncio.sleep(5)

    def pull(self):
        sent = {"Authorization": KEY, "If-None-Match": self.tag, "Prefer": "wait=30"}
        try:
            with urllib.request.urlopen(urllib.request.Request(URL, headers=sent), timeout=60) as answer:
                body, headers = answer.read(), answer.headers
        except urllib.error.HTTPError as error:
            if error.code == 304:
                return
            raise
        signature = headers["Tollhouse-Signature"].removeprefix("ed25519=")
        PUBLIC.verify(base64.b64decode(signature), body)  # raises if it is wrong
        self.table, self.tag = json.loads(body), headers["ETag"]


def matches(match, call):
    has = {name: (call.get(name) or "") for name in (*match["include"], *match["exclude"])}
    return all(has[name] in values for name, values in match["include"].items()) and not any(
        has[name] in values for name, values in match["exclude"].items()
    )


handler = TollhouseVerdicts()
