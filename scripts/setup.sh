#!/usr/bin/env bash
# Set up the environment of a checkout: `setup.sh runtime` installs what a user needs, `setup.sh development` what
# tests and checks need besides. Safe to run again; nothing is installed twice. PYTHON names the interpreter of a new
# environment; by default it is the newest one on the path.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'setup: %s\n' "$*" >&2; }

# Install a Debian package if that is allowed; otherwise say what is missing and what it is for.
export DEBIAN_FRONTEND=noninteractive
as_root=
if [ "$(id -u)" != 0 ]; then as_root="sudo -n"; fi
debian() { # package, command, purpose
  if command -v apt-get >/dev/null && { [ -z "$as_root" ] || sudo -n true 2>/dev/null; }; then
    say "installing $1 ($3)"
    $as_root apt-get install -y -qq --no-install-recommends "$1" >/dev/null 2>&1 ||
      { $as_root apt-get update -qq >/dev/null && $as_root apt-get install -y -qq --no-install-recommends "$1" >/dev/null; }
  else
    say "'$2' not found; it is needed for $3. Install the Debian package '$1' (or your system's) and run again."
    return 1
  fi
}

# Python compiles modules when they are first imported: most of these never are.
pip_install() { .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-warn-script-location --no-compile -c constraints.txt "$@"; }

runtime() {
  local python= version
  local names=(python3.14 python3.13 python3.12 python3.11 python3)
  if [ -n "${PYTHON:-}" ]; then names=("$PYTHON"); fi
  for name in "${names[@]}"; do
    if command -v "$name" >/dev/null && "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      python=$name
      break
    fi
  done
  [ -n "$python" ] || { say "Python 3.11 or newer is needed and was not found${PYTHON:+: PYTHON is $PYTHON}"; exit 1; }
  if [ -n "${PYTHON:-}" ] && [ -x .venv/bin/python ]; then
    version='import sys; print(*sys.version_info[:2], sep=".")'
    [ "$(.venv/bin/python -c "$version")" = "$("$python" -c "$version")" ] ||
      { say "the environment in .venv has another Python than PYTHON=$PYTHON; delete it with 'make clean'"; exit 1; }
  fi
  if [ ! -x .venv/bin/python ]; then
    say "virtual environment in .venv"
    "$python" -m venv .venv 2>/dev/null || { rm -rf .venv; debian python3-venv venv "the virtual environment"; "$python" -m venv .venv; }
  fi
  say "packages (pinned by constraints.txt)"
  pip_install -e '.[spark]'
  command -v java >/dev/null || debian openjdk-17-jre-headless java "Spark"
  say "the bridge to Spark"
  .venv/bin/python scripts/build_bridge.py
}

development() {
  say "packages for tests and checks"
  pip_install -e '.[dev]'
  # Azurite serves Azure's protocol on 127.0.0.1 for the tests.
  if [ ! -x .servers/node_modules/.bin/azurite-blob ]; then
    if command -v npm >/dev/null || debian npm npm "the Azure test server"; then
      say "Azurite for the tests"
      mkdir -p .servers
      npm install --prefix .servers --no-audit --no-fund --no-save --silent azurite@3.37.0 >/dev/null
    fi
  fi
  # Tests open the page of `indextables report` in a browser; without one they are skipped.
  browser >/dev/null || debian chromium chromium "the tests of the report page" ||
    say "no browser: the tests that open the report page will be skipped"
}

browser() { for name in chromium chromium-browser google-chrome chrome; do command -v "$name" && return; done; }

case "${1:-}" in
  runtime | development) "$1" ;;
  *) say "usage: setup.sh runtime|development"; exit 2 ;;
esac
