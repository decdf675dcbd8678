#!/bin/sh
# The comparison with grep must fail for a program that counts wrongly: one count off by one, or one
# line missing.
# Usage: grep_canary.sh PYTHON DIFFERENTIAL_TEST PROGRAM
set -eu
python=$1 test=$2 program=$3
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

check() { # NAME AWK_PROGRAM
    cat >"$folder/$1" <<END
#!/bin/sh
"$program" "\$@" >"$folder/lines" || exit 1
LC_ALL=C awk -F'\t' -v OFS='\t' '$2' "$folder/lines"
END
    chmod +x "$folder/$1"
    if "$python" "$test" "$folder/$1" --rounds 40 --seed 11 >"$folder/said" 2>&1; then
        echo "FAILED: the comparison accepted a program that is wrong ($1)"
        exit 1
    fi
    grep -q 'counts differ' "$folder/said" || {
        echo "FAILED: $1 failed for another reason:"
        cat "$folder/said"
        exit 1
    }
    echo "$1: noticed"
}

check honest_with_one_count_off 'NR == 2 && NF == 3 { $3 = $3 + 1 } { print }'
check honest_with_a_line_lost 'NR != 3'
