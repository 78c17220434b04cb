#!/bin/sh
# Make .venv with everything that constraints.txt names; does nothing where the last install finished and nothing changed since.
set -eu
cd "$(dirname "$0")/.."
stamp=.venv/.installed
# In a shell where .venv is activated, its python and uv come first on PATH; what .venv is made with must not lie inside it.
PATH=$(printf '%s' "$PATH" | tr ':' '\n' | grep -vxF "$(pwd)/.venv/bin" | tr '\n' ':' | sed 's/:$//')

# Where a version manager puts a shim on PATH, the interpreter behind it is asked for; the first one that is new enough is taken.
real() { "$1" -c 'import sys; print(sys.executable) if sys.version_info >= (3, 11) else sys.exit(1)' 2>/dev/null; }
python=
for name in ${PYTHON:+"$PYTHON"} python3 python3.14 python3.13 python3.12 python3.11 python; do
  python=$(real "$name") && [ -n "$python" ] && break
  python=
done
if [ -z "$python" ]; then
  echo "No Python 3.11 or newer was found (python3 is: $(python3 --version 2>&1 || true))." >&2
  echo "Expected one on PATH. Install it, or name it: make $(printf '%s' "${MAKECMDGOALS:-lab}") PYTHON=/path/to/python3" >&2
  exit 1
fi

# What the install depends on; an install for another folder, interpreter or set of pins is not this one.
wanted="$(pwd)
$python
$(cat pyproject.toml constraints.txt | cksum)"
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && .venv/bin/python -c '' 2>/dev/null; then exit 0; fi

began=$(date +%s)
fresh=yes                       # without a stamp the last install was cut off: start again
[ -f "$stamp" ] && [ "$(head -n 2 "$stamp")" = "$(printf '%s' "$wanted" | head -n 2)" ] && .venv/bin/python -c '' 2>/dev/null && fresh=no
rm -f "$stamp"
# compiled once here, or every process would compile torch and its company anew where PYTHONDONTWRITEBYTECODE is set
with_uv() { UV_PYTHON_DOWNLOADS=never UV_COMPILE_BYTECODE=1 "$@" pip install -q --python .venv/bin/python -c constraints.txt -e ".[dev,test]"; }
pip() { .venv/bin/python -m pip install -q --disable-pip-version-check "$@"; }
echo "→ .venv: installing (about a minute with uv, 2 to 5 with pip; more where the packages must be fetched first)"
if uv --version >/dev/null 2>&1; then
  [ $fresh = no ] || uv venv -q --clear --python "$python" .venv
  with_uv uv
else
  if [ $fresh = yes ] && ! "$python" -m venv --clear .venv; then
    echo "$python cannot make a virtual environment. Expected its venv module. On Debian and Ubuntu: apt-get install python3-venv" >&2
    exit 1
  fi
  # uv of our own is four times as fast as pip; where it cannot be had or does not know pip's registry, pip does the same
  { pip uv && with_uv .venv/bin/uv; } 2>/dev/null || pip -c constraints.txt -e ".[dev,test]"
fi
printf '%s\n' "$wanted" > "$stamp.new" && mv "$stamp.new" "$stamp"
echo "✓ .venv: installed ($(( $(date +%s) - began )) s)"
