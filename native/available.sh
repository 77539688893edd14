#!/bin/sh
# Says what is missing to build the compiled module here; its exit is 0 if nothing is.
cd "$(dirname "$0")" || exit 1
needed=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)
missing() {
  echo "the compiled module is not built: $1; everything works without it"
  exit 1
}
found=$(cargo --version 2>/dev/null | cut -d ' ' -f 2)
[ -n "$found" ] || missing "cargo is missing (Rust $needed or newer)"
[ "$(printf '%s\n' "$needed" "$found" | sort -V | head -n 1)" = "$needed" ] ||
  missing "it needs Rust $needed, and this is $found"
CARGO_NET_RETRY=1 CARGO_HTTP_TIMEOUT=10 cargo fetch --quiet --locked 2>/dev/null ||
  missing "its crates cannot be fetched"
