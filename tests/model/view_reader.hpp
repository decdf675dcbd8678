// The verbs of the model test that read through element views: v[i] by each thread for itself,
// for_each by the group.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "model/judge.hpp"
#include "penstock/view.hpp"

namespace penstock::model {

struct alignas(16) element_16 {
    std::uint64_t low, high;
};

// Each verb exists once for each size of an element; out of line, because the compiler of the GPU
// takes very long over one large function.
struct view_reader : judge {
    std::uint64_t scratch_stride;

    PENSTOCK_HD std::uint64_t scratch_room() const { return scratch_stride - 2 * guard_bytes - 16; }

    template <typename Group>
    PENSTOCK_HD void look_up(const Group& g, const runtime_ref& fs, const memory& m,
                             const held_file& f, const operation& op) const {
        switch (op.extra % 5) {
            case 0: return look_up_as<std::uint8_t>(g, fs, m, f, op);
            case 1: return look_up_as<std::uint16_t>(g, fs, m, f, op);
            case 2: return look_up_as<std::uint32_t>(g, fs, m, f, op);
            case 3: return look_up_as<std::uint64_t>(g, fs, m, f, op);
            default: return look_up_as<element_16>(g, fs, m, f, op);
        }
    }

    template <typename Group>
    PENSTOCK_HD void visit(const Group& g, const runtime_ref& fs, const memory& m,
                           const held_file& f, const operation& op) const {
        switch (op.extra % 5) {
            case 0: return visit_as<std::uint8_t>(g, fs, m, f, op);
            case 1: return visit_as<std::uint16_t>(g, fs, m, f, op);
            case 2: return visit_as<std::uint32_t>(g, fs, m, f, op);
            case 3: return visit_as<std::uint64_t>(g, fs, m, f, op);
            default: return visit_as<element_16>(g, fs, m, f, op);
        }
    }

private:
    static constexpr std::uint32_t looks = 4;

    // A view that begins somewhere in the first elements; one in eight of the elements larger than
    // a byte begins askew and is empty.
    template <typename T>
    PENSTOCK_HD static std::uint64_t start_of(const operation& op) {
        return (op.extra >> 8) % 5 * sizeof(T) + ((op.extra >> 16) % 8 == 0 ? sizeof(T) / 2 : 0);
    }
    template <typename T>
    PENSTOCK_HD static std::uint64_t elements_from(std::uint64_t start, std::uint64_t size) {
        return start % sizeof(T) != 0 || start >= size ? 0 : (size - start) / sizeof(T);
    }

    template <typename T, typename Group>
    PENSTOCK_HD bool has_right_size(const Group& g, const memory& m, verb kind, const held_file& f,
                                    std::uint64_t start, const view<T>& v) const {
        const std::uint64_t expected = elements_from<T>(start, f.size);
        if (v.size() == expected) return true;
        wrong(g, m, kind, f.file, start, sizeof(T), static_cast<std::int64_t>(v.size()),
              static_cast<std::int64_t>(expected), {f.floor, f.floor});
        return false;
    }

    // Each thread looks at elements of its own, some of them in the pages of its neighbours.
    template <typename T, typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void look_up_as(const Group& g, const runtime_ref& fs,
                                                  const memory& m, const held_file& f,
                                                  const operation& op) const {
        const std::uint64_t start = start_of<T>(op);
        const view<T> v(fs, f.fd, start);
        if (!has_right_size(g, m, verb::element, f, start, v)) return;
        if (op.length % 16 == 0 && g.is_leader()) look_outside(m, f, op, start, v);
        T got[looks];
        std::uint64_t at[looks];
        for (std::uint32_t k = 0; k < looks; ++k) {
            const std::uint64_t near =
                offset_for(w, f.file, f.size, mix64(op.where + k)) / sizeof(T);
            std::uint64_t i = near + g.rank() * (1 + op.which % 7);
            if (i >= v.size() && !w.is_big(f.file) && v.size() > 0) i %= v.size();
            const bool inside = i < v.size();
            at[k] = inside ? start + i * sizeof(T) : ~std::uint64_t{0};
            if (inside) got[k] = v[i];
        }
        g.sync();  // lanes went ways of their own
        const version_range range = range_of(g, f.file, f.floor);
        std::uint64_t looked = 0;
        for (std::uint32_t k = 0; k < looks; ++k) {
            if (at[k] == ~std::uint64_t{0}) continue;
            judge_element(m, f, range, at[k], got[k]);
            ++looked;
        }
        if (looked > 0) atomic_add_relaxed(&out->view_elements, looked);
        g.sync();
    }

    // An element that is not there: zero, and noted by the runtime.
    template <typename T>
    PENSTOCK_HD PENSTOCK_NOINLINE void look_outside(const memory& m, const held_file& f,
                                                    const operation& op, std::uint64_t start,
                                                    const view<T>& v) const {
        const std::uint64_t i = v.size() + (op.which % 3 == 0 ? 0 : op.which >> 8);
        const T got = v[i];
        note_missing(out, {f.fd, -ERANGE, start + i * sizeof(T)});
        if (is_zero(got)) return;
        atomic_add_relaxed(&out->wrong_results, std::uint64_t{1});
        note(out, {m.actor, m.step, static_cast<std::uint32_t>(verb::element), f.file, start, i,
                   first_byte(got), 0, f.floor, f.floor});
    }

    template <typename T>
    PENSTOCK_HD static bool is_zero(const T& value) {
        std::uint8_t bytes[sizeof(T)];
        std::memcpy(bytes, &value, sizeof(T));
        for (const std::uint8_t b : bytes)
            if (b != 0) return false;
        return true;
    }
    template <typename T>
    PENSTOCK_HD static std::int64_t first_byte(const T& value) {
        std::uint8_t byte = 0;
        std::memcpy(&byte, &value, 1);
        return byte;
    }

    // By one thread. Right bytes; or, while the file changes, a zero for an element whose page
    // could not be had.
    template <typename T>
    PENSTOCK_HD PENSTOCK_NOINLINE void judge_element(const memory& m, const held_file& f,
                                                     const version_range& range, std::uint64_t at,
                                                     const T& got) const {
        if (!range.exact() && is_zero(got)) return note_missing(out, {f.fd, -ESTALE, at});
        std::uint8_t bytes[sizeof(T)];
        std::memcpy(bytes, &got, sizeof(T));
        for (std::uint32_t i = 0; i < sizeof(T); ++i) {
            if (byte_allowed(w, f.file, range, at + i, bytes[i])) continue;
            atomic_add_relaxed(&out->wrong_bytes, std::uint64_t{1});
            note(out, {m.actor, m.step, static_cast<std::uint32_t>(verb::element), f.file, at + i,
                       sizeof(T), bytes[i], byte_of(w, f.file, range.newest, at + i), range.floor,
                       range.newest});
            return;
        }
    }

    // The elements go to the buffer and are judged there like those of a read; the visits are
    // counted in front of it.
    template <typename T, typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void visit_as(const Group& g, const runtime_ref& fs,
                                                const memory& m, const held_file& f,
                                                const operation& op) const {
        const std::uint64_t start = start_of<T>(op);
        const view<T> v(fs, f.fd, start);
        if (!has_right_size(g, m, verb::each, f, start, v)) return;
        const std::uint64_t first = offset_for(w, f.file, f.size, op.where) / sizeof(T);
        const std::uint64_t count = length_for(w, scratch_room(), op.length) / sizeof(T);
        const std::uint64_t expected = rest(v.size(), first, count);
        auto* const visits = reinterpret_cast<std::uint64_t*>(m.buffer);
        std::byte* const to = m.buffer + guard_bytes;
        for (std::uint64_t i = g.rank(); i < expected * sizeof(T); i += g.size())
            to[i] = std::byte{0xdb};
        if (g.is_leader()) *visits = 0;
        g.sync();
        std::uint64_t own_visits = 0, strayed = 0;
        const std::int64_t got =
            v.for_each(g, first, count, [&](std::uint64_t i, const T& element) {
                if (i - first >= expected) {
                    ++strayed;
                    return;
                }
                std::memcpy(to + (i - first) * sizeof(T), &element, sizeof(T));
                ++own_visits;
            });
        atomic_add_relaxed(visits, own_visits + (strayed << 32));
        g.sync();  // the elements and counts of all threads are there
        const std::uint64_t visited = atomic_load<order::relaxed>(visits);
        const version_range range = range_of(g, f.file, f.floor);
        const std::uint64_t at = start + first * sizeof(T);
        if (visited != static_cast<std::uint64_t>(got > 0 ? got : 0))
            wrong(g, m, verb::each, f.file, at, count, static_cast<std::int64_t>(visited), got,
                  range);
        if (count_is_right(g, m, verb::each, f, at, count, got, static_cast<std::int64_t>(expected),
                           range, false) &&
            got > 0) {
            judge_bytes(g, m, verb::each, f.file, at, to,
                        static_cast<std::uint64_t>(got) * sizeof(T), range);
            if (g.is_leader())
                atomic_add_relaxed(&out->view_visits, static_cast<std::uint64_t>(got));
        }
        g.sync();  // every thread has looked before the buffer is used again
    }
};

}  // namespace penstock::model
