// Parts of files that stay in memory for a test: the operating system takes pages out when it
// likes, on some machines without any need, and a window is only opened onto what is there.
#pragma once

#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace penstock::test {

// The parts are locked as far as the process may lock memory; beyond that they may go, as before.
class parts_in_memory {
public:
    parts_in_memory() = default;
    parts_in_memory(const parts_in_memory&) = delete;
    parts_in_memory& operator=(const parts_in_memory&) = delete;
    ~parts_in_memory() { let_go(); }

    // As another program would that reads these bytes, and nothing behind them. `offset` is one of
    // a page.
    void bring_in(const std::string& path, std::uint64_t offset, std::uint64_t length) {
        const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
        ::posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM);
        std::vector<std::uint8_t> got(length);
        const auto at = static_cast<off_t>(offset);
        ASSERT_EQ(::pread(file, got.data(), length, at), static_cast<ssize_t>(length));
        void* const part = ::mmap(nullptr, length, PROT_READ, MAP_SHARED, file, at);
        ASSERT_NE(part, MAP_FAILED);
        parts_.emplace_back(part, length);
        ::madvise(part, length, MADV_RANDOM);
        ::mlock(part, length);
        ::close(file);
    }
    void bring_in(const std::string& path) { bring_in(path, 0, std::filesystem::file_size(path)); }
    void let_go() {
        for (const auto& [at, length] : parts_) ::munmap(at, length);
        parts_.clear();
    }

private:
    std::vector<std::pair<void*, std::size_t>> parts_;
};

}  // namespace penstock::test
