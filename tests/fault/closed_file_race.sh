#!/bin/sh
# closed_file_race.sh PROGRAM ROUNDS [WORD...]: runs the program in a folder of its own.
folder=$(mktemp -d "${TMPDIR:-/tmp}/penstock-race-XXXXXX") || exit 2
trap 'rm -rf "$folder"' EXIT
program=$1
rounds=$2
shift 2
"$program" "$folder" "$rounds" "$@"
