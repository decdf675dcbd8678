// The verbs of the model test of writes that look: read, map, stat, msync, fsync, and where an
// actor looks at a time.
#pragma once

#include <cerrno>
#include <cstdint>

#include "model/write_judge.hpp"

namespace penstock::model {

struct write_verbs : write_judge {
    std::uint32_t hot_pages;  // so many pages of a file at a time get most of the operations

    // Somewhere before `reach`. All actors meet in the same few pages for a while, now and then in
    // those at the end.
    PENSTOCK_HD std::uint64_t place(const write_memory& m, std::uint32_t file, std::uint64_t reach,
                                    std::uint64_t h) const {
        if (reach == 0) return 0;
        if (h % 8 == 0) return (h >> 8) % reach;
        const std::uint64_t zone = mixed(w.seed ^ w.round, m.step / 32, file),
                            pages = reach / w.page_bytes + 1;
        const std::uint64_t first =
            zone % 5 == 0 ? (pages > hot_pages ? pages - hot_pages : 0) : (zone >> 8) % pages;
        return (first * w.page_bytes + (h >> 8) % (hot_pages * w.page_bytes)) % reach;
    }
    PENSTOCK_HD std::uint64_t length(std::uint64_t h) const {
        const std::uint64_t any = h >> 8;
        switch (h % 4) {
            case 0: return 1 + any % 16;
            case 1: return 1 + any % w.page_bytes;
            case 2: return w.page_bytes;
            default: return 1 + any % longest_write(w.page_bytes);
        }
    }

    template <typename Group>
    PENSTOCK_HD bool right_size(const Group& g, const write_memory& m, write_verb kind,
                                std::uint32_t file, std::uint64_t offset, std::uint64_t bytes,
                                std::int64_t got, std::uint64_t floor,
                                std::uint64_t ceiling) const {
        const auto least = static_cast<std::int64_t>(rest_of(floor, offset, bytes)),
                   most = static_cast<std::int64_t>(rest_of(ceiling, offset, bytes));
        if (got >= least && got <= most) return true;
        if (g.is_leader()) wrong(m, kind, file, offset, bytes, got, got < least ? least : most);
        return false;
    }

    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void fetch(const Group& g, const runtime_ref& fs,
                                             const write_memory& m, const held_written& f,
                                             std::uint64_t h) const {
        const std::uint64_t at = place(m, f.file, w.plans[f.file].reach, h),
                            bytes = length(mix64(h));
        if (f.access == open_write) {
            expect(g, m, write_verb::refused, f.file, at, bytes,
                   read(g, fs, f.fd, m.buffer, static_cast<std::int64_t>(bytes),
                        static_cast<std::int64_t>(at)),
                   -EBADF);
            return count(g, &write_report::refusals);
        }
        const std::uint64_t floor = size_floor(g, f.file);
        take_floors(g, m, f.file, at, bytes);
        const std::int64_t got = read(g, fs, f.fd, m.buffer, static_cast<std::int64_t>(bytes),
                                      static_cast<std::int64_t>(at));
        if (!right_size(g, m, write_verb::read, f.file, at, bytes, got, floor,
                        size_ceiling(g, f.file)))
            return;
        const std::byte* const from = m.buffer;
        judge(g, m, write_verb::read, f.file, at, static_cast<std::uint64_t>(got),
              [from](std::uint64_t i) { return static_cast<std::uint8_t>(from[i]); });
        count(g, &write_report::reads);
    }

    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void look(const Group& g, const runtime_ref& fs,
                                            const write_memory& m, const held_written& f,
                                            std::uint64_t h) const {
        if (f.access == open_write) return fetch(g, fs, m, f, h);
        const std::uint64_t at = place(m, f.file, w.plans[f.file].reach, h),
                            room = w.page_bytes - at % w.page_bytes;
        const std::uint64_t wanted = length(mix64(h)), bytes = wanted < room ? wanted : room;
        const std::uint64_t floor = size_floor(g, f.file);
        take_floors(g, m, f.file, at, bytes);
        const mapping mapped =
            map(g, fs, f.fd, static_cast<std::int64_t>(at), static_cast<std::int64_t>(bytes));
        if (right_size(g, m, write_verb::map, f.file, at, bytes, mapped.bytes, floor,
                       size_ceiling(g, f.file)) &&
            mapped.bytes > 0) {
            // Others may write the bytes meanwhile.
            const auto* const from = reinterpret_cast<const std::uint8_t*>(mapped.data);
            judge(g, m, write_verb::map, f.file, at, static_cast<std::uint64_t>(mapped.bytes),
                  [from](std::uint64_t i) { return atomic_load<order::relaxed>(from + i); });
        }
        expect(g, m, write_verb::map, f.file, at, bytes, unmap(g, fs, mapped), 0);
        count(g, &write_report::maps);
    }

    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void ask(const Group& g, const runtime_ref& fs,
                                           const write_memory& m, const held_written& f) const {
        auto* const facts = reinterpret_cast<file_stat*>(m.buffer);
        const std::uint64_t floor = size_floor(g, f.file);
        const int code = stat(g, fs, f.fd, facts);
        const std::uint64_t ceiling = size_ceiling(g, f.file);
        if (g.is_leader() &&
            (code != 0 || facts->size_bytes < floor || facts->size_bytes > ceiling))
            wrong(m, write_verb::stat, f.file, floor, ceiling,
                  code != 0 ? code : static_cast<std::int64_t>(facts->size_bytes),
                  static_cast<std::int64_t>(floor));
        g.sync();
    }

    // Afterwards what this actor wrote is in the file, wherever it was looked for.
    template <typename Group>
    PENSTOCK_HD PENSTOCK_NOINLINE void bring_home(const Group& g, const runtime_ref& fs,
                                                  write_memory& m, const held_written& f,
                                                  std::uint64_t h, bool all) const {
        const std::uint64_t at = place(m, f.file, w.plans[f.file].reach, h),
                            bytes = length(mix64(h));
        const write_verb kind = all ? write_verb::fsync : write_verb::msync;
        const int code = all ? penstock::fsync(g, fs, f.fd)
                             : penstock::msync(g, fs, f.fd, static_cast<std::int64_t>(at),
                                               static_cast<std::int64_t>(bytes));
        if (expect(g, m, kind, f.file, at, bytes, code, 0))
            look_into_file(m, kind, f.file, at, bytes);
        if (all && w.plans[f.file].usage == use::alone) m.dirty_end = 0;
        count(g, all ? &write_report::fsyncs : &write_report::msyncs);
    }
};

}  // namespace penstock::model
