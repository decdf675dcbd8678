// What every verb of the model test needs to judge its result: which versions were allowed, and
// whether count and bytes agree.
#pragma once

#include <cstdint>

#include "model/report.hpp"
#include "model/shadow.hpp"
#include "penstock/file.hpp"

namespace penstock::model {

inline constexpr std::uint32_t files_held = 3, maps_held = 2, guard_bytes = 32;

struct held_file {
    int fd;  // < 0: none
    std::uint32_t file;
    std::uint64_t floor, size;
    cursor at;
};
struct held_map {
    mapping mapped;  // data null: none
    std::uint32_t file;
    std::uint64_t sum;  // of this thread's share of the bytes
};
struct table_desk;

// What an actor knows; equal in all threads of its group, but for held_map::sum.
struct memory {
    held_file open[files_held];
    held_map mapped[maps_held];
    std::uint64_t actor, step;
    std::byte* buffer;
    table_desk* desk;
};

// Called by all threads of a group together. Each thread looks at a share of the bytes, the
// leader notes the rest.
struct judge {
    world w;
    file_state* files;  // w.files() of them
    report* out;

    template <typename Group>
    PENSTOCK_HD void wrong(const Group& g, const memory& m, verb kind, std::uint32_t file,
                           std::uint64_t offset, std::uint64_t length, std::int64_t got,
                           std::int64_t expected, const version_range& range) const {
        if (!g.is_leader()) return;
        atomic_add_relaxed(&out->wrong_results, std::uint64_t{1});
        note(out, {m.actor, m.step, static_cast<std::uint32_t>(kind), file, offset, length, got,
                   expected, range.floor, range.newest});
    }

    // The versions that the call which just returned may have seen.
    template <typename Group>
    PENSTOCK_HD version_range range_of(const Group& g, std::uint32_t file,
                                       std::uint64_t floor) const {
        std::uint64_t newest = 0;
        if (g.is_leader()) newest = allowed_now(files[file], floor).newest;
        newest = g.broadcast(newest);
        if (g.is_leader()) {
            atomic_add_relaxed(&out->checks, std::uint64_t{1});
            if (newest == floor) atomic_add_relaxed(&out->exact_checks, std::uint64_t{1});
        }
        return {floor, newest};
    }

    // A count for a range of an open file: all of it, or less (or -ESTALE) if the file changed
    // meanwhile. `counted`: the runtime counts the error in its statistics.
    template <typename Group>
    PENSTOCK_HD bool count_is_right(const Group& g, const memory& m, verb kind, const held_file& f,
                                    std::uint64_t offset, std::uint64_t length, std::int64_t got,
                                    std::int64_t expected, const version_range& range,
                                    bool counted = true) const {
        if (got < 0 && counted && g.is_leader()) atomic_add_relaxed(&out->errors, std::uint64_t{1});
        if (got == expected) return true;
        if (!range.exact() && expected > 0 && (got == -ESTALE || (got > 0 && got < expected))) {
            if (g.is_leader()) atomic_add_relaxed(&out->stale, std::uint64_t{1});
            return true;
        }
        wrong(g, m, kind, f.file, offset, length, got, expected, range);
        return false;
    }

    template <typename Group>
    PENSTOCK_HD void judge_bytes(const Group& g, const memory& m, verb kind, std::uint32_t file,
                                 std::uint64_t offset, const std::byte* data, std::uint64_t bytes,
                                 const version_range& range) const {
        std::uint64_t first_bad = ~std::uint64_t{0};
        const auto* seen = reinterpret_cast<const std::uint8_t*>(data);
        const std::uint64_t bad =
            wrong_bytes(w, file, range, offset, seen, bytes, g.rank(), g.size(), first_bad);
        if (bad == 0) return;
        atomic_add_relaxed(&out->wrong_bytes, bad);
        note(out, {m.actor, m.step, static_cast<std::uint32_t>(kind), file, first_bad, bytes,
                   seen[first_bad - offset], byte_of(w, file, range.newest, first_bad), range.floor,
                   range.newest});
    }

    PENSTOCK_HD static std::uint64_t rest(std::uint64_t size, std::uint64_t offset,
                                          std::uint64_t length) {
        return offset >= size ? 0 : size - offset < length ? size - offset : length;
    }
};

}  // namespace penstock::model
