// The actor of the model test: a function object that performs one stretch of operations and judges
// every result.
//
// It runs on the CPU and, through penstock::launch, on the GPU. All threads of a group run it
// together with equal local state; the leader touches the shared words, each thread looks at a
// share of the bytes.
#pragma once

#include <cstdint>

#include "model/table_reader.hpp"

namespace penstock::model {

struct model_actor : table_reader {
    std::byte* scratch;   // scratch_stride bytes for each actor of a launch
    table_desk* desks;    // one for each of them
    std::uint64_t steps;  // per actor
    std::uint64_t first_actor;
    std::uint64_t max_open,
        max_maps;  // budgets of all actors together, so that running out is never legitimate

    template <typename Group>
    PENSTOCK_HD void operator()(const Group& g, const runtime_ref& fs, std::uint64_t index) const {
        memory m{};
        m.actor = first_actor + index;
        m.buffer = scratch + scratch_stride * index;
        m.desk = desks + index;
        for (held_file& f : m.open) f.fd = -1;
        for (m.step = 0; m.step < steps; ++m.step)
            act(g, fs, m, operation_at(w.seed, m.actor, m.step));
        for (held_map& h : m.mapped) let_go(g, fs, m, h);
        for (held_file& f : m.open) shut(g, fs, m, f);
        if (g.is_leader()) atomic_add_relaxed(&out->steps, steps);
    }

private:
    template <typename Group>
    PENSTOCK_HD void act(const Group& g, const runtime_ref& fs, memory& m,
                         const operation& op) const {
        if (op.kind == verb::open) return start(g, fs, m, m.open[op.which % files_held], op);
        held_file& f = some_file(m, op.which);
        if (op.kind == verb::nonsense) return be_silly(g, fs, m, f, op);
        if (op.kind == verb::unmap) return let_go(g, fs, m, m.mapped[op.which % maps_held]);
        if (f.fd < 0) return start(g, fs, m, f, op);
        switch (op.kind) {
            case verb::close: return shut(g, fs, m, f);
            case verb::read: return fetch(g, fs, m, f, op, false);
            case verb::read_on: return fetch(g, fs, m, f, op, true);
            case verb::element: return look_up(g, fs, m, f, op);
            case verb::each: return visit(g, fs, m, f, op);
            case verb::map: return hold(g, fs, m, f, m.mapped[op.length % maps_held], op);
            case verb::prefetch: return bring(g, fs, m, f, op);
            case verb::gather: return pick_rows(g, fs, m, number_of(m, f), op);
            case verb::read_row: return pick_row(g, fs, m, number_of(m, f), op);
            default: return ask(g, fs, m, f);
        }
    }

    // One that is open, if there is any.
    PENSTOCK_HD static held_file& some_file(memory& m, std::uint64_t which) {
        for (std::uint32_t i = 0; i < files_held; ++i)
            if (m.open[(which + i) % files_held].fd >= 0) return m.open[(which + i) % files_held];
        return m.open[which % files_held];
    }

    PENSTOCK_HD static std::uint32_t number_of(const memory& m, const held_file& f) {
        return static_cast<std::uint32_t>(&f - m.open);
    }

    // --- verbs

    template <typename Group>
    PENSTOCK_HD void start(const Group& g, const runtime_ref& fs, const memory& m, held_file& f,
                           const operation& op) const {
        if (f.fd >= 0) return;
        std::uint64_t granted = 0;
        if (g.is_leader()) granted = try_take(&out->open_held, max_open) ? 1 : 0;
        if (g.broadcast(granted) == 0) return;
        f.file = file_for(w, op.where, op.extra);
        std::uint64_t floor = 0;
        if (g.is_leader()) {
            floor = enter_period(files[f.file]);
            name_of_file(f.file, static_cast<std::uint32_t>(op.length % w.names_per_file),
                         reinterpret_cast<char*>(m.buffer));
            atomic_add_relaxed(&out->opens, std::uint64_t{1});
        }
        f.floor = g.broadcast(floor);
        g.sync();  // the name is in the buffer before the group reads it
        f.fd = open(g, fs, reinterpret_cast<const char*>(m.buffer));
        file_stat facts{};
        if (f.fd >= 0) f.size = ask_size(g, fs, m, f, facts);
        const version_range range = range_of(g, f.file, f.floor);
        if (f.fd < 0) {
            if (g.is_leader()) atomic_add_relaxed(&out->errors, std::uint64_t{1});
            const std::int64_t expected = exists(w, f.file, range.floor) ? 0 : -ENOENT;
            if (range.exact() ? f.fd != expected : (f.fd != -ENOENT && f.fd != -ESTALE))
                wrong(g, m, verb::open, f.file, 0, 0, f.fd, expected, range);
            return give_up(g, f);
        }
        f.at = {f.fd, 0};
        if (!size_allowed(w, f.file, range, f.size))
            wrong(g, m, verb::stat, f.file, 0, 0, static_cast<std::int64_t>(f.size),
                  static_cast<std::int64_t>(size_of(w, f.file, range.newest)), range);
    }

    template <typename Group>
    PENSTOCK_HD void give_up(const Group& g, held_file& f) const {
        f.fd = -1;
        g.sync();
        if (!g.is_leader()) return;
        leave_period(files[f.file]);
        give_one(&out->open_held);
    }

    template <typename Group>
    PENSTOCK_HD void shut(const Group& g, const runtime_ref& fs, const memory& m,
                          held_file& f) const {
        if (f.fd < 0) return;
        const int code = close(g, fs, f.fd);
        if (code != 0) wrong(g, m, verb::close, f.file, 0, 0, code, 0, {f.floor, f.floor});
        give_up(g, f);
    }

    // The size goes through the actor's buffer, which all threads of the group can reach.
    template <typename Group>
    PENSTOCK_HD std::uint64_t ask_size(const Group& g, const runtime_ref& fs, const memory& m,
                                       const held_file& f, file_stat& facts) const {
        auto* shared = reinterpret_cast<file_stat*>(m.buffer);
        const int code = stat(g, fs, f.fd, shared);
        if (code != 0) {
            wrong(g, m, verb::stat, f.file, 0, 0, code, 0, {f.floor, f.floor});
            return 0;
        }
        facts = *shared;
        g.sync();  // every thread has it before the buffer is used again
        return facts.size_bytes;
    }

    template <typename Group>
    PENSTOCK_HD void ask(const Group& g, const runtime_ref& fs, const memory& m,
                         const held_file& f) const {
        file_stat facts{};
        const std::uint64_t size = ask_size(g, fs, m, f, facts);
        if (size != f.size || facts.page_bytes != w.page_bytes)
            wrong(g, m, verb::stat, f.file, 1, 0, static_cast<std::int64_t>(size),
                  static_cast<std::int64_t>(f.size), {f.floor, f.floor});
    }

    template <typename Group>
    PENSTOCK_HD void fetch(const Group& g, const runtime_ref& fs, const memory& m, held_file& f,
                           const operation& op, bool relative) const {
        const std::uint64_t length = length_for(w, scratch_room(), op.length);
        const std::uint64_t chosen = offset_for(w, f.file, f.size, op.where);
        if (relative && f.at.offset_bytes >= f.size) f.at.offset_bytes = chosen;
        const std::uint64_t offset = relative ? f.at.offset_bytes : chosen;
        std::byte* const to = m.buffer + guard_bytes + op.extra % 16;
        set_guards(g, to, length);
        const std::int64_t got = relative ? read(g, fs, f.at, to, static_cast<std::int64_t>(length))
                                          : read(g, fs, f.fd, to, static_cast<std::int64_t>(length),
                                                 static_cast<std::int64_t>(offset));
        const version_range range = range_of(g, f.file, f.floor);
        const verb kind = relative ? verb::read_on : verb::read;
        const auto expected = static_cast<std::int64_t>(rest(f.size, offset, length));
        check_guards(g, m, f.file, offset, to, length);
        if (relative && f.at.offset_bytes != offset + static_cast<std::uint64_t>(got > 0 ? got : 0))
            wrong(g, m, kind, f.file, offset, length, static_cast<std::int64_t>(f.at.offset_bytes),
                  got, range);
        g.sync();  // every thread has looked at the guards before the buffer is used again
        if (!count_is_right(g, m, kind, f, offset, length, got, expected, range) || got <= 0)
            return;
        judge_bytes(g, m, kind, f.file, offset, to, static_cast<std::uint64_t>(got), range);
        if (g.is_leader()) atomic_add_relaxed(&out->bytes_read, static_cast<std::uint64_t>(got));
        g.sync();  // every thread has looked before the buffer is used again
    }

    template <typename Group>
    PENSTOCK_HD void set_guards(const Group& g, std::byte* to, std::uint64_t length) const {
        for (std::uint32_t i = g.rank(); i < 16; i += g.size())
            to[-1 - static_cast<int>(i)] = to[length + i] = guard_value(i);
        g.sync();
    }
    template <typename Group>
    PENSTOCK_HD void check_guards(const Group& g, const memory& m, std::uint32_t file,
                                  std::uint64_t offset, const std::byte* to,
                                  std::uint64_t length) const {
        for (std::uint32_t i = g.rank(); i < 16; i += g.size()) {
            if (to[-1 - static_cast<int>(i)] == guard_value(i) && to[length + i] == guard_value(i))
                continue;
            atomic_add_relaxed(&out->written_outside, std::uint64_t{1});
            note(out, {m.actor, m.step, static_cast<std::uint32_t>(verb::read), file, offset,
                       length, i, 0, 0, 0});
        }
    }
    PENSTOCK_HD static std::byte guard_value(std::uint32_t i) {
        return static_cast<std::byte>(0xa5 ^ (i * 29));
    }

    template <typename Group>
    PENSTOCK_HD void hold(const Group& g, const runtime_ref& fs, const memory& m, held_file& f,
                          held_map& h, const operation& op) const {
        if (h.mapped.data != nullptr) return;
        std::uint64_t granted = 0;
        if (g.is_leader()) granted = try_take(&out->maps_held, max_maps) ? 1 : 0;
        if (g.broadcast(granted) == 0) return;
        const std::uint64_t offset = offset_for(w, f.file, f.size, op.where);
        const std::uint64_t length = length_for(w, ~std::uint64_t{0} >> 2, op.length);
        h.mapped =
            map(g, fs, f.fd, static_cast<std::int64_t>(offset), static_cast<std::int64_t>(length));
        h.file = f.file;
        const version_range range = range_of(g, f.file, f.floor);
        const std::uint64_t in_page = w.page_bytes - offset % w.page_bytes;
        const auto expected =
            static_cast<std::int64_t>(rest(f.size, offset, length < in_page ? length : in_page));
        const bool right =
            count_is_right(g, m, verb::map, f, offset, length, h.mapped.bytes, expected, range);
        if (right && h.mapped.bytes > 0) {
            judge_bytes(g, m, verb::map, f.file, offset, h.mapped.data,
                        static_cast<std::uint64_t>(h.mapped.bytes), range);
            h.sum = sum_of(g, h.mapped);
        } else if (g.is_leader()) {
            give_one(&out->maps_held);
        }
    }

    // Mapped bytes must be the same at the end as at the beginning, whatever happened to file and
    // cache meanwhile.
    template <typename Group>
    PENSTOCK_HD void let_go(const Group& g, const runtime_ref& fs, const memory& m,
                            held_map& h) const {
        if (h.mapped.data == nullptr) return;
        if (sum_of(g, h.mapped) != h.sum) {
            atomic_add_relaxed(&out->changed_mappings, std::uint64_t{1});
            note(out, {m.actor, m.step, static_cast<std::uint32_t>(verb::unmap), h.file, 0, 0,
                       h.mapped.bytes, 0, 0, 0});
        }
        const int code = unmap(g, fs, h.mapped);
        if (code != 0) wrong(g, m, verb::unmap, h.file, 0, 0, code, 0, {0, 0});
        h.mapped.data = nullptr;
        if (g.is_leader()) give_one(&out->maps_held);
    }

    template <typename Group>
    PENSTOCK_HD std::uint64_t sum_of(const Group& g, const mapping& mapped) const {
        std::uint64_t sum = 0;
        for (std::uint64_t i = g.rank(); i < static_cast<std::uint64_t>(mapped.bytes);
             i += g.size())
            sum = sum * 31 + static_cast<std::uint8_t>(mapped.data[i]);
        return sum;
    }

    template <typename Group>
    PENSTOCK_HD void bring(const Group& g, const runtime_ref& fs, const memory& m, held_file& f,
                           const operation& op) const {
        const std::uint64_t offset = offset_for(w, f.file, f.size, op.where);
        const std::uint64_t length = length_for(w, 6 * w.page_bytes, op.length);
        const std::int64_t got = prefetch(g, fs, f.fd, static_cast<std::int64_t>(offset),
                                          static_cast<std::int64_t>(length));
        const version_range range = range_of(g, f.file, f.floor);
        count_is_right(g, m, verb::prefetch, f, offset, length, got,
                       static_cast<std::int64_t>(rest(f.size, offset, length)), range);
    }

    // Calls that must be refused, and must do no harm.
    template <typename Group>
    PENSTOCK_HD void be_silly(const Group& g, const runtime_ref& fs, const memory& m,
                              const held_file& f, const operation& op) const {
        const int good = f.fd, bad = good < 0 ? -1 : good ^ (1 << (21 + op.where % 10));
        std::int64_t expected = -EBADF, got = 0;
        switch (op.which % 9) {
            case 0: got = read(g, fs, bad, m.buffer, 8, 0); break;
            case 1: got = close(g, fs, bad); break;
            case 2: got = map(g, fs, bad, 0, 8).bytes; break;
            case 3: got = prefetch(g, fs, bad, 0, 8); break;
            case 4: got = read(g, fs, good, m.buffer, -8, 0); break;
            case 5: got = read(g, fs, good, nullptr, 8, 0); break;
            case 6: got = read(g, fs, good, m.buffer, 8, INT64_MIN); break;
            case 7: got = map(g, fs, good, INT64_MAX - 4, 8).bytes; break;
            default:
                if (g.is_leader()) atomic_add_relaxed(&out->opens, std::uint64_t{1});
                got = open(g, fs, "no such file");
                expected = -ENOENT;
        }
        if (op.which % 9 >= 4 && op.which % 9 < 8 && good >= 0) expected = -EINVAL;
        if (g.is_leader()) atomic_add_relaxed(&out->errors, std::uint64_t{1});
        if (got != expected)
            wrong(g, m, verb::nonsense, f.file, op.which % 9, 0, got, expected, {f.floor, f.floor});
    }
};

}  // namespace penstock::model
