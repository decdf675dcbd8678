#!/bin/sh
# The test of collages must fail for a program whose distances are wrong, and for that reason.
# Usage: canary.sh PYTHON MAKE_TEST PROGRAM WRONG_PROGRAM
set -eu
for method in penstock cpu; do
    if said=$(PENSTOCK_TEST_METHODS=$method PENSTOCK_TEST_FLAGS='--backend cpu' \
        "$1" "$2" "$3" "$4" 2>&1); then
        echo "FAILED: the test accepted a wrong distance ($method)"
        exit 1
    fi
    case $said in
        *"the collage differs from the reference"*) echo "$method: noticed" ;;
        *) echo "FAILED: $method failed for another reason: $said"; exit 1 ;;
    esac
done
