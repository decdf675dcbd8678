// The library through Penstock's page cache.
#pragma once

#include <cstdint>

#include "library.hpp"
#include "penstock/file.hpp"

namespace penstock::collage {

struct library_files {
    int histograms;
    int tiles;
    int table[tables];
    std::uint64_t entries_at;  // byte of each table at which its entries begin
};

class page_source {
public:
    PENSTOCK_HD page_source(const runtime_ref& fs, const library_files& files)
        : fs_(fs), files_(files) {}

    template <typename Member>
    PENSTOCK_HD PENSTOCK_INLINE int slot(const Member& m, std::uint32_t table, std::uint32_t slot,
                                         table_entry* buffer, std::uint32_t& begin,
                                         std::uint32_t& end) const {
        // Two neighbouring numbers take as much room as one entry.
        const std::uint64_t at = table_head_bytes + std::uint64_t{slot} * sizeof(std::uint32_t);
        const std::int64_t got = read(m, fs_, files_.table[table], buffer, sizeof *buffer,
                                      static_cast<std::int64_t>(at));
        begin = buffer->fingerprint;
        end = buffer->id;
        m.sync();  // all have them before the buffer takes the entries
        return settled(got, sizeof *buffer);
    }

    template <typename Member>
    PENSTOCK_HD PENSTOCK_INLINE int entries(const Member& m, std::uint32_t table,
                                            std::uint32_t first, std::uint32_t count,
                                            table_entry* buffer, const table_entry*& out) const {
        out = buffer;
        const std::uint32_t bytes = count * sizeof(table_entry);
        const std::uint64_t at = files_.entries_at + std::uint64_t{first} * sizeof(table_entry);
        return settled(
            read(m, fs_, files_.table[table], buffer, bytes, static_cast<std::int64_t>(at)), bytes);
    }

    template <typename Member, typename Visit>
    PENSTOCK_HD PENSTOCK_INLINE int record(const Member& m, std::uint32_t id,
                                           const Visit& visit) const {
        // One piece, unless the pages are smaller than a histogram.
        for (std::uint32_t done = 0; done < record_bytes;) {
            const auto at =
                static_cast<std::int64_t>(std::uint64_t{id} * record_stride_bytes + done);
            const mapping piece = map(m, fs_, files_.histograms, at, record_bytes - done);
            if (piece.bytes <= 0) return piece.bytes < 0 ? static_cast<int>(piece.bytes) : -ESTALE;
            const auto bytes = static_cast<std::uint32_t>(piece.bytes);
            visit(reinterpret_cast<const std::uint32_t*>(piece.data), done / 4, bytes / 4);
            unmap(m, fs_, piece);
            done += bytes;
        }
        return 0;
    }

    template <typename Member>
    PENSTOCK_HD PENSTOCK_INLINE int tile(const Member& m, std::uint32_t id, std::uint8_t* buffer,
                                         const std::uint8_t*& out) const {
        out = buffer;
        const std::int64_t at = static_cast<std::int64_t>(id) * tile_bytes;
        return settled(read(m, fs_, files_.tiles, buffer, tile_bytes, at), tile_bytes);
    }

private:
    static PENSTOCK_HD int settled(std::int64_t got, std::uint32_t want) {
        if (got < 0) return static_cast<int>(got);
        return got == want ? 0 : -ESTALE;  // it was checked when it was opened, so it shrank
    }
    const runtime_ref& fs_;
    const library_files& files_;
};

}  // namespace penstock::collage
