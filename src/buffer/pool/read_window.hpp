// Bytes of pages that follow one another in a file, read at once by one session, for pages that it
// is about to bring in: the disk is asked once and not for each.
//
// The pages are not in the buffer by that, so no writer of the file knows of it. A window is
// good for a page only if, since before it was read, (1) the page was in the buffer or on its way
// to its file at no time, and (2) no thread had the file forgotten or resized. Both is told by the
// file's version, which counts write-backs and those calls, and by a look at the pages when the
// window begins: a page that was brought in since and changed nothing is as the window has it, and
// one that was changed was written back before it could leave. All of it under the manager's lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "buffer/core/types.hpp"

namespace penstock::buffer {

// A session's own.
class read_window {
public:
    static constexpr std::uint64_t most_bytes = 128u << 10;

    // Null: no memory. Aligned for reads past the operating system's page cache.
    std::byte* room() {
        if (bytes_ == nullptr)
            bytes_.reset(
                static_cast<std::byte*>(::operator new(most_bytes, alignment, std::nothrow)));
        return bytes_.get();
    }
    // So many bytes from this page on, read while the file had this version, or before it had
    // another.
    void set(page_id first, std::uint64_t version, std::uint64_t bytes) {
        first_ = first;
        version_ = version;
        there_ = bytes;
    }
    // The page's first `wanted` bytes, or null.
    [[nodiscard]] const std::byte* find(page_id id, std::uint64_t version, std::uint64_t page_bytes,
                                        std::uint64_t wanted) const {
        if (version != version_ || id.file != first_.file || id.page < first_.page ||
            id.page - first_.page >= most_bytes)
            return nullptr;
        const std::uint64_t at = (id.page - first_.page) * page_bytes;
        return at + wanted <= there_ ? bytes_.get() + at : nullptr;
    }

private:
    static constexpr std::align_val_t alignment{4096};
    struct free_it {
        void operator()(std::byte* at) const { ::operator delete(at, alignment); }
    };
    std::unique_ptr<std::byte, free_it> bytes_;
    page_id first_;
    std::uint64_t version_ = 0, there_ = 0;
};

}  // namespace penstock::buffer
