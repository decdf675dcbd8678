// The contract of a group: the platform that the engine is a template over. It is the specification
// that lane.hpp, gpu_groups.cuh and coalesced.cuh meet, and a static check that they do; it adds no
// code.
//
// A group is a set of threads that call together with equal arguments ("convergent"). Rank 0 is the
// leader; it alone touches shared state words, while all threads copy. On a group of one lane every
// collective is the identity, which is why no verb has a second, scalar body.
//
//   size(), rank(), is_leader()   how many, and which one calls; constant for the life of the value
//   sync()         all threads of the group arrive; afterwards every thread sees the writes that
//                  any of them made before
//   broadcast(v)   the leader's value, a number of at most 64 bits, in every thread; orders nothing
//                  else
//   all(b)         true in every thread if b was true in every thread
//   home()         a number that spreads groups over shards; equal in all threads of the group
//   now_ns()       a clock that only moves forward; its zero is arbitrary
//   pause(round)   give the processor away for a moment that grows with `round`; bounded by a few
//                  tens of microseconds
//   wake(doorbell) tell a sleeping service thread that a request was posted; a no-op where the
//                  service polls
//   copies_race()  true if copy_out may run while another thread overwrites the frame: then the
//                  engine copies without a pin and checks afterwards. False: the engine pins first,
//                  because an ordinary memcpy must not race. This holds for a host lane under a
//                  sanitizer, or on a processor that host_copy.hpp does not know; for no group of
//                  several threads, since each would pin for itself and could see another page.
//   copy_out(to, from, n)   from a frame to the caller's memory (any alignment)
//   copy_through(to, from, n)    from a window, host memory that shows a file, or from a frame of a
//                           linked cache, to the caller's memory (any alignment)
//   copy_in(to, from, n)    from host memory that the service filled to a frame (16-byte aligned, n
//                           a multiple of 16)
//   zero(to, n)             clears part of a frame (any alignment)
//   copy_store(to, from, n)    from the caller's memory to part of a frame that other groups read
//                              and write at the same time (any alignment); touches no byte outside
//                              of [to, to + n)
//   copy_written(to, from, n)  as copy_out, from a frame that other groups may write to meanwhile
//                              (16-byte aligned)
//   copy_frame(to, from, n)    from frame to frame, both of which other groups may use meanwhile
//                              (16-byte aligned, n a multiple of 16)
//
// A narrow group has at most 32 threads, each of which can hand a value to any other:
//   from_rank(v, r)  the value of 32 or 64 bits that the thread of rank r gave; the threads may
//                    name different ranks. Orders nothing else
//   votes(b)         a bit for each rank, set if its thread gave true
//
// A group of warps, of which each can be used as a group of its own:
//   least(v)         the least value that any thread gave, in every thread
#pragma once

#include "penstock/base/macros.hpp"
#include "penstock/base/standard.hpp"

namespace penstock {

struct host_doorbell;

template <typename Group>
concept group = requires(const Group g, std::uint64_t value, bool flag, std::byte* to,
                         const std::byte* from, std::size_t bytes, host_doorbell* doorbell) {
    { g.size() } -> std::convertible_to<std::uint32_t>;
    { g.rank() } -> std::convertible_to<std::uint32_t>;
    { g.is_leader() } -> std::same_as<bool>;
    {g.sync()};
    { g.broadcast(value) } -> std::same_as<std::uint64_t>;
    { g.all(flag) } -> std::same_as<bool>;
    { g.home() } -> std::convertible_to<std::uint32_t>;
    { g.now_ns() } -> std::same_as<std::uint64_t>;
    {g.pause(std::uint32_t{})};
    {g.wake(doorbell)};
    { Group::copies_race() } -> std::same_as<bool>;
    {g.copy_out(to, from, bytes)};
    {g.copy_through(to, from, bytes)};
    {g.copy_in(to, from, bytes)};
    {g.zero(to, bytes)};
    {g.copy_store(to, from, bytes)};
    {g.copy_written(to, from, bytes)};
    {g.copy_frame(to, from, bytes)};
};

template <typename Group>
concept group_of_warps = group<Group> && requires(const Group g, std::uint64_t value) {
    { g.least(value) } -> std::same_as<std::uint64_t>;
};

template <typename Group>
concept narrow_group = group<Group> &&
    requires(const Group g, std::uint64_t value, std::uint32_t rank, bool flag) {
    { g.from_rank(value, rank) } -> std::same_as<std::uint64_t>;
    { g.from_rank(rank, rank) } -> std::same_as<std::uint32_t>;
    { g.votes(flag) } -> std::same_as<std::uint32_t>;
};

}  // namespace penstock
