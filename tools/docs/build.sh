#!/bin/sh
# Builds the documentation offline, apart from one npm package (KaTeX); without npm, formulas are not rendered.
# Arguments go to the builder: sh tools/docs/build.sh --out FOLDER
set -eu
cd "$(dirname "$0")/../.."
katex=0.16.22
kept=node_modules/katex/dist
if [ ! -f $kept/katex.min.js ]; then
  if ! command -v npm >/dev/null 2>&1; then echo "– formulas are not rendered: KaTeX comes from npm, which is not on PATH"
  elif ! npm install --silent --no-save --no-package-lock katex@$katex; then echo "– formulas are not rendered: npm could not install katex@$katex"
  fi
fi
[ -f $kept/katex.min.js ] && set -- --katex $kept "$@"
exec python tools/docs/build.py "$@"
