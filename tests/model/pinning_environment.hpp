// An environment whose mapped files behave on the cpu as they do for a GPU, which pins the pages it
// may read.
//
// A processor that reads a mapped page behind the new end of a file gets SIGBUS. A GPU does not:
// the page is pinned, so it lives on as an orphan that belongs to no file, with the bytes it had
// when it was cut off; write(2) reaches it no more, also when the file grows again. So a
// caller that is about to shrink a file says so first. A private copy then replaces the pages that
// will be cut off, at one stroke for threads that read them meanwhile.
//
// It also decides what counts as resident, so that a run sees files of which nothing, a part or all
// can be opened.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "fault/plain_environment.hpp"
#include "os/env.hpp"

namespace penstock::model {

inline constexpr std::uint64_t os_page_bytes = 4096;

// The first byte that is cut off as an orphan when a file shrinks to `size_bytes`; the rest of the
// last page stays its own.
constexpr std::uint64_t first_orphan(std::uint64_t size_bytes) {
    return (size_bytes + os_page_bytes - 1) / os_page_bytes * os_page_bytes;
}

class pinning_environment final : public fault::plain_files {
public:
    // `device_pins`: the device holds the pages by itself, as a GPU does, and nothing is replaced.
    pinning_environment(host::environment& below, bool device_pins, std::uint64_t seed)
        : plain_files(below), device_pins_(device_pins), seed_(seed) {}

    // The file at `path` is going to shrink. Until it has, no other caller changes it.
    void before_shrink(const std::string& path, std::uint64_t new_size_bytes);

    // Pages that were cut off below a mapping so far, for the report.
    [[nodiscard]] std::uint64_t orphans() const { return orphans_.load(); }
    // What is resident from now on: as chance wills it, or everything, or nothing.
    enum class residency { by_chance, everything, nothing };
    void say_resident(residency mode) { residency_.store(mode); }

    int open_plain(int start, const std::string& path) override {
        return real_.open_plain(start, path);
    }
    int open_direct(int fd, std::uint32_t& grain_bytes) override {
        return real_.open_direct(fd, grain_bytes);
    }
    int in_page_cache(int fd, std::uint64_t offset, std::uint64_t bytes) override {
        return real_.in_page_cache(fd, offset, bytes);
    }
    int map_file(int fd, std::uint64_t offset, std::uint64_t bytes, void*& address) override;
    void unmap_file(void* address, std::uint64_t bytes) override;
    int resident(void* address, std::uint64_t bytes, std::uint64_t piece_bytes,
                 std::vector<bool>& out) override;

private:
    struct mapped {
        std::byte* address;
        std::uint64_t offset, bytes;  // of the file; as far as it reached when it was mapped
        std::uint64_t device, inode;
        bool whole;  // the file reached to the end of the mapping
    };
    void keep(const mapped& m, std::uint64_t from);

    const bool device_pins_;
    const std::uint64_t seed_;
    std::atomic<std::uint64_t> orphans_{0}, asked_{0};
    std::atomic<residency> residency_{residency::by_chance};
    std::mutex mutex_;  // guards mapped_
    std::vector<mapped> mapped_;
};

}  // namespace penstock::model
