#!/usr/bin/env python3
"""Clients of an agent that miss the same block: one reads it from the file, the others wait."""
import contextlib
import errno
import os
import socket
import unittest
from unittest import mock

import common
from agent_test import BLOCK, GET, PUT, Case, answer_of, request, sealed_memory

common.need("numpy")
from penstock import _agent_claims  # noqa: E402
from penstock._agent_claims import Claims  # noqa: E402

READS_FILE = 1  # the flag of a get
LONG_MS, AT_ONCE_SECONDS = 600_000, 0.3


def get(key=b"k" * 32, wait_ms=LONG_MS, flag=READS_FILE):
    return request(GET, key=key, wait_ms=wait_ms, flag=flag)


class clients(Case):
    def setUp(self):
        super().setUp()
        self.start_memory()
        memory = sealed_memory()
        self.addCleanup(os.close, memory)
        self.first, self.second = self.connect_with(memory), self.connect_with(memory)

    def claim(self):
        self.first.send(get())
        self.assertEqual(answer_of(self.first), -errno.ENOENT)

    def expect_no_answer(self, client):
        """One that came at once would be there by then."""
        client.settimeout(AT_ONCE_SECONDS)
        with self.assertRaises(socket.timeout):
            client.recv(24)
        client.settimeout(60)

    def test_the_second_waits_for_what_the_first_puts(self):
        self.claim()
        self.second.send(get())
        self.expect_no_answer(self.second)
        self.first.send(request(PUT))
        self.assertEqual(answer_of(self.first), 0)
        self.assertEqual(answer_of(self.second), BLOCK + 64)

    def test_it_does_not_wait_for_one_that_goes_on_or_ends_without_a_put(self):
        for end in (lambda: self.first.send(get(key=b"other" + b"k" * 27)), self.first.close):
            self.claim()
            self.second.send(get())
            self.expect_no_answer(self.second)
            end()
            self.assertEqual(answer_of(self.second), -errno.ENOENT)
            self.second.send(get(key=b"third" + b"k" * 27))  # which ends its own claim
            self.assertEqual(answer_of(self.second), -errno.ENOENT)
            with contextlib.suppress(OSError):
                self.assertEqual(answer_of(self.first), -errno.ENOENT)

    def test_it_waits_for_half_of_its_time_at_most(self):
        self.claim()
        self.second.send(get(wait_ms=100))
        self.assertEqual(answer_of(self.second), -errno.ENOENT)

    def test_one_that_does_not_read_the_file_neither_waits_nor_claims(self):
        self.second.send(get(flag=0))
        self.assertEqual(answer_of(self.second), -errno.ENOENT)
        self.claim()
        self.second.send(get(flag=0))
        self.assertEqual(answer_of(self.second), -errno.ENOENT)


class Store:
    """What the agents of two nodes share."""

    def __init__(self):
        self.claimed = set()

    def claim(self, key):
        is_first = key not in self.claimed
        self.claimed.add(key)
        return is_first

    def unclaim(self, key):
        self.claimed.discard(key)


class nodes(unittest.TestCase):
    def setUp(self):
        self.store = Store()
        self.one, self.other = Claims(self.store), Claims(self.store)

    def test_another_node_has_to_wait_until_the_claim_ends(self):
        self.assertTrue(self.one.take("block"))
        self.assertFalse(self.one.take("block"))  # for another client of the same node
        self.assertFalse(self.other.take("block"))
        self.assertTrue(self.other.take("another"))
        self.one.end("block")
        self.assertTrue(self.other.take("block"))
        self.assertFalse(self.one.take("block"))

    def test_a_claim_of_a_node_that_died_is_taken_over(self):
        self.assertTrue(self.one.take("block"))
        self.assertFalse(self.other.take("block"))
        self.addCleanup(setattr, _agent_claims, "_CLAIM_SECONDS", _agent_claims._CLAIM_SECONDS)
        _agent_claims._CLAIM_SECONDS = 0.0
        self.assertTrue(self.other.take("block"))

    def test_a_block_that_was_there_in_between_makes_its_next_claim_a_fresh_one(self):
        self.assertTrue(self.one.take("block"))
        self.assertFalse(self.other.take("block"))
        self.other.found("block")
        self.assertNotIn("block", self.other._seen)

    def test_a_claim_that_is_met_after_a_pause_may_be_a_new_one(self):
        clock = [100.0]
        with mock.patch.object(_agent_claims.time, "monotonic", lambda: clock[0]):
            self.assertTrue(self.one.take("block"))
            self.assertFalse(self.other.take("block"))
            clock[0] += 11
            self.assertFalse(self.other.take("block"))
            for _ in range(12):
                clock[0] += 0.9
                taken = self.other.take("block")
            self.assertTrue(taken)
            self.assertNotIn("block", self.other._seen)

    def test_a_store_that_fails_leaves_no_claim_behind(self):
        def fail(key):
            raise OSError("as told")

        self.store.claim = fail
        with self.assertRaises(OSError):
            self.one.take("block")
        del self.store.claim
        self.assertTrue(self.one.take("block"))


if __name__ == "__main__":
    unittest.main()
