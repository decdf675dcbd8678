// A share name for runtimes of several caches: each cache is found by it, by the other caches of
// its runtime as by those of other runtimes.
#include <atomic>
#include <random>

#include "unit/share_support.hpp"

namespace penstock::test {

namespace {

class share_devices : public share {
protected:
    options two_caches() {
        options o = shared();
        o.devices = {0, 1};
        return o;
    }
    // Does each cache of the runtime have so many neighbours?
    static bool has_neighbours(const runtime& rt, std::size_t count) {
        return soon([&] {
            for (std::uint32_t i = 0; i < rt.device_count(); ++i)
                if (rt.state(i).share->linked() != count) return false;
            return true;
        });
    }
    static std::vector<std::uint8_t> read_by(const runtime& rt, std::uint32_t device,
                                             const std::string& path, std::uint64_t bytes) {
        const runtime_ref fs = rt.ref(device);
        std::vector<std::uint8_t> out(bytes);
        const int fd = open(lane{}, fs, path.c_str());
        const std::int64_t done =
            fd < 0 ? fd : read(lane{}, fs, fd, out.data(), static_cast<std::int64_t>(bytes), 0);
        if (fd >= 0) close(lane{}, fs, fd);
        out.resize(done < 0 ? 0 : static_cast<std::size_t>(done));
        return out;
    }
};

}  // namespace

TEST_F(share_devices, four_caches_read_a_file_once) {
    const auto bytes = pattern(41, 20 * page + 100);
    const std::string path = make_file("data", bytes);
    auto first = make_runtime(two_caches());
    const auto second = make_runtime(two_caches());
    ASSERT_TRUE(has_neighbours(*first, 3)) << log();
    ASSERT_TRUE(has_neighbours(*second, 3)) << log();
    EXPECT_EQ(first->linked_processes(), 0u) << "all of them are this process's";
    EXPECT_EQ(read_by(*first, 1, path, bytes.size()), bytes);
    EXPECT_EQ(read_by(*first, 0, path, bytes.size()), bytes);
    EXPECT_EQ(read_by(*second, 0, path, bytes.size()), bytes);
    EXPECT_EQ(read_by(*second, 1, path, bytes.size()), bytes);
    EXPECT_EQ(first->stats().file_read_bytes, bytes.size());
    EXPECT_EQ(second->stats().file_read_bytes, 0u);
    EXPECT_EQ(first->stats(0).neighbour_reads + first->stats(0).neighbour_loads, 21u);
    EXPECT_EQ(socket_count(), 4u);
    first.reset();
    EXPECT_TRUE(has_neighbours(*second, 1));
    EXPECT_EQ(read_by(*second, 1, path, bytes.size()), bytes);
}

// The answer to an open for writing waits for the runtime's own caches as for those of others.
TEST_F(share_devices, writers_bytes_are_not_seen_before_their_close) {
    const auto before = pattern(42, 4 * page), after = pattern(43, 4 * page);
    const std::string path = make_file("data", before);
    options o = two_caches();
    o.writable = true;
    const auto first = make_runtime(o), second = make_runtime(o);
    ASSERT_TRUE(has_neighbours(*first, 3) && has_neighbours(*second, 3)) << log();
    const runtime_ref reader = first->ref(1);
    EXPECT_EQ(read_by(*first, 0, path, before.size()), before);
    const int open_for_reading = open(lane{}, reader, path.c_str());
    ASSERT_GE(open_for_reading, 0);
    EXPECT_TRUE(soon([&] { return first->state(1).share->shared_lives() == 1; }));
    const int fd = first->open(path, open_read_write);
    ASSERT_GE(fd, 0) << error_text(fd);
    EXPECT_EQ(first->state(1).share->shared_lives(), 0u) << "the answer came before that";
    ASSERT_EQ(first->write(fd, after.data(), static_cast<std::int64_t>(after.size()), 0),
              static_cast<std::int64_t>(after.size()));
    std::vector<std::uint8_t> got(before.size());
    EXPECT_EQ(read(lane{}, reader, open_for_reading, got.data(),
                   static_cast<std::int64_t>(got.size()), 0),
              static_cast<std::int64_t>(got.size()));
    EXPECT_EQ(got, before);
    EXPECT_EQ(first->close(fd), 0);
    close(lane{}, reader, open_for_reading);
    EXPECT_EQ(read_by(*second, 1, path, after.size()), after);
    EXPECT_EQ(read_by(*first, 1, path, after.size()), after);
}

// Runtimes of two caches come and go beside one whose two caches read by several threads.
TEST_F(share_devices, come_and_go_under_load) {
    constexpr std::uint32_t files = 12, pages = 16, generations = 4;
    for (std::uint32_t i = 0; i < files; ++i)
        write_file(folder_ / std::to_string(i), pattern(100 + i, pages * page));
    let_files_settle();
    options o = two_caches();
    o.max_files = 16;
    o.cache_bytes = 24 * page;
    o.admit_one_in = 4;
    const auto stays = make_runtime(o);
    std::atomic<std::uint64_t> wrong{0}, done{0};
    std::atomic<bool> stop{false};
    const auto read_some = [&](const runtime& rt, std::uint64_t seed) {
        std::mt19937_64 random(seed);
        const std::uint64_t file = random() % files, bytes = 1 + random() % (pages * page);
        const auto got = read_by(rt, static_cast<std::uint32_t>(seed % 2),
                                 folder_ / std::to_string(file), bytes);
        for (std::size_t i = 0; i < got.size(); ++i) wrong += got[i] != pattern_byte(100 + file, i);
        ++done;
    };
    std::vector<std::thread> all;
    for (std::uint32_t t = 0; t < 2; ++t)
        all.emplace_back([&, t] {
            for (std::uint64_t round = 0; !stop; ++round) read_some(*stays, round * 2 + t);
        });
    for (std::uint32_t g = 0; g < generations; ++g) {
        const auto comes = make_runtime(o);
        EXPECT_TRUE(has_neighbours(*comes, 3)) << log();
        const std::uint64_t from = done;
        for (std::uint64_t round = 0; round < 50; ++round) read_some(*comes, round * 7 + g);
        EXPECT_TRUE(soon([&] { return done > from + 80; }));
    }
    EXPECT_TRUE(has_neighbours(*stays, 1));
    stop = true;
    for (std::thread& thread : all) thread.join();
    EXPECT_EQ(wrong, 0u);
    EXPECT_GT(from_neighbours(*stays), 0u);
    EXPECT_EQ(readers_inside(*stays), 0u);
    EXPECT_EQ(log().find("not linked"), std::string::npos) << log();
}

}  // namespace penstock::test
