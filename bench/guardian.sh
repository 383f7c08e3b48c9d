#!/bin/sh
# Kills the programs that the suite has started if the suite dies without doing so itself (SIGKILL, out of memory). The suite
# writes the process groups that start and stop to standard input; end of input means that the suite has ended.
groups=""
while read -r event group; do
    left=""
    for known in $groups; do
        [ "$known" = "$group" ] || left="$left $known"
    done
    [ "$event" = start ] && left="$left $group"
    groups=$left
done
# No `--` before the group: Debian's shell does not support it.
for group in $groups; do
    kill -KILL "-$group" 2>/dev/null
done
