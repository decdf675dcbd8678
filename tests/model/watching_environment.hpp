// The real operating system, which notices pages that are written again while an older state of
// them is on its way to the file, and as a canary forgets a write now and then although it says it
// was done.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "fault/plain_environment.hpp"
#include "os/env.hpp"
#include "model/write_shadow.hpp"

namespace penstock::model {

class watching_environment final : public fault::plain_files {
public:
    // `drop_every`: one write in so many is forgotten; 0: none.
    watching_environment(std::uint64_t seed, std::uint64_t page_bytes, std::uint64_t drop_every)
        : seed_(seed), page_bytes_(page_bytes), drop_every_(drop_every), files_(most_handles) {}

    // Where the actors say that they write.
    void watch(const std::vector<file_shadow>& shadows) {
        for (const file_shadow& s : shadows) touched_.push_back(s.touched);
    }
    // Writes of the service during which a whole write of an actor to the same page took place.
    [[nodiscard]] std::uint64_t overlaps() const { return overlaps_.load(); }

    int open_writing(int handle) override {
        const int fd = real_.open_writing(handle);
        std::string path;
        if (fd < 0 || fd >= static_cast<int>(most_handles) || real_.real_path(fd, path) != 0)
            return fd;
        const std::size_t name = path.rfind("/f");
        files_[static_cast<std::size_t>(fd)] =
            name == std::string::npos ? 0 : std::strtoul(path.c_str() + name + 2, nullptr, 10) + 1;
        return fd;
    }
    // Neighbouring pages come in one call; the first one is watched.
    std::int64_t write(int fd, const host::memory_piece* pieces, std::size_t count,
                       std::uint64_t offset) override {
        return watched([&] { return real_.write(fd, pieces, count, offset); }, fd, pieces, offset);
    }
    std::int64_t write_unwatched(int fd, const host::memory_piece* pieces, std::size_t count,
                                 std::uint64_t offset) override {
        return watched([&] { return real_.write_unwatched(fd, pieces, count, offset); }, fd, pieces,
                       offset);
    }
    template <typename Write>
    std::int64_t watched(const Write& write_below, int fd, const host::memory_piece* pieces,
                         std::uint64_t offset) {
        const std::uint64_t number = ++writes_;
        if (drop_every_ != 0 && number % drop_every_ == 0)
            return static_cast<std::int64_t>(pieces[0].bytes);
        const std::uint64_t file = fd >= 0 && fd < static_cast<int>(most_handles)
                                       ? files_[static_cast<std::size_t>(fd)].load()
                                       : 0;
        if (file == 0 || file > touched_.size() || touched_[file - 1] == nullptr)
            return write_below();
        const std::uint32_t* const touched =
            touched_[file - 1] + offset / page_bytes_ % touched_pages * 2;
        const std::uint32_t begun = atomic_load<order::relaxed>(touched);
        // Now and then it takes as long as a disk might.
        if (mix64(seed_ + number) % 64 == 0)
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        const std::int64_t got = write_below();
        if (atomic_load<order::relaxed>(touched + 1) - begun - 1 < begun_limit) ++overlaps_;
        return got;
    }

    int open_plain(int start, const std::string& path) override {
        return real_.open_plain(start, path);
    }
    int create(int directory, const std::string& name) override {
        return real_.create(directory, name);
    }
    int unlink(int directory, const std::string& name) override {
        return real_.unlink(directory, name);
    }
    int rename(int from, const std::string& name, int to, const std::string& new_name) override {
        return real_.rename(from, name, to, new_name);
    }
    int take_sole_lease(int fd) override { return real_.take_sole_lease(fd); }
    void end_lease(int fd) override { real_.end_lease(fd); }
    int open_watch() override { return real_.open_watch(); }
    int watch_file(int watch, int fd) override { return real_.watch_file(watch, fd); }
    void end_watch(int watch, int number) override { real_.end_watch(watch, number); }
    void read_watch(int watch, std::vector<int>& out) override { real_.read_watch(watch, out); }
    int sync(int fd) override { return real_.sync(fd); }
    int truncate(int fd, std::uint64_t size_bytes) override {
        return real_.truncate(fd, size_bytes);
    }
    int open_direct(int fd, std::uint32_t& grain_bytes) override {
        return real_.open_direct(fd, grain_bytes);
    }
    int in_page_cache(int fd, std::uint64_t offset, std::uint64_t bytes) override {
        return real_.in_page_cache(fd, offset, bytes);
    }
    int map_file(int fd, std::uint64_t offset, std::uint64_t bytes, void*& address) override {
        return real_.map_file(fd, offset, bytes, address);
    }
    void unmap_file(void* address, std::uint64_t bytes) override {
        real_.unmap_file(address, bytes);
    }
    int resident(void* address, std::uint64_t bytes, std::uint64_t piece_bytes,
                 std::vector<bool>& out) override {
        return real_.resident(address, bytes, piece_bytes, out);
    }

private:
    static constexpr std::size_t most_handles = 4096;
    // More writes were done than had begun before: so many of them began and ended in between.
    // Differences beyond are negative.
    static constexpr std::uint32_t begun_limit = 1u << 30;

    const std::uint64_t seed_, page_bytes_, drop_every_;
    std::vector<std::atomic<std::uint64_t>> files_;  // file + 1 by handle
    std::vector<const std::uint32_t*> touched_;
    std::atomic<std::uint64_t> writes_{0}, overlaps_{0};
};

}  // namespace penstock::model
