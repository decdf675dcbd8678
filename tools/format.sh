#!/usr/bin/env bash
# Formats the C++ and CUDA files with clang-format 14, Debian 12's: tools/format.sh [--list]
#
# --list: names the files and changes none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
files() {
    find include src apps cli bench examples tests -name results -prune -o -type f \
        \( -name '*.hpp' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print | sort
}
if [ "${1:-}" = --list ]; then
    files
    exit
fi
program=$(command -v clang-format-14 || command -v clang-format)
files | xargs "$program" -i
