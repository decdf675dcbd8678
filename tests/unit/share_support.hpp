// What the tests of shared caches have in common: a place where runtimes meet, and their log.
#pragma once

#include <sys/stat.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <mutex>

#include "soon.hpp"
#include "unit/support.hpp"

namespace penstock::test {

class share : public testing::Test {
protected:
    void SetUp() override {
        std::filesystem::create_directories(meeting());
        ::setenv("XDG_RUNTIME_DIR", meeting().c_str(), 1);
    }
    void TearDown() override { ::unsetenv("XDG_RUNTIME_DIR"); }

    [[nodiscard]] std::string meeting() const { return folder_ / "meeting"; }
    [[nodiscard]] std::string sockets() const { return meeting() + "/penstock/test"; }
    [[nodiscard]] std::size_t socket_count() const {
        std::size_t count = 0;
        std::error_code gone;  // as the folder is when there is none
        for ([[maybe_unused]] const auto& entry :
             std::filesystem::directory_iterator(sockets(), gone))
            ++count;
        return count;
    }

    options shared() {
        options o = small_options(folder_, 1);
        o.share = "test";
        o.admit_one_in = 1;
        o.log = [this](const std::string& line) {
            const std::lock_guard lock(mutex_);
            log_ += line + "\n";
        };
        return o;
    }
    bool says(const std::string& text) {
        return soon([&] {
            const std::lock_guard lock(mutex_);
            return log_.find(text) != std::string::npos;
        });
    }
    std::string log() {
        const std::lock_guard lock(mutex_);
        return log_;
    }

    static std::size_t linked(const runtime& rt) {
        return rt.state().share == nullptr ? 0 : rt.state().share->linked();
    }
    static bool are_linked(const runtime& a, const runtime& b) {
        return soon([&] { return linked(a) == 1 && linked(b) == 1; });
    }
    static std::uint64_t from_neighbours(const runtime& rt) {
        return rt.stats().neighbour_reads + rt.stats().neighbour_loads;
    }
    // Readers that are between look and check.
    static std::uint64_t readers_inside(const runtime& rt) {
        std::uint64_t sum = 0;
        for (const engine::visit_shard& shard : rt.ref().view.visits->shards)
            sum += atomic_load<order::relaxed>(&shard.inside[0]) +
                   atomic_load<order::relaxed>(&shard.inside[1]);
        return sum;
    }
    // Opens, reads all and closes.
    static std::vector<std::uint8_t> read_all(runtime& rt, const std::string& path,
                                              std::uint64_t bytes) {
        std::vector<std::uint8_t> out(bytes);
        const int fd = rt.open(path);
        const std::int64_t done =
            fd < 0 ? fd : rt.read(fd, out.data(), static_cast<std::int64_t>(bytes), 0);
        if (fd >= 0) rt.close(fd);
        out.resize(done < 0 ? 0 : static_cast<std::size_t>(done));
        return out;
    }
    // A file with bytes that both are to share: settled.
    std::string make_file(const std::string& name, const std::vector<std::uint8_t>& bytes) {
        write_file(folder_ / name, bytes);
        let_files_settle();
        return folder_ / name;
    }

    const temporary_folder folder_;

private:
    std::mutex mutex_;
    std::string log_;  // guarded by mutex_
};

// How often memory of this descriptor is mapped in this process.
inline int mappings_of(int fd) {
    struct stat facts {};
    EXPECT_EQ(::fstat(fd, &facts), 0);
    int count = 0;
    std::ifstream all("/proc/self/maps");
    for (std::string line; std::getline(all, line);)
        count += line.find(" " + std::to_string(facts.st_ino) + " ") != std::string::npos &&
                 line.find("/memfd:") != std::string::npos;
    return count;
}

}  // namespace penstock::test
