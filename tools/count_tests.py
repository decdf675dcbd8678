#!/usr/bin/env python3
"""Counts a CTest JUnit file: prints "PASSED FAILED SKIPPED". A test that could not be run counts as
failed."""
import sys
import xml.etree.ElementTree as tree


def count(path):
    passed = failed = skipped = 0
    for case in tree.parse(path).getroot().iter("testcase"):
        status = case.get("status")
        if status == "run":
            passed += 1
        elif status == "disabled" or (status == "notrun" and is_skip(case)):
            skipped += 1
        else:
            failed += 1
    return passed, failed, skipped


def is_skip(case):
    """CTest gives 'notrun' to a test that skipped itself and to one whose program is missing; only
    the reason differs."""
    reason = case.find("skipped")
    return reason is not None and "SKIP" in reason.get("message", "").upper()


if __name__ == "__main__":
    print(*count(sys.argv[1]))
