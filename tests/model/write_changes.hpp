// The verbs of the model test of writes that change files: write, append, truncate.
#pragma once

#include "model/write_verbs.hpp"

namespace penstock::model {

struct byte_range {
    std::uint64_t at, bytes;  // no bytes: none
};

struct write_changes : write_verbs {
    // Bytes of the file that this actor may write.
    PENSTOCK_HD byte_range own_range(const write_memory& m, std::uint32_t file,
                                     std::uint64_t h) const {
        const file_plan& plan = w.plans[file];
        const std::uint64_t at = place(m, file, plan.reach, h), wanted = length(mix64(h));
        if (plan.reach == 0) return {0, 0};
        if (plan.usage == use::alone) return {at, rest_of(plan.reach, at, wanted)};
        if (m.owner >= plan.owners()) return {0, 0};
        // The actor's stride nearest to the place, all or a part of it.
        std::uint64_t unit = at / plan.stride / plan.owners() * plan.owners() + m.owner;
        if (unit * plan.stride >= plan.reach) {
            if (unit < plan.owners()) return {0, 0};
            unit -= plan.owners();
        }
        const std::uint64_t skip = h % 3 == 0 ? 0 : mix64(h ^ 5) % plan.stride,
                            begin = unit * plan.stride + skip;
        const std::uint64_t rest = rest_of(plan.reach, begin, plan.stride - skip),
                            longest = longest_write(w.page_bytes);
        const std::uint64_t bytes = h % 3 == 0 ? rest : wanted < rest ? wanted : rest;
        return {begin, bytes < longest ? bytes : longest};
    }

    // The next version of the range to the buffer.
    template <typename Group>
    PENSTOCK_HD void prepare(const Group& g, const write_memory& m, std::uint32_t file,
                             const byte_range& r) const {
        const file_shadow& s = w.shadows[file];
        for (std::uint64_t i = g.rank(); i < r.bytes; i += g.size())
            m.buffer[i] = static_cast<std::byte>(
                written_byte(w.seed, file, r.at + i, next_version(s.at(r.at + i))));
        if (g.is_leader()) {
            atomic_raise<order::release>(&w.shadows[file].size_begun, r.at + r.bytes);
            if (s.touched != nullptr)
                atomic_add_relaxed(&s.touched[r.at / w.page_bytes % touched_pages * 2], 1u);
        }
        atomic_fence();  // the size is known to be under way before any reader can see it
        g.sync();
    }

    // The range was written: from now on no reader may see less.
    template <typename Group>
    PENSTOCK_HD void settle(const Group& g, write_memory& m, std::uint32_t file,
                            const byte_range& r) const {
        file_shadow& s = w.shadows[file];
        atomic_fence();
        g.sync();
        for (std::uint64_t i = g.rank(); i < r.bytes; i += g.size())
            atomic_store<order::relaxed>(&s.versions[r.at + i], next_version(s.at(r.at + i)));
        atomic_fence();  // before the owner's next write begins
        g.sync();
        if (!g.is_leader()) return;
        const std::uint64_t end = r.at + r.bytes, size = atomic_load<order::relaxed>(&s.size_done);
        if (size < end) atomic_add_relaxed(&out->growths, std::uint64_t{1});
        atomic_raise<order::release>(&s.size_done, end);
        const std::uint64_t now = size < end ? end : size;
        if (now % w.page_bytes != 0 && end > now / w.page_bytes * w.page_bytes)
            atomic_add_relaxed(&out->short_tails, std::uint64_t{1});
        if (s.touched != nullptr)
            atomic_add_relaxed(&s.touched[r.at / w.page_bytes % touched_pages * 2 + 1], 1u);
        if (w.plans[file].usage == use::alone && m.dirty_end < end) m.dirty_end = end;
    }

    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void put(const Group& g, const runtime_ref& fs, write_memory& m,
                                           const held_written& f, std::uint64_t h) const {
        byte_range r = own_range(m, f.file, h);
        if (r.bytes == 0) return fetch(g, fs, m, f, h);
        if (f.access == open_read_write && (h >> 40) % 4 == 0) return change(g, fs, m, f, r);
        const auto at = static_cast<std::int64_t>(r.at), bytes = static_cast<std::int64_t>(r.bytes);
        if (f.access == open_read) {
            expect(g, m, write_verb::refused, f.file, r.at, r.bytes,
                   write(g, fs, f.fd, m.buffer, bytes, at), -EBADF);
            return count(g, &write_report::refusals);
        }
        prepare(g, m, f.file, r);
        if (expect(g, m, write_verb::write, f.file, r.at, r.bytes,
                   write(g, fs, f.fd, m.buffer, bytes, at), bytes))
            settle(g, m, f.file, r);
        count(g, &write_report::writes);
    }

    // Through a pointer. Others may read the bytes meanwhile, so each is stored at once.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void change(const Group& g, const runtime_ref& fs,
                                              write_memory& m, const held_written& f,
                                              byte_range r) const {
        const std::uint64_t room = w.page_bytes - r.at % w.page_bytes;
        if (r.bytes > room) r.bytes = room;
        prepare(g, m, f.file, r);
        const writable_mapping mapped = map_write(g, fs, f.fd, static_cast<std::int64_t>(r.at),
                                                  static_cast<std::int64_t>(r.bytes));
        if (!expect(g, m, write_verb::change, f.file, r.at, r.bytes, mapped.bytes,
                    static_cast<std::int64_t>(r.bytes)))
            return;
        auto* const to = reinterpret_cast<std::uint8_t*>(mapped.data);
        for (std::uint64_t i = g.rank(); i < r.bytes; i += g.size())
            atomic_store<order::relaxed>(to + i, static_cast<std::uint8_t>(m.buffer[i]));
        if (expect(g, m, write_verb::change, f.file, r.at, r.bytes, unmap(g, fs, mapped), 0))
            settle(g, m, f.file, r);
        count(g, &write_report::changes);
    }

    // Appends to a file that no other actor has.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void add(const Group& g, const runtime_ref& fs, write_memory& m,
                                           const held_written& f, std::uint64_t h) const {
        const std::uint64_t size = size_floor(g, f.file);
        const byte_range r{size, rest_of(w.plans[f.file].reach, size, length(h))};
        if (r.bytes == 0 || f.access == open_read) return put(g, fs, m, f, h);
        prepare(g, m, f.file, r);
        const std::int64_t got = append(g, fs, f.fd, m.buffer, static_cast<std::int64_t>(r.bytes));
        if (expect(g, m, write_verb::append, f.file, r.at, r.bytes, got,
                   static_cast<std::int64_t>(r.at)))
            settle(g, m, f.file, r);
        count(g, &write_report::appends);
    }

    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void cut(const Group& g, const runtime_ref& fs, write_memory& m,
                                           const held_written& f, std::uint64_t h) const {
        if (f.access == open_read) return put(g, fs, m, f, h);
        file_shadow& s = w.shadows[f.file];
        const std::uint64_t reach = w.plans[f.file].reach, old_size = size_floor(g, f.file);
        const std::uint64_t size = h % 4 == 0
                                       ? old_size + mix64(h) % (reach - old_size + 1)
                                       : old_size - mix64(h) % (1 + old_size / (1 + h / 4 % 8));
        if (!expect(g, m, write_verb::truncate, f.file, old_size, size,
                    truncate(g, fs, f.fd, static_cast<std::int64_t>(size)), 0))
            return;
        for (std::uint64_t i = size + g.rank(); i < old_size; i += g.size())
            atomic_store<order::relaxed>(&s.versions[i], s.at(i) | hole);
        atomic_fence();
        g.sync();
        if (!g.is_leader()) return;
        atomic_store<order::relaxed>(&s.size_begun, size);
        atomic_store<order::release>(&s.size_done, size);
        atomic_add_relaxed(&out->cuts, std::uint64_t{1});
        if (size < m.dirty_end) atomic_add_relaxed(&out->cut_written, std::uint64_t{1});
        if (m.dirty_end > size) m.dirty_end = size;
    }

    // Appends a record to a log that all actors append to.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void record(const Group& g, const runtime_ref& fs,
                                              write_memory& m, held_written& f) const {
        const auto number = static_cast<std::uint32_t>(
            g.broadcast(g.is_leader() ? w.records_of(f.file, m.index) : 0));
        const record_head head = head_of(w.seed, w.round, m.index, number);
        fill(g, m, head);
        const std::int64_t at = append(g, fs, f.fd, m.buffer, head.length);
        count(g, &write_report::appends);
        if (at < 0) {
            expect(g, m, write_verb::append, f.file, number, head.length, at, 0);
            return;
        }
        if (g.is_leader()) w.records_of(f.file, m.index) = number + 1;
        f.record_at = static_cast<std::uint64_t>(at);
        f.record_number = std::uint64_t{number} + 1;
    }

    // Reads its last record there again.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void look_back(const Group& g, const runtime_ref& fs,
                                                 write_memory& m, held_written& f) const {
        if (f.record_number == 0 || f.access == open_write) return record(g, fs, m, f);
        const record_head head =
            head_of(w.seed, w.round, m.index, static_cast<std::uint32_t>(f.record_number - 1));
        const std::int64_t got =
            read(g, fs, f.fd, m.buffer, head.length, static_cast<std::int64_t>(f.record_at));
        if (!expect(g, m, write_verb::look_back, f.file, f.record_at, head.length, got,
                    head.length))
            return;
        for (std::uint32_t i = g.rank(); i < head.length; i += g.size()) {
            const std::uint8_t seen = static_cast<std::uint8_t>(m.buffer[i]),
                               expected = byte_of_record(head, i);
            if (seen != expected)
                wrong(m, write_verb::look_back, f.file, f.record_at + i, head.length, seen,
                      expected, true);
        }
        g.sync();
        count(g, &write_report::reads);
    }

    static PENSTOCK_HD std::uint8_t byte_of_record(const record_head& head, std::uint32_t i) {
        const std::uint32_t words[4] = {head.length, head.check, head.actor, head.number};
        return i < record_head_bytes ? static_cast<std::uint8_t>(words[i / 4] >> (i % 4 * 8))
                                     : record_byte(head, i);
    }

private:
    template <typename Group>
    PENSTOCK_HD void fill(const Group& g, const write_memory& m, const record_head& head) const {
        for (std::uint32_t i = g.rank(); i < head.length; i += g.size())
            m.buffer[i] = static_cast<std::byte>(byte_of_record(head, i));
    }
};

}  // namespace penstock::model
