// Replay of a trace through the buffer manager: simulated without any bytes, or against its files.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>

#include "buffer/core/types.hpp"
#include "buffer/pool/manager.hpp"
#include "penstock/base/hash.hpp"
#include "penstock/error.hpp"
#include "trace/trace.hpp"

namespace penstock::replay {

// Of either replay.
struct buffer_shape {
    buffer::policy_kind policy = buffer::policy_kind::gram;
    buffer::order_kind order = buffer::order_kind::lru;
    std::uint64_t ram_bytes = 0, gpu_bytes = 0;  // as asked for, for the report
    buffer::limits limits;                       // may be less: what the trace can fill
};

// Of a replay against files.
struct run_settings {
    backend where = backend::automatic;
    std::uint32_t threads = 1;
    bool cached =
        false;  // else past the operating system's cache, so that the sizes mean something
    bool writes = false;  // the files may be changed
    bool verify = false;  // each page that is read is compared with what it must hold
    std::uint32_t batch_pages = 256, batch_wait_us = 0;
    bool stands_back = true;  // gram, where its device does not pay
    buffer::dedu_settings dedu{};
};

// Where pages were found, and what moved.
struct outcome {
    std::uint64_t reads = 0, writes = 0, flushes = 0;  // of single pages; flushes of files
    buffer::manager_counts counts;
    buffer::manager_contents held;  // at the end
    double seconds = 0;
    // What only a simulation counts.
    std::uint64_t fills = 0, dropped_pages = 0, dirty_pages = 0;
    // Of a replay against files.
    double flush_seconds = 0;  // at the end, for pages that were still dirty
    bool on_gpu = false;

    [[nodiscard]] std::uint64_t accesses() const { return reads + writes; }
};

// The contents that the pages of the trace's files hold as it goes on, by their numbers.
class page_contents {
public:
    // Bytes that no other page has.
    static constexpr std::uint64_t unlike_others = UINT64_MAX;

    explicit page_contents(const trace::trace_header& header) : made_(header.contents) {}

    void write(buffer::page_id id, std::uint64_t content) { written_[id] = content; }
    [[nodiscard]] std::uint64_t of(buffer::page_id id) const {
        if (const auto known = written_.find(id); known != written_.end()) return known->second;
        return made_ ? trace::made_content(*made_, id.file, id.page) : unlike_others;
    }
    [[nodiscard]] std::size_t written_pages() const { return written_.size(); }

private:
    struct page_hash {
        std::size_t operator()(const buffer::page_id& id) const {
            return mix64(id.page + std::uint64_t{id.file} * 0x9e3779b97f4a7c15ull);
        }
    };
    std::optional<trace::made_contents> made_;
    std::unordered_map<buffer::page_id, std::uint64_t, page_hash> written_;
};

// A trace played through the buffer manager's core without any bytes. Reads the trace to its end.
// The limits have been checked, and have all files of the trace.
status simulate(trace::reader& from, const buffer_shape& shape, outcome& out);

// A trace played through the buffer manager against its files: pages are read and written where the
// trace says so, and it takes the time that it takes. Everything that can be seen before the first
// read or write of a file is refused before it. However it ends, what was written is in the files.
status run_against_files(const std::string& trace, const buffer_shape& shape,
                         const run_settings& settings, outcome& out);

}  // namespace penstock::replay
