// A file that lies in the cache of a cpu runtime as a whole, and the same bytes as a plain array.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>

#include "context.hpp"

namespace penstock::bench {

struct resident_file {
    std::unique_ptr<runtime> rt;
    int fd = -1;
    // Laid out as the cache is: anonymous memory that may have huge pages.
    std::unique_ptr<std::byte, void (*)(void*)> plain{nullptr, std::free};

    status make(context& here, std::uint64_t bytes, std::uint64_t page_bytes,
                std::uint64_t worker_threads = 0) {
        if (status s = here.use_file(bytes); !s) return s;
        if (status s = here.make_runtime({.page_bytes = page_bytes,
                                          .cache_bytes = 2 * bytes,
                                          .file_bytes = bytes,
                                          .worker_threads = worker_threads},
                                         rt, fd);
            !s)
            return s;
        const auto wanted = static_cast<std::int64_t>(bytes);
        plain.reset(static_cast<std::byte*>(std::aligned_alloc(file_step_bytes, bytes)));
        if (plain == nullptr)
            return {-ENOMEM, "no memory for " + format_size(bytes) + "; give a smaller --file"};
        if (const std::int64_t got = rt->read(fd, plain.get(), wanted, 0); got != wanted)
            return incomplete(got);
        return {};
    }

    static status incomplete(std::int64_t got) {
        const int code = got < 0 ? static_cast<int>(got) : -EIO;
        return {code, "the file could not be brought into the cache: " + error_text(code) +
                          "; give a smaller --file"};
    }
};

}  // namespace penstock::bench
