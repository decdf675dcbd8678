// What each file of the model test of writes is used for in a round, and the sizes of a run. All of
// it follows from the seed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "model/write_shadow.hpp"

namespace penstock::model {

// The files: shared ones, the first of them maybe so large that its table has two levels; those
// that one actor has alone; logs.
struct write_shape {
    std::uint64_t seed = 1, page_bytes = 4096, cache_bytes = 65536,
                  wide_pages = 0;  // wide_pages 0: no such file
    std::uint32_t actors = 8, alone_files = 8;
    static constexpr std::uint32_t shared_files = 4, log_files = 2;

    [[nodiscard]] std::uint32_t files() const { return shared_files + alone_files + log_files; }
    [[nodiscard]] bool is_shared(std::uint32_t file) const { return file < shared_files; }
    [[nodiscard]] bool is_log(std::uint32_t file) const {
        return file >= shared_files + alone_files;
    }
    // How large it is at first; all together 32 times the cache. None ends with its page.
    [[nodiscard]] std::uint64_t size_at_first(std::uint32_t file) const {
        if (is_log(file)) return 0;
        const std::uint64_t ragged = mixed(seed, file) % page_bytes;
        if (file == 0 && wide_pages != 0) return wide_pages * page_bytes + ragged;
        if (is_shared(file)) return 6 * cache_bytes + ragged;
        return cache_bytes * 8 / alone_files + ragged;
    }
    // Room to grow.
    [[nodiscard]] std::uint64_t capacity(std::uint32_t file) const {
        return is_log(file) ? 0 : size_at_first(file) + cache_bytes + 5 * page_bytes;
    }
};

class write_planner {
public:
    explicit write_planner(const write_shape& shape) : s_(shape) {}

    // `size`: of each file, now. A second runtime and an ordinary program take part in some rounds.
    [[nodiscard]] file_plan plan(std::uint32_t file, std::uint64_t round,
                                 std::uint64_t size) const {
        const std::uint64_t h = mixed(s_.seed ^ 0x91a, round, file);
        file_plan p{use::idle, 0, 0, 0, 0, 0, 1, 0};
        if (s_.is_log(file)) {
            if (h % 2 == 0) p.usage = use::log;
            return p;
        }
        p.reach = size;
        const std::uint64_t grown =
            std::min(s_.capacity(file), size + mix64(h) % (1 + s_.cache_bytes));
        if (!s_.is_shared(file)) {
            p.usage = use::alone;
            p.owner = static_cast<std::uint32_t>((file - s_.shared_files + round) % s_.actors);
            p.reach = std::max(grown, s_.cache_bytes / 2);
            return p;
        }
        if (h % 4 == 0) return p;
        p.usage = use::shared;
        const bool mixed_company = mix64(h ^ 1) % 3 == 0 && size > 0;
        p.absent = !mixed_company && mix64(h ^ 2) % 8 == 0 ? 1 : 0;
        p.second = mixed_company ? 1 : 0;
        p.ordinary = mixed_company ? 1 : 0;
        // The others do not know of a size that this runtime made.
        if (p.absent != 0) p.reach = s_.size_at_first(file);
        else if (!mixed_company) p.reach = std::max(grown, s_.page_bytes);
        const std::uint64_t strides[] = {1, 7, 64, 4095, 4097, 3 * s_.page_bytes + 5};
        p.stride = strides[mix64(h ^ 3) % 6];
        const std::uint64_t most = std::max<std::uint64_t>(1, p.reach / p.stride / 2);
        p.actors =
            static_cast<std::uint32_t>(1 + mix64(h ^ 4) % std::min<std::uint64_t>(s_.actors, most));
        if (mix64(h ^ 5) % 2 == 0)
            p.actors = static_cast<std::uint32_t>(std::min<std::uint64_t>(s_.actors, most));
        return p;
    }

private:
    const write_shape s_;
};

}  // namespace penstock::model
