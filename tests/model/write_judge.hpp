// How an actor of the model test of writes judges what it reads. All threads of a group call
// together.
#pragma once

#include <cstdint>

#include "model/write_report.hpp"
#include "model/write_shadow.hpp"
#include "penstock/penstock.hpp"
#include "penstock/write.hpp"

#if !PENSTOCK_ON_DEVICE
#include <unistd.h>
#endif

namespace penstock::model {

struct held_written {
    std::int32_t fd;  // negative: none
    std::uint32_t file, access;
    std::uint64_t record_at,
        record_number;  // the last record that this actor appended through it; number + 1, or 0
};
inline constexpr std::uint32_t written_held = 3;

struct write_memory {
    std::uint64_t step;
    std::uint32_t index;  // among the actors of the launch
    std::uint32_t owner;  // among the owners of shared files
    std::byte* buffer;
    version* floors;
    std::uint64_t dirty_end;  // of the file that it has alone: where the last byte ends that it
                              // wrote since it last synchronised
    held_written open[written_held];
};

struct write_judge {
    write_world w;
    write_report* out;
    bool sees_others;  // other owners' bytes follow this runtime's rules; false for the second one
    const int* ordinary_handles;  // per file, to look into the file as an ordinary program does;
                                  // null: not from here

    template <typename Group>
    PENSTOCK_HD void count(const Group& g, std::uint64_t write_report::*counter,
                           std::uint64_t amount = 1) const {
        if (g.is_leader()) atomic_add_relaxed(&(out->*counter), amount);
    }

    // By one thread.
    PENSTOCK_HD PENSTOCK_NOINLINE void wrong(const write_memory& m, write_verb kind,
                                             std::uint32_t file, std::uint64_t offset,
                                             std::uint64_t length, std::int64_t got,
                                             std::int64_t expected, bool is_byte = false,
                                             version floor = 0, version newest = 0) const {
        atomic_add_relaxed(is_byte ? &out->wrong_bytes : &out->wrong_results, std::uint64_t{1});
        const std::uint64_t place =
            atomic_fetch_add<order::relaxed>(&out->failures, std::uint64_t{1});
        if (place < kept_failures)
            out->kept[place] = {m.index, m.step,   static_cast<std::uint32_t>(kind),
                                file,    offset,   length,
                                got,     expected, floor,
                                newest};
    }
    template <typename Group>
    PENSTOCK_HD bool expect(const Group& g, const write_memory& m, write_verb kind,
                            std::uint32_t file, std::uint64_t offset, std::uint64_t length,
                            std::int64_t got, std::int64_t expected) const {
        if (got == expected) return true;
        if (g.is_leader()) wrong(m, kind, file, offset, length, got, expected);
        return false;
    }

    // Before a read: what was finished by now. Every thread's fence comes before the reads of all.
    template <typename Group>
    PENSTOCK_HD void take_floors(const Group& g, const write_memory& m, std::uint32_t file,
                                 std::uint64_t offset, std::uint64_t bytes) const {
        for (std::uint64_t i = g.rank(); i < bytes; i += g.size())
            m.floors[i] = w.shadows[file].at(offset + i);
        atomic_fence();
        g.sync();
    }

    PENSTOCK_HD bool allowed(std::uint32_t file, std::uint64_t offset, version floor,
                             version newest, std::uint8_t got) const {
        if (got == written_byte(w.seed, file, offset, floor)) return true;
        for (version v = next_version(floor); v <= next_version(newest); ++v)
            if (got == written_byte(w.seed, file, offset, v)) return true;
        return false;
    }

    // After it: each byte is what its owner wrote, or for others' bytes something from then to now.
    // `at` gives the byte.
    template <typename Group, typename Byte>
    PENSTOCK_HD void judge(const Group& g, const write_memory& m, write_verb kind,
                           std::uint32_t file, std::uint64_t offset, std::uint64_t bytes,
                           const Byte& at) const {
        const file_plan& plan = w.plans[file];
        atomic_fence();
        std::uint64_t exact = 0, judged = 0;
        for (std::uint64_t i = g.rank(); i < bytes; i += g.size()) {
            const std::uint32_t owner = plan.owner_of(offset + i),
                                self = plan.usage == use::alone ? m.index : m.owner;
            if (owner != self && (!sees_others || owner >= plan.actors)) continue;
            const version newest = w.shadows[file].at(offset + i),
                          floor = owner == self ? newest : m.floors[i];
            const std::uint8_t got = at(i);
            ++judged;
            if (owner == self) ++exact;
            const bool good = owner == self ? got == written_byte(w.seed, file, offset + i, newest)
                                            : allowed(file, offset + i, floor, newest, got);
            if (!good)
                wrong(m, kind, file, offset + i, bytes, got,
                      written_byte(w.seed, file, offset + i, newest), true, floor, newest);
        }
        if (judged > 0) atomic_add_relaxed(&out->judged_bytes, judged);
        if (exact > 0) atomic_add_relaxed(&out->exact_bytes, exact);
        g.sync();
    }

    // The leader's view of the size, for all: what was done, or what was begun.
    template <typename Group>
    PENSTOCK_HD std::uint64_t size_floor(const Group& g, std::uint32_t file) const {
        std::uint64_t size = 0;
        if (g.is_leader()) size = atomic_load<order::acquire>(&w.shadows[file].size_done);
        return g.broadcast(size);
    }
    template <typename Group>
    PENSTOCK_HD std::uint64_t size_ceiling(const Group& g, std::uint32_t file) const {
        atomic_fence();
        std::uint64_t size = 0;
        if (g.is_leader()) size = atomic_load<order::acquire>(&w.shadows[file].size_begun);
        return g.broadcast(size);
    }
    static constexpr PENSTOCK_HD std::uint64_t rest_of(std::uint64_t size, std::uint64_t offset,
                                                       std::uint64_t bytes) {
        if (offset >= size) return 0;
        return bytes < size - offset ? bytes : size - offset;
    }

    // On the host: this actor's bytes are in the file, for all readers to see. What the file does
    // not have reads as zero.
    PENSTOCK_HD void look_into_file(const write_memory& m, write_verb kind, std::uint32_t file,
                                    std::uint64_t offset, std::uint64_t bytes) const {
#if !PENSTOCK_ON_DEVICE
        const file_plan& plan = w.plans[file];
        const std::uint32_t self = plan.usage == use::alone ? m.index : m.owner;
        if (ordinary_handles == nullptr || ordinary_handles[file] < 0 || plan.usage == use::log)
            return;
        const ssize_t got =
            ::pread(ordinary_handles[file], m.buffer, bytes, static_cast<off_t>(offset));
        for (std::uint64_t i = 0; i < bytes; ++i) {
            if (plan.owner_of(offset + i) != self) continue;
            const auto seen = static_cast<std::int64_t>(i) < got
                                  ? static_cast<std::uint8_t>(m.buffer[i])
                                  : std::uint8_t{0};
            const version newest = w.shadows[file].at(offset + i);
            const std::uint8_t expected = written_byte(w.seed, file, offset + i, newest);
            atomic_add_relaxed(&out->seen_in_file, std::uint64_t{1});
            if (seen != expected)
                wrong(m, kind, file, offset + i, bytes, seen, expected, true, newest, newest);
        }
#endif
    }
};

}  // namespace penstock::model
