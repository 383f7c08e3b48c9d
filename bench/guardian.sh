#!/bin/sh
# Kills what the suite has started when the suite is gone and could not do so itself (SIGKILL, out of memory).
# It is told on standard input which process groups start and stop; the end of its input is the end of the suite.
groups=""
while read -r event group; do
    left=""
    for known in $groups; do
        [ "$known" = "$group" ] || left="$left $known"
    done
    [ "$event" = start ] && left="$left $group"
    groups=$left
done
# No `--` before the group: the shell of Debian does not know it.
for group in $groups; do
    kill -KILL "-$group" 2>/dev/null
done
