#!/bin/sh
# Writes src/layout/tables.rs: the places of CPython's fields, one column a version, by the headers of the Pythons that are named.
#
#     crates/inspection/layouts/write.sh python3.9 python3.10 python3.11 python3.12 python3.13
#
# Each needs its headers (python3.X-dev) and a C compiler. The columns hold for 64-bit builds without --with-pydebug.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
for python in "$@"; do
    include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
    cc -w -I"$include" -I"$include/internal" "$here/offsets.c" -o "$build/offsets"
    "$build/offsets" >> "$build/columns"
done
{
    echo "//! Where CPython's fields are, in bytes from the start of their structures, by version. Made by \`layouts/write.sh\`: do not edit."
    echo
    echo "layouts! {"
    awk '
        !($1 in row) { order[++rows] = $1 }
        { row[$1] = row[$1] sprintf(" %7s", $2) }
        END {
            printf "    // %-25s%s\n", "CPython", row["version"]
            printf "    // %-25s%s\n", "made with the headers of", row["patch"]
            for (number = 3; number <= rows; number++) printf "    %-28s%s;\n", order[number] ":", row[order[number]]
        }
    ' "$build/columns"
    echo "}"
} > "$build/tables.rs"
mv "$build/tables.rs" "$here/../src/layout/tables.rs"
