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
# Half a minute for each target; longer rounds: `cargo fuzz run --sanitizer none requests DIRECTORY/requests`.
if cargo fuzz --version >/dev/null 2>&1; then
  corpus=$(mktemp -d)
  (cd .. && .venv/bin/python -m tests.packed.corpus "$corpus")
  for target in requests records; do
    RUSTC_BOOTSTRAP=1 cargo fuzz run --sanitizer none "$target" "$corpus/$target" -- -max_total_time=30 -max_len=16384
  done
  rm -rf "$corpus"
else
  echo "not looked at: cargo fuzz is missing"
fi
