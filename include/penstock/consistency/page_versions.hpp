// One page of a file that CPU programs and devices share: which copies there are, which changes
// each of them has, and what must be done before one of them may use the page. Home-based lazy
// release consistency as a pure state machine: no bytes, no locks, no system calls.
//
// Copies. The home is the host's, in memory or, dropped from there, in storage. A device has a
// replica and, if it may write, a base: the bytes that the home had when the replica was filled.
// What differs between the two are the device's own changes. The CPU's programs have a view of the
// home: what the kernel keeps for them, in which they write whenever they like.
//
// Versions. Each release of a change is stamped by one clock for all pages; released[w] is when w
// last released a change of this page, so `released` is the page's version vector. Whatever fills a
// replica brings home all released changes first, so the vectors of replicas are ordered by time,
// and one number stands for each: seen[d] says that the replica has every change that others
// released up to then. It is outdated when one of them released later. (The same decisions as with
// a vector in each replica: tests/consistency compares them in every state.)
//
// Rules, and what breaks without them (each is a canary in tests/consistency):
// 1. Changes of devices reach the home while the CPU has no view: the kernel writes a page back
//    whole, over what came meanwhile.
// 2. All changes released by then are brought home together, in the order of the devices: of two
//    that changed one byte, neither having seen the other's change, the later device wins. A change
//    that is at home already loses to one that is brought later.
// 3. What was brought home becomes the base of that replica, also if the step fails before it has
//    brought all. Else the same change would be brought again, over one that was made knowing it;
//    and a byte that the device puts back to what it was before would look unchanged.
// 4. A mark that says "to be done" goes before the bytes are looked at, and comes back if that
//    failed: what is marked meanwhile stays marked.
// 5. A replica is filled around the device's own changes; they are kept until they are released and
//    brought home.
// 6. The CPU's writes are stamped at each acquire of a device, and each release of a device takes
//    the CPU's view away: so the CPU's programs call nothing.
//
// The caller holds the page from a first next_for_...() until that gives `nothing`: one request at
// a time. Releases, acquires and writes of the CPU may come between its steps. Each call by itself
// needs a lock, or one thread.
//
// (Lazy release consistency: Keleher, Cox, Zwaenepoel, ISCA 1992; home-based: Zhou, Iftode, Li,
// OSDI 1996; over CPU and GPU: Brokhman et al., GAIA, 2019, whose replicas have a vector each.
// Version vectors: Parker et al., 1983.)
#pragma once

#include <cstdint>

#include "penstock/base/macros.hpp"

namespace penstock::consistency {

using stamp = std::uint64_t;      // of a release, from 1 on; 0: never
using place = std::uint32_t;      // cpu, or a device from 1 on
using place_set = std::uint32_t;  // bit p: place p
inline constexpr place cpu = 0;

constexpr place_set only(place holder) { return place_set{1} << holder; }
constexpr bool has(place_set set, place holder) { return (set >> holder & 1) != 0; }
constexpr place first_of(place_set set) {
    place holder = 0;
    while (!has(set, holder)) ++holder;
    return holder;
}

enum class work : std::uint8_t {
    nothing,
    invalidate_view,  // write back what the CPU's programs changed in their view (wrote_by_cpu),
                      // then take it away; ends when no access is under way
    load_home,        // bring the page from one of `from` into the host's memory
    collect,     // the own changes of device `holder` go over the home, and become part of its base
    fill,        // from one of `from`: base and replica of device `holder` take each byte, but the
                 // replica keeps what it has changed
    write_back,  // the home goes to storage
    drop,        // the copy of `holder` is given up
};

struct step {
    work kind = work::nothing;
    place holder = cpu;
    place_set from = 0;  // any one of these has the bytes
    stamp seen = 0;      // of a fill: what the replica will have
};

template <unsigned Devices>
struct page_versions {
    static_assert(Devices >= 1 && Devices <= 16);
    static constexpr place storage = Devices + 1;

    stamp released[Devices + 1]{};  // by place
    stamp seen[Devices + 1]{};  // by device; [cpu] is not used, for the home has what was brought
                                // there and the CPU's own
    place_set present = 0;      // places that have a copy in memory; the CPU's is the home
    place_set stale = 0;        // devices that must not use their replica before it is filled again
    place_set pending = 0;      // devices with released changes that are not at home
    bool view = false;          // the CPU's programs may use the page without asking
    bool newer = false;         // than storage: the home
    bool wrote = false;         // the CPU, and that is not stamped yet

    bool operator==(const page_versions&) const = default;
};

template <unsigned D>
constexpr stamp newest_of_others(const page_versions<D>& p, place holder) {
    stamp newest = 0;
    for (place w = 0; w <= D; ++w)
        if (w != holder && p.released[w] > newest) newest = p.released[w];
    return newest;
}

// Of a device with a replica: did others release changes that it has not?
template <unsigned D>
constexpr bool is_outdated(const page_versions<D>& p, place device) {
    return newest_of_others(p, device) > p.seen[device];
}

// Where the bytes of the home can be had, as seen by a group that holds the page. A device's base
// counts, if nothing came home after it.
template <unsigned D>
constexpr place_set sources(const page_versions<D>& p) {
    place_set out = has(p.present, cpu) ? only(cpu) : 0;
    if (!p.newer) out |= only(page_versions<D>::storage);
    for (place d = 1; d <= D; ++d)
        if (has(p.present & ~p.pending, d) && !p.wrote && !is_outdated(p, d)) out |= only(d);
    return out;
}

// ---- what happened

// The CPU's programs changed the page, and the bytes are at home. After them: a stamp given in
// between would not be theirs.
template <unsigned D>
constexpr void wrote_by_cpu(page_versions<D>& p) {
    p.wrote = true;
    p.newer = true;
}

// Device `holder` acquires at `now`, later than every stamp before; what the CPU changed in its
// view was brought home before. It uses the page no more until its acquire is done. True if it
// needs the page filled before it uses it again. Moves nothing.
template <unsigned D>
constexpr bool acquire(page_versions<D>& p, place holder, stamp now) {
    if (p.wrote) p.released[cpu] = now;
    p.wrote = false;
    if (has(p.present, holder) && is_outdated(p, holder)) p.stale |= only(holder);
    return !has(p.present & ~p.stale, holder);
}

// Device `holder`, whose replica differs from its base, releases at `now`. Moves nothing; then
// next_for_release().
template <unsigned D>
constexpr void release(page_versions<D>& p, place holder, stamp now) {
    PENSTOCK_ASSERT(has(p.present, holder));
    p.released[holder] = now;
    p.pending |= only(holder);
}

// Nothing was left to be done for an access of the CPU: its programs may use the page until the
// view is taken away.
template <unsigned D>
constexpr void admit_cpu(page_versions<D>& p) {
    PENSTOCK_ASSERT(has(p.present, cpu) && p.pending == 0);
    p.view = true;
}

// Where every replica has all that was released and nothing is to be done, the stamps tell nothing
// that matters later, for a new one is later than all. Without them pages that have seen different
// things are alike, and one record can stand for many. Only while no step of the page is under way.
template <unsigned D>
constexpr void forget_stamps(page_versions<D>& p) {
    if (p.pending != 0 || p.stale != 0 || p.wrote) return;
    for (place d = 1; d <= D; ++d)
        if (has(p.present, d) && is_outdated(p, d)) return;
    for (place w = 0; w <= D; ++w) p.released[w] = p.seen[w] = 0;
}

// ---- what to do next; `nothing` when the page is as it must be

namespace detail {

template <unsigned D>
constexpr step load_home(const page_versions<D>& p) {
    return {work::load_home, cpu, sources(p), 0};
}

// Everything that was released, to the home.
template <unsigned D>
constexpr step bring_home(const page_versions<D>& p) {
    if (p.pending == 0) return {};
    if (p.view) return {work::invalidate_view, cpu, 0, 0};
    if (!has(p.present, cpu)) return load_home(p);
    return {work::collect, first_of(p.pending), 0, 0};
}

}  // namespace detail

// A release ends when the CPU's programs no longer see what was before.
template <unsigned D>
constexpr step next_for_release(const page_versions<D>& p) {
    return p.pending != 0 && p.view ? step{work::invalidate_view, cpu, 0, 0} : step{};
}

template <unsigned D>
constexpr step next_for_access(const page_versions<D>& p, place holder) {
    if (holder == cpu ? p.view : has(p.present & ~p.stale, holder)) return {};
    if (const step first = detail::bring_home(p); first.kind != work::nothing) return first;
    if (holder == cpu) return has(p.present, cpu) ? step{} : detail::load_home(p);
    return {work::fill, holder, sources(p) & ~only(holder), newest_of_others(p, holder)};
}

// The copy of `holder` is to go. A device uses the page no more, and what it changed was released.
template <unsigned D>
constexpr step next_for_eviction(const page_versions<D>& p, place holder) {
    if (!has(p.present, holder)) return {};
    if (holder != cpu) {
        if (!has(p.pending, holder)) return {work::drop, holder, 0, 0};
        return detail::bring_home(p);
    }
    if (p.view) return {work::invalidate_view, cpu, 0, 0};
    return {p.newer ? work::write_back : work::drop, cpu, 0, 0};
}

// All that was released by now, and all that the CPU changed, to storage.
template <unsigned D>
constexpr step next_for_sync(const page_versions<D>& p) {
    if (const step first = detail::bring_home(p); first.kind != work::nothing) return first;
    return p.newer ? step{work::write_back, cpu, 0, 0} : step{};
}

// ---- around the doing of a step

template <unsigned D>
constexpr void begin(page_versions<D>& p, const step& s) {
    switch (s.kind) {
        case work::invalidate_view: p.view = false; break;
        case work::collect:
            p.pending &= ~only(s.holder);
            p.newer = true;
            break;
        case work::write_back: p.newer = false; break;
        case work::drop:
            p.present &= ~only(s.holder);
            p.stale &= ~only(s.holder);
            break;
        default: break;
    }
}

// `done`: else it failed, or was given up half way; nothing is lost, and the same step comes next.
template <unsigned D>
constexpr void finish(page_versions<D>& p, const step& s, bool done) {
    switch (s.kind) {
        case work::invalidate_view: p.view = p.view || !done; break;
        case work::load_home:
            if (done) p.present |= only(cpu);
            break;
        case work::collect:
            if (!done) p.pending |= only(s.holder);
            break;
        case work::fill:
            if (!done) break;
            p.present |= only(s.holder);
            p.stale &= ~only(s.holder);
            p.seen[s.holder] = s.seen;
            break;
        case work::write_back: p.newer = p.newer || !done; break;
        default: break;
    }
}

}  // namespace penstock::consistency
