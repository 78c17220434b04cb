#!/bin/sh
# Chromium and fonts for the browser tests: installed where this user may, else a line that says how; never fails. --there: only tell by the exit status whether there is one.
have() { command -v "$1" >/dev/null 2>&1; }
missing=
browser() { [ -n "${CHROMIUM:-}" ] || have chromium-headless-shell || have chromium || have google-chrome || have chromium-browser; }
if [ "${1:-}" = --there ]; then browser; exit; fi
browser || missing="chromium-headless-shell"
# without these, scripts other than Latin are empty boxes
have fc-list && [ -n "$(fc-list :lang=ja 2>/dev/null)" ] || missing="$missing fonts-noto-core fonts-noto-cjk"
[ -z "$missing" ] && exit 0
line="apt-get install -y --no-install-recommends $(echo $missing)"
if [ "${BROWSER:-}" = no ]; then echo "– browser tests: not set up, BROWSER=no"
elif [ "$(id -u)" -ne 0 ] || ! have apt-get; then echo "– browser tests will be skipped or lack fonts; to have them, as root: $line"
else
  echo "→ browser tests: installing$missing"
  log=$(mktemp)
  export DEBIAN_FRONTEND=noninteractive
  # word splitting is wanted: a list of package names
  install() { apt-get install -y --no-install-recommends "$@"; }
  # releases without the shell have the whole browser
  if { apt-get update && { install $missing || install $(echo $missing | sed 's/chromium-headless-shell/chromium/'); }; } >"$log" 2>&1; then echo "✓ browser tests: installed"
  else echo "– browser tests will be skipped or lack fonts, as this failed: $line"; tail -n 3 "$log"
  fi
  rm -f "$log"
fi
exit 0
