#!/bin/sh
# Exits with 0 (go on) or 1 (refuse) for the API key in $1: docs/money/verdict-adapters.md. Does not check the signature.
IS_CLOSED=0 # 1: refuse while no valid table is known
TABLE=$(curl -sSf --max-time 10 -H "Authorization: $TOLLHOUSE_KEY" "$TOLLHOUSE_URL/v2/budgets/verdicts") || exit $IS_CLOSED
echo "$TABLE" | python3 -c '
import json, sys
over = [row["name"] for row in json.load(sys.stdin)["rows"]
        if row["state"] == "over" and row["match"]["include"].get("api_key") == [sys.argv[1]]]
sys.exit(f"budget {over[0]} is spent" if over else 0)' "$1"
