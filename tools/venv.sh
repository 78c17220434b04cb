#!/bin/sh
# Make .venv with extras of the package, as constraints.txt pins them: venv.sh [EXTRAS] (default: dev,test, which hold all others).
# Does nothing where the last install finished, had these extras and nothing changed since.
set -eu
cd "$(dirname "$0")/.."
stamp=.venv/.installed
extras=${1:-dev,test}
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
before=$(sed -n 4p "$stamp" 2>/dev/null || true)  # extras of the last install
[ "$before" = dev,test ] && extras=$before
if [ "$(head -n 3 "$stamp" 2>/dev/null)" = "$wanted" ] && [ "$before" = "$extras" ] && .venv/bin/python -c '' 2>/dev/null; then exit 0; fi

began=$(date +%s)
fresh=yes                       # without a stamp the last install was cut off: start again
[ -f "$stamp" ] && [ "$(head -n 2 "$stamp")" = "$(printf '%s' "$wanted" | head -n 2)" ] && .venv/bin/python -c '' 2>/dev/null && fresh=no
rm -f "$stamp"

# Without an NVIDIA GPU: a torch for CPUs where the configured index has one; else the usual one, without Triton, which only a GPU needs.
pinned() { sed -n "s/^$1==\([0-9.]*\).*/\1/p" constraints.txt; }
torch=
takes="7.5 GB (an estimate)"
[ "$(uname)" = Linux ] || takes='2.5 GB (an estimate)'  # elsewhere torch has no CUDA
no_gpu() { [ "$(uname)" = Linux ] && ! [ -e /dev/nvidia0 ] && ! command -v nvidia-smi >/dev/null 2>&1; }
for_cpu() {  # $@: uv
  no_gpu || return 0
  cpu="torch==$(pinned torch)+cpu torchvision==$(pinned torchvision)+cpu"
  if "$@" pip install -q --dry-run --python .venv/bin/python $cpu >/dev/null 2>&1; then torch=$cpu; takes="2.5 GB (an estimate)"
  else torch="--overrides tools/without_gpu.txt"; takes="6.5 GB"
  fi
}
with_uv() {
  for_cpu "$@"
  say_size
  # pip for %pip in notebooks
  UV_PYTHON_DOWNLOADS=never "$@" pip install -q --python .venv/bin/python -c constraints.txt $torch -e ".[$extras]" pip
}
say_size() {
  [ "$extras" = dev,test ] && more=", and 1 GB for development and tests" || more=
  echo "→ .venv: installing [$extras], about $takes$more (a minute with uv, 2 to 5 with pip; more where the packages must be fetched first)"
}
with_pip() {  # where uv cannot be had or does not know pip's registry
  if ! .venv/bin/python -m pip --version >/dev/null 2>&1 && ! "$python" -m venv --clear .venv; then
    echo "$python cannot make a virtual environment. Expected its venv module. On Debian and Ubuntu: apt-get install python3-venv" >&2
    exit 1
  fi
  say_size
  .venv/bin/python -m pip install -q --disable-pip-version-check --no-compile -c constraints.txt -e ".[$extras]"
}
if uv --version >/dev/null 2>&1; then
  [ $fresh = no ] || uv venv -q --clear --python "$python" .venv
  with_uv uv
else
  # uv of our own is four times as fast as pip; pip puts it there from outside, which saves the seconds of a pip of our own
  { [ $fresh = no ] || "$python" -m venv --clear --without-pip .venv; } &&
    "$python" -m pip --python .venv/bin/python install -q --disable-pip-version-check uv 2>/dev/null &&
    with_uv .venv/bin/uv 2>/dev/null || with_pip
fi
printf '%s\n%s\n' "$wanted" "$extras" > "$stamp.new" && mv "$stamp.new" "$stamp"
echo "✓ .venv: installed ($(( $(date +%s) - began )) s)"
