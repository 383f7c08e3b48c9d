#!/bin/sh
# Writes src/layout/tables.rs: the places of CPython's fields, one row a version, by the headers of the Pythons that are named.
#
#     crates/inspection/layouts/write.sh python3.9 python3.10 python3.11 python3.12 python3.13
#
# Each needs its headers (python3.X-dev) and a C compiler. The rows hold for 64-bit builds without --with-pydebug.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
{
    echo "//! Where CPython's fields are, in bytes from the start of their structures, by version. Made by \`layouts/write.sh\`: do not edit."
    echo
    echo "use super::fields::Layout;"
    for python in "$@"; do
        include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
        cc -w -I"$include" -I"$include/internal" "$here/offsets.c" -o "$build/offsets"
        echo
        "$build/offsets"
    done
} > "$build/tables.rs"
mv "$build/tables.rs" "$here/../src/layout/tables.rs"
