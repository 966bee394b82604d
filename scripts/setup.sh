#!/usr/bin/env bash
# Set up everything the README's commands need. Safe to run again; does nothing twice.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }

# Debian packages, when we may install them; otherwise say what is missing and why.
debian() { # package, command it brings, what it is for
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing $1 ($3)"
    apt-get install -y -qq "$1" >/dev/null 2>&1 ||
      { apt-get update -qq >/dev/null && apt-get install -y -qq "$1" >/dev/null; }
  else
    say "'$2' not found; it is needed for $3. Install the Debian package '$1' (or your system's) and run again."
    return 1
  fi
}

python=
for name in python3.13 python3.12 python3.11 python3; do
  if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    python=$name
    break
  fi
done
[ -n "$python" ] || { say "Python 3.11 or newer is needed and was not found"; exit 1; }

if [ ! -x .venv/bin/python ]; then
  say "virtual environment in .venv"
  "$python" -m venv .venv 2>/dev/null || { rm -rf .venv; debian python3-venv venv "the virtual environment"; "$python" -m venv .venv; }
fi
say "packages (pinned by constraints.txt)"
.venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'

command -v java >/dev/null || debian openjdk-17-jre-headless java "Spark"
say "the bridge to Spark"
.venv/bin/python scripts/build_bridge.py

# Azurite speaks Azure's protocol on 127.0.0.1 for the tests.
if [ ! -x .servers/node_modules/.bin/azurite-blob ]; then
  if command -v npm >/dev/null || debian npm npm "the Azure test server"; then
    say "Azurite for the tests"
    mkdir -p .servers
    npm install --prefix .servers --no-audit --no-fund --no-save --silent azurite@3.37.0 >/dev/null
  fi
fi
say "ready"
