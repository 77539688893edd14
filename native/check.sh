#!/bin/sh
# Form, linter and tests of the Rust code. A tool of cargo that is not installed is named and left out.
set -eu
cd "$(dirname "$0")"
if cargo fmt --version >/dev/null 2>&1; then cargo fmt --check; else echo "not looked at: cargo fmt is missing"; fi
if cargo clippy --version >/dev/null 2>&1; then
  cargo clippy --quiet --locked --no-default-features --all-targets -- -D warnings
else
  echo "not looked at: cargo clippy is missing"
fi
cargo test --quiet --locked --no-default-features
