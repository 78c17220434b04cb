#!/bin/sh
# Say what is done, do it, say how long it took: step.sh MESSAGE COMMAND [ARGUMENT …]
message=$1; shift
printf '→ %s\n' "$message"
began=$(date +%s)
status=0
"$@" || status=$?
took=$(( $(date +%s) - began ))
if [ "$status" -eq 0 ]; then printf '✓ %s (%s s)\n' "$message" "$took"
else printf '✗ %s (%s s, exit %s)\n' "$message" "$took" "$status" >&2
fi
exit "$status"
