// The ring, device half: a queue of requests from groups to a service thread, or to a helper of it.
//
// Life of slot s = t mod N under ticket t:
//
//   step     word                         writer         order, scope     then
//   claim    tail: t -> t + 1             a group's CAS  relaxed, device  the group owns the slot
//   post     requests[s].published = t+1  that group     release, system  the service thread may
//                                                                         read the request
//   answer   replies[s].completed = t+1   the service    release, system  the group may read reply
//            (perhaps with whole_bit)     thread                          and staging
//   recycle  free_ticket[s] = t + N       that group     release, device  ticket t + N may be
//                                                                         claimed
//   orphan   free_ticket[s] = t+N | top   that group     release, device  as above, once completed
//                                                                         says t + 1
//
// Invariants
//  (1) Every word has one writer at a time: tail and free_ticket belong to the device, published to
//      the slot's owner, completed to the service thread. No read-modify-write crosses the bus (the
//      GPU's and the CPU's are not atomic with each other).
//  (2) Ticket t is claimed only after free_ticket[s] = t, that is, after the slot's last owner is
//      done with it, or gave it up and the service thread has answered all the same. So no group
//      writes a staging area that another group reads. The next owner of a slot that was given up
//      settles its unread answer (engine/lost_open.hpp).
//  (3) A group that holds a slot never waits for another slot: claims beyond the first do not
//      block. So a full ring drains.
//  (4) A claim that does not succeed changes nothing, so that a group can give up: a ticket taken
//      by fetch-and-add could not be handed back.
//
// Order pairs: post (release) with the service thread's acquire load: it sees the request and the
// name in the staging area. answer (release) with await (acquire): the group sees reply and
// staging. recycle (release) with claim (acquire): the next owner's request comes after the last
// owner's reads.
//
// Progress: claim is lock-free; await is bounded by the answer, the abort word, the heartbeat and
// the request time-out. Tests: tests/unit/ring_test.cpp, tests/explore (every schedule), tests/fuzz
// (hostile requests).
#pragma once

#include "penstock/base/atomic.hpp"
#include "penstock/base/standard.hpp"
#include "penstock/engine/counters.hpp"
#include "penstock/engine/layout.hpp"
#include "penstock/engine/lost_open.hpp"

namespace penstock::engine {

inline constexpr std::uint64_t orphan_bit = std::uint64_t{1} << 63;

// A claimed slot. `ring` and `ticket` are equal in all threads of the group once broadcast.
struct ring_ticket {
    std::uint32_t ring;
    std::uint64_t ticket;
};

PENSTOCK_HD PENSTOCK_INLINE std::uint32_t slot_of(const ring_view& r, std::uint64_t ticket) {
    return static_cast<std::uint32_t>(ticket) & (r.slots - 1);
}

// May ticket t be claimed, given the slot's free mark?
PENSTOCK_HD PENSTOCK_INLINE bool claimable(const ring_view& r, std::uint64_t free_mark,
                                           std::uint64_t t) {
    if (free_mark == t) return true;
    // Given up by its last owner, ticket t - N: wait until the service thread has answered it.
    return free_mark == (t | orphan_bit) &&
           (atomic_load<order::acquire, scope::system>(&r.replies[slot_of(r, t)].completed) &
            ~whole_bit) == t - r.slots + 1;
}

// Leader only. One attempt to claim a slot; false if the ring is full. `given_up`: the slot's last
// owner did not wait for its answer.
PENSTOCK_HD inline bool try_claim_slot(const ring_view& r, std::uint64_t& ticket, bool& given_up) {
    for (;;) {
        const std::uint64_t t = atomic_load<order::relaxed>(r.tail);
        const std::uint64_t mark = atomic_load<order::acquire>(&r.free_ticket[slot_of(r, t)]);
        if (!claimable(r, mark, t)) {
            // Full, unless another group moved the tail between the two loads.
            if (atomic_load<order::relaxed>(r.tail) == t) return false;
            continue;
        }
        // Relaxed is enough: exclusiveness comes from the exchange, order from the acquire of
        // free_ticket above.
        if (atomic_compare_swap<order::relaxed>(r.tail, t, t + 1)) {
            ticket = t;
            given_up = (mark & orphan_bit) != 0;
            return true;
        }
    }
}

// One thread: makes the request visible to the service thread. The group must have synchronised
// after its other threads wrote to the staging area.
template <typename Group>
PENSTOCK_HD inline void post(const Group& g, const cache_view& c, const ring_ticket& at,
                             const ring_request& request) {
    const ring_view& r = c.rings[at.ring];
    ring_request& slot = r.requests[slot_of(r, at.ticket)];
    slot.operation = request.operation;
    slot.bytes = request.bytes;
    slot.file_slot = request.file_slot;
    slot.generation = request.generation;
    slot.offset = request.offset;
    slot.argument = request.argument;
    slot.open_slot = request.open_slot;
    atomic_store<order::release, scope::system>(&slot.published, at.ticket + 1);
    g.wake(r.doorbell);
    count(g, c, count_requests);
}

// How much of the time since a waiter last looked counts as time in which it was away. A process
// may be stopped (Ctrl-Z, SIGSTOP, a debugger), and then the threads that it waits for are stopped
// too: such time says nothing of them. A waiter cannot ask for how long it was stopped, so of the
// time between two looks it counts at most a quarter of its limit. After a stop, however long, the
// others have three quarters of the limit left. No wait that looks in shorter steps gets longer by
// this; one that looks seldom ends with its fifth look at the latest.
PENSTOCK_HD inline std::uint64_t time_away(std::uint64_t since_look_ns, std::uint64_t limit_ns) {
    constexpr std::uint64_t always_counts_ns = 10'000'000;
    const std::uint64_t most = limit_ns / 4 > always_counts_ns ? limit_ns / 4 : always_counts_ns;
    return since_look_ns > most ? since_look_ns - most : 0;
}

// The deadline of a waiting group, which watches three things: the abort word, the heartbeat and
// its time limit. The first two lie in host memory, at one place for all groups, and reads of one
// place over the bus come one after the other: a few million a second for the whole GPU. So a group
// looks there only every look_ns of the cache. When thousands of waiting groups looked every few
// microseconds, they mostly waited for these looks (bench/results/h200/2026-11-21-ring.txt). Making
// a wait_deadline costs nothing on the bus, since the heartbeat is never 0 and the first look takes
// its value.
class wait_deadline {
public:
    template <typename Group>
    PENSTOCK_HD wait_deadline(const Group& g, std::uint64_t limit_ns)
        : wait_deadline(g.now_ns(), limit_ns) {}
    // The wait began at `start_ns`.
    PENSTOCK_HD wait_deadline(std::uint64_t start_ns, std::uint64_t limit_ns)
        : start_ns_(start_ns), limit_ns_(limit_ns), looked_ns_(start_ns), beat_ns_(start_ns) {}

    // 0 to go on, or the negative errno to give up with. Leader only.
    template <typename Group>
    PENSTOCK_HD std::int64_t check(const Group& g, const cache_view& c) {
        return look(c, g.now_ns());
    }

    // The caller waited for something else until now, and all of that time counts. The next check
    // looks if it is time to.
    template <typename Group>
    PENSTOCK_HD void come_back(const Group& g, const cache_view& c) {
        const std::uint64_t now = g.now_ns();
        if (now - looked_ns_ > c.look_ns) looked_ns_ = now - c.look_ns;
    }

    // When the wait began; later by the time in which the waiter was away.
    PENSTOCK_HD std::uint64_t start_ns() const { return start_ns_; }

    // A free frame that was found when the wait ended, for the next search (engine/victim.hpp);
    // another group may take it first.
    std::uint32_t offered_frame = no_frame;
    // The caller wants the frame for a page that it makes dirty, a page of the file in this slot.
    bool makes_dirty = false;
    std::uint32_t file_slot = 0;
    PENSTOCK_HD void dirties(std::uint32_t slot) {
        makes_dirty = true;
        file_slot = slot;
    }
    // During this wait the caller has looked for a page to write back, but has gained no frame.
    bool tried_write = false;
    // The error of a write-back for a frame during this wait, or 0. The caller gets this error if
    // it gets no frame.
    std::int64_t write_error = 0;

private:
    // A function of its own: a kernel has some twenty waits.
    PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t look(const cache_view& c, std::uint64_t now) {
        const std::uint64_t since_look = now - looked_ns_;
        if (since_look < c.look_ns && now - start_ns_ <= limit_ns_) return 0;
        looked_ns_ = now;
        start_ns_ += time_away(since_look, limit_ns_);
        beat_ns_ += time_away(since_look, c.host_wait_ns);
        const std::int64_t code =
            atomic_load<order::relaxed, scope::system>(&c.control->abort_code);
        if (code != 0) return code;
        const std::uint64_t beat =
            atomic_load<order::relaxed, scope::system>(&c.control->heartbeat);
        if (beat != beat_) {
            beat_ = beat;
            beat_ns_ = now;
        } else if (now - beat_ns_ > c.host_wait_ns) {
            return -ETIMEDOUT;
        }
        return now - start_ns_ > limit_ns_ ? -ETIME : 0;
    }

    std::uint64_t start_ns_, limit_ns_, looked_ns_, beat_ns_, beat_ = 0;
};

// The stop word, for groups that wait for nothing: a copy of the abort word, in device memory on a
// GPU, which the runtime's monitor keeps up to date. It is 0, or the negative errno with which
// every call that reads, writes, maps or opens ends from now on. A miss looks at it before it loads
// the page from anywhere; so does an open and a gather. Hits of reads, maps and writes look when it
// is their turn, one in 32 on a GPU, since all of them load one word, in one slice of the
// second-level cache. Close, unmap, flushes and views of elements in the cache do not look.
// Relaxed: it orders nothing.
PENSTOCK_HD PENSTOCK_INLINE std::int64_t stop_code(const cache_view& c) {
    return c.stop == nullptr ? 0 : atomic_load<order::relaxed>(c.stop);
}
PENSTOCK_HD PENSTOCK_INLINE std::int64_t stop_code_in_turn(const cache_view& c) {
#if PENSTOCK_ON_DEVICE
    if ((static_cast<std::uint32_t>(clock()) & 0x1f0) != 0) return 0;
#endif
    return stop_code(c);
}

// Whole group: the leader's code, 0, a negative errno or a small number, in all threads. In 32
// bits, for each register takes an exchange of its own.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t share_code(const Group& g, std::int64_t code) {
    return g.broadcast(static_cast<std::int32_t>(code));
}

// Whole group: the leader looks, and all threads get its result.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t shared_stop_code(const Group& g, const cache_view& c) {
    return share_code(g, g.is_leader() ? stop_code(c) : 0);
}

// Leader only: one attempt at the ring that `out` names. The group that claims a slot posts a
// request in it.
PENSTOCK_HD inline bool try_take_slot(const cache_view& c, ring_ticket& out) {
    const ring_view& r = c.rings[out.ring];
    bool given_up = false;
    if (!try_claim_slot(r, out.ticket, given_up)) return false;
    ring_request& request = r.requests[slot_of(r, out.ticket)];
    request.lost_extent =
        given_up ? adopt_lost_open(c, request, r.replies[slot_of(r, out.ticket)]) : 0;
    return true;
}

// Leader only: waits for a slot of the ring that `out` names. Returns 0, -EAGAIN, or the code that
// ended the wait.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t await_slot(const Group& g, const cache_view& c,
                                                      ring_ticket& out) {
    count(g, c, count_ring_waits);
    wait_deadline waiting(g, c.request_wait_ns);
    for (std::uint32_t round = 0;; ++round) {
        g.pause(round);
        if (try_take_slot(c, out)) return 0;
        if (round % 16 == 15) {
            const std::int64_t code = waiting.check(g, c);
            if (code != 0) return code == -ETIME ? -EAGAIN : code;
        }
    }
}

// Leader only: claims a slot of ring `first`, or of the ring `step` further on, and waits for a
// slot if `may_wait`. Returns 0, -EAGAIN, or the code that ended the wait.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t claim_slot_of(const Group& g, const cache_view& c,
                                                       bool may_wait, std::uint32_t first,
                                                       std::uint32_t step, ring_ticket& out) {
    const std::uint32_t last = c.ring_count > step ? (first + step) % c.ring_count : first;
    for (out.ring = first;; out.ring = last) {
        if (try_take_slot(c, out)) return 0;
        if (out.ring == last) break;
    }
    return may_wait ? await_slot(g, c, out) : -EAGAIN;
}

// The same for the group's own ring; if that is full, the ring of another service thread may not
// be.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t claim_slot(const Group& g, const cache_view& c,
                                                      bool may_wait, ring_ticket& out) {
    return claim_slot_of(g, c, may_wait, static_cast<std::uint32_t>(mix64(g.home()) % c.ring_count),
                         1, out);
}

// A waiter looks this often before it looks at its deadline.
inline constexpr std::uint32_t quick_rounds = 16;

// Leader only: has the service thread answered? `is_whole`: with all bytes of a read. Acquire:
// pairs with its release; the group may read reply and staging. On a GPU the load itself is
// relaxed, and a fence follows the load that succeeds: each acquire load would empty the
// first-level cache of the multiprocessor, and thousands of groups look again and again.
PENSTOCK_HD PENSTOCK_INLINE bool is_answered(const std::uint64_t* completed, std::uint64_t ticket,
                                             bool& is_whole) {
#if PENSTOCK_ON_DEVICE
    const std::uint64_t seen = atomic_load<order::relaxed, scope::system>(completed);
    if ((seen & ~whole_bit) != ticket + 1) return false;
    system_fence();
#else
    const std::uint64_t seen = atomic_load<order::acquire, scope::system>(completed);
    if ((seen & ~whole_bit) != ticket + 1) return false;
#endif
    is_whole = (seen & whole_bit) != 0;
    return true;
}

// Leader only: goes on with a wait for an answer that began at `start_ns`, as await_whole. Returns
// 0 when it is there.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t await_late(const Group& g, const cache_view& c,
                                                      const std::uint64_t* completed,
                                                      std::uint64_t ticket, std::uint64_t start_ns,
                                                      bool& is_whole) {
    wait_deadline waiting(start_ns, c.request_wait_ns);
    for (std::uint32_t round = quick_rounds;; ++round) {
        if (is_answered(completed, ticket, is_whole)) return 0;
        if (round % 16 == 0) {
            const std::int64_t code = waiting.check(g, c);
            if (code != 0) return code == -ETIME ? -ETIMEDOUT : code;
        }
        g.pause(round);
    }
}

// Leader only: waits for the answer. Returns 1 when it is there with all bytes of a read, 0 when it
// is there and has to be looked at, else the negative errno of the wait. In that case the caller
// has to pass the slot to orphan_slot, for the service thread may still write to it.
template <typename Group>
PENSTOCK_HD PENSTOCK_NOINLINE std::int64_t await_whole(const Group& g, const cache_view& c,
                                                       const ring_ticket& at) {
    const ring_view& r = c.rings[at.ring];
    const std::uint64_t* completed = &r.replies[slot_of(r, at.ticket)].completed;
    const std::uint64_t start_ns = g.now_ns();
    bool is_whole = false, answered = false;
    for (std::uint32_t round = 0; !answered && round < quick_rounds; ++round) {
        answered = is_answered(completed, at.ticket, is_whole);
        if (!answered) g.pause(round);
    }
    if (!answered) {
        const std::int64_t code = await_late(g, c, completed, at.ticket, start_ns, is_whole);
        if (code != 0) return code;
    }
    count_latency(g, c, g.now_ns() - start_ns);
    return is_whole ? 1 : 0;
}

// The same, for a caller that looks at the answer in any case.
template <typename Group>
PENSTOCK_HD PENSTOCK_INLINE std::int64_t await(const Group& g, const cache_view& c,
                                               const ring_ticket& at) {
    const std::int64_t waited = await_whole(g, c, at);
    return waited > 0 ? 0 : waited;
}

// Leader only, after the group has read all that it needs of reply and staging.
PENSTOCK_HD inline void recycle_slot(const cache_view& c, const ring_ticket& at) {
    const ring_view& r = c.rings[at.ring];
    atomic_store<order::release>(&r.free_ticket[slot_of(r, at.ticket)], at.ticket + r.slots);
}

// The same by a leader that has published the page: on a GPU the fence of publish orders the
// group's reads of the staging area before this store too, and a second fence would take a third of
// a microsecond.
PENSTOCK_HD inline void recycle_published(const cache_view& c, const ring_ticket& at) {
#if PENSTOCK_ON_DEVICE
    const ring_view& r = c.rings[at.ring];
    atomic_store<order::relaxed>(&r.free_ticket[slot_of(r, at.ticket)], at.ticket + r.slots);
#else
    recycle_slot(c, at);
#endif
}

PENSTOCK_HD inline void orphan_slot(const cache_view& c, const ring_ticket& at) {
    const ring_view& r = c.rings[at.ring];
    atomic_store<order::release>(&r.free_ticket[slot_of(r, at.ticket)],
                                 (at.ticket + r.slots) | orphan_bit);
}

// The words of a fill, whose answer no group waits for (engine/fill.hpp has their protocol).
//
// begin_mark: before the page is published, which orders it. read_mark (acquire): pairs with
// settle_mark (release), so that a group that finds a fill settled sees its bytes. read_done
// (acquire): pairs with the release of the service thread. settle_mark: true for the one group that
// settled the mark; acquire too, for that group may go on to write the frame.
PENSTOCK_HD PENSTOCK_INLINE void begin_mark(std::uint64_t* mark, std::uint64_t stamp) {
    atomic_store<order::relaxed>(mark, stamp);
}
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t read_mark(const std::uint64_t* mark) {
    return atomic_load<order::acquire>(mark);
}
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t read_done(const std::uint64_t* done) {
    return atomic_load<order::acquire, scope::system>(done);
}
PENSTOCK_HD PENSTOCK_INLINE bool settle_mark(std::uint64_t* mark, std::uint64_t stamp,
                                             std::uint64_t outcome) {
    return atomic_compare_swap<order::acq_rel>(mark, stamp, outcome);
}

// The states of a loan's parts, in host memory (engine/lend.hpp). clear_part: called by the host
// before the groups begin, which orders it. tell_part (release): pairs with look_at_part (acquire),
// so that the host sees the bytes of a part whose state is part_there.
PENSTOCK_HD PENSTOCK_INLINE void clear_part(std::uint32_t* state) {
    atomic_store<order::relaxed, scope::system>(state, std::uint32_t{0});
}
PENSTOCK_HD PENSTOCK_INLINE void tell_part(std::uint32_t* state, std::uint32_t value) {
    atomic_store<order::release, scope::system>(state, value);
}
PENSTOCK_HD PENSTOCK_INLINE std::uint32_t look_at_part(const std::uint32_t* state) {
    return atomic_load<order::acquire, scope::system>(state);
}

// The note of a table (engine/table_rows.hpp). take_note, by the host, and look_taken, by groups:
// release and acquire, so that a group does not overwrite a note before the host has read it.
// claim_note orders nothing: each note has one claimer. publish_note and look_published: release
// and acquire, so that the host reads a whole note.
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t look_taken(const std::uint64_t* taken) {
    return atomic_load<order::acquire, scope::system>(taken);
}
PENSTOCK_HD PENSTOCK_INLINE bool claim_note(std::uint64_t* claimed, std::uint64_t taken) {
    return atomic_compare_swap<order::relaxed>(claimed, taken, taken + 1);
}
PENSTOCK_HD PENSTOCK_INLINE void publish_note(std::uint64_t* published, std::uint64_t number) {
    atomic_store<order::release, scope::system>(published, number);
}
PENSTOCK_HD PENSTOCK_INLINE std::uint64_t look_published(const std::uint64_t* published) {
    return atomic_load<order::acquire, scope::system>(published);
}
PENSTOCK_HD PENSTOCK_INLINE void take_note(std::uint64_t* taken, std::uint64_t number) {
    atomic_store<order::release, scope::system>(taken, number);
}

}  // namespace penstock::engine
