// What can happen next in a world: programs, devices and the kernel may act at any time; a request
// goes step by step, and each step begins, moves bytes and ends.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string>

#include "consistency/world.hpp"

namespace penstock::consistency::model {

// The protocol as it is; a canary puts a broken step in place of one. Values and not types, so that
// the compiler makes one search for all of them.
template <unsigned Devices>
struct rules {
    using page = page_versions<Devices>;

    bool base_moves = true, fill_keeps_own = true, view_is_written_back = true;
    bool looks_inside = true;  // not only at what programs read
    bool cpu_programs = true;  // they read and write too, by their view
    // Changes come home in any order of the devices, not in that of their numbers alone: more may
    // happen, and nothing depends on the numbers.
    bool any_order = false;
    void (*acquire)(page&, place, stamp) = [](page& p, place holder, stamp now) {
        consistency::acquire(p, holder, now);
    };
    step (*for_release)(const page&) = [](const page& p) { return next_for_release(p); };
    step (*for_access)(const page&, place) = [](const page& p, place holder) {
        return next_for_access(p, holder);
    };
    step (*for_eviction)(const page&, place) = [](const page& p, place holder) {
        return next_for_eviction(p, holder);
    };
    step (*for_sync)(const page&) = [](const page& p) { return next_for_sync(p); };
    void (*forget)(page&) = [](page& p) { forget_stamps(p); };
    void (*begin)(page&, const step&) = [](page& p, const step& s) { consistency::begin(p, s); };
    void (*finish)(page&, const step&, bool) = [](page& p, const step& s, bool done) {
        consistency::finish(p, s, done);
    };
};

// Symmetric: states that differ in the numbers of devices only are one; the rules are to bring
// changes home in any order.
template <unsigned Devices, bool Symmetric>
class moves {
public:
    using state = world<Devices>;
    static constexpr bool symmetric = Symmetric;

    // `most` writes of the byte that is looked at; with `trouble` steps fail and syncs come too.
    moves(value most, bool trouble, const rules<Devices>& by)
        : most_(most), trouble_(trouble), rules_(by) {
        if (symmetric && !by.any_order) std::abort();  // the test is wrong
    }

    template <typename Emit>
    void each(const state& s, Emit&& emit) const {
        programs(s, emit);
        synchronisation(s, emit);
        if (s.asked == wish::none) requests(s, emit), records(s, emit);
        else within_step(s, emit);
    }

    [[nodiscard]] const char* wrong(const state& s) const {
        for (place d = 1; d <= Devices; ++d)
            if (s.may_use(d) && !s.is_right(s.replica[d], s.known[d]))
                return "a device reads what was replaced before it acquired";
        if (s.p.view && !s.is_right(s.view, s.known[cpu]))
            return "the CPU reads what was replaced before a release returned";
        return rules_.looks_inside ? wrong_inside(s) : nullptr;
    }

private:
    static const char* wrong_inside(const state& s) {
        for (place d = 1; d <= Devices; ++d)
            if (has(s.p.present, d) && is_outdated(s.p, d) != s.vector_says_outdated(d))
                return "the stamps do not decide as version vectors";
        if ((s.p.pending & ~s.p.present) != 0 || (s.p.stale & ~s.p.present) != 0)
            return "a mark of a replica that is not there";
        if (s.p.view && !has(s.p.present, cpu)) return "a view of a home that is not there";
        if (!has(s.p.present, cpu) && s.p.newer)
            return "the home was dropped and is newer than storage";
        if (s.asked == wish::none && !sources_are_equal(s))
            return "two places that are said to have the home's bytes differ";
        return nullptr;
    }
    static value bytes_of(const state& s, place where) {
        return where == cpu ? s.home : where == state::page::storage ? s.stored : s.base[where];
    }
    static bool sources_are_equal(const state& s) {
        const place_set all = sources(s.p);
        if (all == 0) return false;
        for (place w = 0; w <= state::page::storage; ++w)
            if (has(all, w) && bytes_of(s, w) != bytes_of(s, first_of(all))) return false;
        return true;
    }
    static std::string numbered(const char* label, place holder) {
        return std::string(label) + " " + std::to_string(holder);
    }

    template <typename Emit>
    void programs(const state& s, Emit&& emit) const {
        for (place d = 1; d <= Devices; ++d) {
            if (!s.may_use(d)) continue;
            state n = s;
            n.others_changed[d] = true;
            emit(
                n, [d] { return numbered("a write of other bytes by device", d); }, nullptr);
            if (s.writes == most_) continue;
            n = s;
            n.write(n.replica[d], d);
            emit(
                n, [d] { return numbered("a write by device", d); }, nullptr);
        }
        if (s.view_is_there()) {
            state n = s;
            n.view_changed = true;
            emit(
                n, [] { return std::string("a write of other bytes by the CPU"); }, nullptr);
            if (s.writes < most_) {
                n.write(n.view, cpu);
                emit(
                    n, [] { return std::string("a write by the CPU"); }, nullptr);
            }
        }
        if (!s.view_changed) return;
        state n = s;
        write_view_back(n);
        emit(
            n, [] { return std::string("the kernel writes the view back"); }, nullptr);
    }

    // Whole, as a kernel does.
    static void write_view_back(state& n) {
        if (!n.view_changed) return;
        n.home = n.view;
        n.view_changed = false;
        wrote_by_cpu(n.p);
    }

    static void give_stamp(state& n, place d) {
        release(n.p, d, n.later());
        ++n.count[d];
    }

    template <typename Emit>
    void synchronisation(const state& s, Emit&& emit) const {
        for (place d = 1; d <= Devices; ++d) {
            if (!s.at_boundary(d)) continue;
            state n = s;
            if (rules_.view_is_written_back) write_view_back(n);
            n.published |= n.known[cpu];
            n.known[d] |= n.published;
            if (n.p.wrote) n.has_home[cpu] = ++n.count[cpu];
            rules_.acquire(n.p, d, n.later());
            emit(
                n, [d] { return numbered("an acquire of device", d); }, nullptr);

            n = s;
            n.published |= n.known[d];
            n.returning = true;
            if (has(n.p.present, d) && n.is_changed(d)) give_stamp(n, d);
            emit(
                n, [d] { return numbered("a release of device", d); }, nullptr);
        }
        if (!s.returning || rules_.for_release(s.p).kind != work::nothing ||
            s.doing.kind == work::invalidate_view)
            return;
        state n = s;
        n.returning = false;
        n.known[cpu] |= n.published;
        emit(
            n, [] { return std::string("a release returns"); }, nullptr);
    }

    template <typename Label, typename Emit>
    void ask(state n, wish request, place holder, const Label& label, Emit&& emit) const {
        n.asked = request;
        n.by = holder;
        next_step(n, label, emit);
    }

    // The keeper of the records forgets stamps that tell nothing. That must lead to no state that
    // would not be there without it.
    template <typename Emit>
    void records(const state& s, Emit&& emit) const {
        state n = s;
        rules_.forget(n.p);
        if (!(n.p == s.p))
            emit(
                n, [] { return std::string("stamps are forgotten"); }, nullptr);
    }

    template <typename Emit>
    void requests(const state& s, Emit&& emit) const {
        if (s.returning && rules_.for_release(s.p).kind != work::nothing)
            ask(
                s, wish::release_end, cpu, [] { return std::string("that release goes on"); },
                emit);
        if (rules_.cpu_programs && !s.p.view)
            ask(
                s, wish::access, cpu, [] { return std::string("the CPU wants the page"); }, emit);
        if (has(s.p.present, cpu))
            ask(
                s, wish::evict, cpu, [] { return std::string("the home is to be dropped"); }, emit);
        for (place d = 1; d <= Devices; ++d) {
            if (!has(s.p.present & ~s.p.stale, d))
                ask(
                    s, wish::access, d, [d] { return numbered("the page is wanted by device", d); },
                    emit);
            if (!has(s.p.present, d)) continue;
            state n = s;
            // The device's changes go home before their time. No place may rely on not seeing them.
            if (n.is_changed(d)) give_stamp(n, d);
            ask(
                n, wish::evict, d,
                [d] { return numbered("the replica is to be dropped of device", d); }, emit);
        }
        if (!trouble_) return;
        state n = s;
        write_view_back(n);
        n.wanted = n.published | n.known[cpu];
        ask(
            n, wish::sync, cpu, [] { return std::string("a sync"); }, emit);
    }

    [[nodiscard]] step next_for(const state& s) const {
        switch (s.asked) {
            case wish::release_end: return rules_.for_release(s.p);
            case wish::access: return rules_.for_access(s.p, s.by);
            case wish::evict: return rules_.for_eviction(s.p, s.by);
            default: return rules_.for_sync(s.p);
        }
    }

    // The request has its next step begun at once, or ends: the step before, the choice and the
    // beginning are under one lock.
    template <typename Label, typename Emit>
    void next_step(const state& s, const Label& label, Emit&& emit) const {
        const step next = next_for(s);
        if (next.kind == work::nothing) return end_request(s, label, emit);
        if (!rules_.any_order || next.kind != work::collect)
            return begin_step(s, next, label, emit);
        for (place d = 1; d <= Devices; ++d)
            if (has(s.p.pending, d)) begin_step(s, {work::collect, d, 0, 0}, label, emit);
    }

    template <typename Label, typename Emit>
    void begin_step(const state& s, const step& next, const Label& label, Emit&& emit) const {
        static constexpr const char* name[] = {
            "", "take the view away", "load the home", "collect", "fill", "write back", "drop"};
        for (place from = 0; from <= state::page::storage; ++from) {
            if (next.from != 0 ? !has(next.from, from) : from != 0) continue;
            state n = s;
            n.doing = next;
            n.source = from;
            n.moved = false;
            rules_.begin(n.p, next);
            if (next.kind == work::collect) n.has_home[next.holder] = n.count[next.holder];
            if (next.kind == work::fill)
                std::copy(std::begin(n.has_home), std::end(n.has_home), n.has_filled);
            const auto told = [&] {
                return label() +
                       "; begins: " + numbered(name[static_cast<int>(next.kind)], next.holder) +
                       (next.from != 0 ? numbered(" from", from) : std::string());
            };
            emit(n, told, nullptr);
        }
    }

    template <typename Label, typename Emit>
    void end_request(state n, const Label& label, Emit&& emit) const {
        const char* wrong = nullptr;
        if (n.asked == wish::access && n.by == cpu) {
            admit_cpu(n.p);
            n.view = n.home;
        }
        if (n.asked == wish::sync && !n.is_right(n.stored, n.wanted))
            wrong = "a sync ended, and storage lacks what was written before it";
        n.asked = wish::none;
        n.doing = {};
        emit(
            n, [&] { return label() + "; that request ends"; }, wrong);
    }

    void move_bytes(state& n) const {
        const place d = n.doing.holder;
        n.moved = true;
        switch (n.doing.kind) {
            case work::load_home: n.home = bytes_of(n, n.source); break;
            case work::collect:
                if (n.replica[d] != n.base[d]) n.home = n.replica[d];
                if (!rules_.base_moves) break;
                n.base[d] = n.replica[d];
                n.others_changed[d] = false;
                break;
            case work::fill: {
                const value now = bytes_of(n, n.source);
                const bool own = has(n.p.present, d) && n.replica[d] != n.base[d];
                if (!own || !rules_.fill_keeps_own) n.replica[d] = now;
                n.base[d] = now;
                break;
            }
            case work::write_back: n.stored = n.home; break;
            default: break;
        }
    }

    template <typename Emit>
    void within_step(const state& s, Emit&& emit) const {
        const bool has_bytes = s.doing.kind != work::invalidate_view && s.doing.kind != work::drop;
        if (trouble_ && s.doing.kind != work::drop) {
            state n = s;
            rules_.finish(n.p, n.doing, false);
            n.doing = {};
            n.asked = wish::none;
            emit(
                n, [] { return std::string("that fails"); }, nullptr);
        }
        if (has_bytes && !s.moved) {
            state n = s;
            move_bytes(n);
            return emit(
                n, [] { return std::string("the bytes of that"); }, nullptr);
        }
        if (s.doing.kind == work::invalidate_view && s.view_changed && rules_.view_is_written_back)
            return;  // what was changed in it goes home first
        state n = s;
        if (n.doing.kind == work::fill)
            for (place w = 0; w < state::places; ++w)
                n.has_replica[n.doing.holder][w] = n.has_filled[w];
        rules_.finish(n.p, n.doing, true);
        n.doing = {};
        next_step(
            n, [] { return std::string("finished"); }, emit);
    }

    const value most_;
    const bool trouble_;
    const rules<Devices> rules_;
};

}  // namespace penstock::consistency::model
