// The numbers of a pool's files: a file gets the number of another that is being closed, and each
// call goes to the file that its caller has opened.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "buffer/pool/manager.hpp"
#include "penstock/buffer.hpp"
#include "region/support.hpp"

namespace penstock::test::pool_numbers {

namespace {

using buffer::file_access;
using buffer::policy_kind;
using bytes = std::vector<std::uint8_t>;

constexpr std::uint32_t page_bytes = 4096, workers = 3;

std::byte* begin_of(bytes& some) { return reinterpret_cast<std::byte*>(some.data()); }

struct numbers : testing::TestWithParam<policy_kind> {
    void make(std::uint32_t max_files) {
        const buffer_options options{.policy = GetParam(),
                                     .where = backend::cpu,
                                     .host_bytes = 24 * page_bytes,
                                     .device_bytes = 8 * page_bytes,
                                     .page_bytes = page_bytes,
                                     .sessions = workers,
                                     .fixed_pages = 2,
                                     .max_files = max_files,
                                     .direct_io = false};
        const status made = buffer_pool::make(options, pool);
        ASSERT_TRUE(made.ok()) << made.message;
    }
    // Work of so many threads, each with a session.
    template <typename Work>
    void race(std::uint32_t threads, const Work& work) {
        std::vector<std::jthread> all;
        for (std::uint32_t t = 0; t < threads; ++t)
            all.emplace_back([&, t] {
                const auto session = pool->open_session();
                ASSERT_NE(session, nullptr);
                work(t, *session);
            });
    }

    const temporary_folder folder;
    std::unique_ptr<buffer_pool> pool;
};

// A file with its bytes as they have to be. Sizes differ, so a number that leads to another file is
// seen.
struct shadow_file {
    std::string name;
    std::mutex alone;
    bytes now;  // guarded by alone, as the rest
    bool is_open = false;
    std::uint32_t number = 0;
};

class racing_files {
public:
    static constexpr std::size_t files = 5;

    racing_files(buffer_pool& pool, const temporary_folder& folder) : pool_(pool) {
        for (std::size_t i = 0; i < files; ++i) {
            all_[i].name = folder / ("f" + std::to_string(i));
            all_[i].now.assign((i + 1) * page_bytes + i, static_cast<std::uint8_t>(i + 1));
            write_file(all_[i].name, all_[i].now);
        }
    }

    void work(std::uint64_t seed, buffer::session& session, int operations) {
        std::mt19937_64 random(seed);
        for (int i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
            shadow_file& file = all_[random() % files];
            const std::lock_guard hold(file.alone);
            if (!file.is_open) open(file);
            else if (random() % 4 == 0) close(file, random() % 3 == 0, session);
            else use(file, session, random);
        }
    }
    void close_all(buffer::session& session) {
        for (shadow_file& file : all_)
            if (file.is_open) close(file, false, session);
    }

private:
    // There are fewer numbers than files.
    void open(shadow_file& file) {
        const status opened = pool_.open_file(file.name, file_access::read_write, file.number);
        EXPECT_TRUE(opened.ok() || opened.code == -EMFILE) << opened.message;
        file.is_open = opened.ok();
        if (file.is_open) expect_size(file);
    }
    void expect_size(const shadow_file& file) {
        EXPECT_EQ(pool_.file_bytes(file.number), static_cast<std::int64_t>(file.now.size()))
            << file.name << ", number " << file.number;
    }
    // What is discarded was flushed, so the file has it.
    void close(shadow_file& file, bool discards, buffer::session& session) {
        if (discards) {
            EXPECT_EQ(session.flush(file.number), 0) << file.name;
        }
        EXPECT_EQ(discards ? pool_.discard_file(file.number) : pool_.close_file(file.number), 0)
            << file.name << ", number " << file.number;
        file.is_open = false;
        EXPECT_TRUE(read_file(file.name) == file.now) << file.name;
    }
    void use(shadow_file& file, buffer::session& session, std::mt19937_64& random) {
        expect_size(file);
        if (random() % 8 == 0) {
            file.now.resize(random() % (6 * page_bytes) + 1);
            EXPECT_EQ(pool_.resize_file(file.number, file.now.size()), 0) << file.name;
            return;
        }
        const std::uint64_t at = random() % file.now.size();
        bytes some(std::min<std::uint64_t>(random() % page_bytes + 1, file.now.size() - at));
        const auto count = static_cast<std::int64_t>(some.size());
        const auto begin = file.now.begin() + static_cast<std::ptrdiff_t>(at);
        if (random() % 2 == 0) {
            std::fill(some.begin(), some.end(), static_cast<std::uint8_t>(random()));
            EXPECT_EQ(session.write(file.number, at, begin_of(some), some.size()), count);
            std::copy(some.begin(), some.end(), begin);
        } else {
            EXPECT_EQ(session.read(file.number, at, begin_of(some), some.size()), count);
            EXPECT_TRUE(std::equal(some.begin(), some.end(), begin)) << file.name;
        }
    }

    buffer_pool& pool_;
    shadow_file all_[files];
};

}  // namespace

// One number for two files: each thread waits for it while the other closes.
TEST_P(numbers, that_a_closed_file_gave_up_are_of_the_file_that_took_them) {
    make(1);
    constexpr int rounds = 300;
    race(2, [&](std::uint32_t me, buffer::session& session) {
        const std::string name = folder / ("f" + std::to_string(me));
        bytes mine((me + 1) * page_bytes);
        write_file(name, mine);
        for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
            std::uint32_t number = 99;
            status opened;
            do {
                opened = pool->open_file(name, file_access::read_write, number);
            } while (opened.code == -EMFILE);
            ASSERT_TRUE(opened.ok()) << opened.message;
            EXPECT_EQ(pool->file_bytes(number), static_cast<std::int64_t>(mine.size()));
            std::fill(mine.begin(), mine.end(), static_cast<std::uint8_t>(round + 1));
            EXPECT_EQ(session.write(number, 0, begin_of(mine), mine.size()),
                      static_cast<std::int64_t>(mine.size()));
            EXPECT_EQ(round % 3 == 0 ? session.flush(number) : 0, 0);
            EXPECT_EQ(round % 3 == 0 ? pool->discard_file(number) : pool->close_file(number), 0)
                << "round " << round << ", file " << me;
            EXPECT_TRUE(read_file(name) == mine) << "round " << round << ", file " << me;
        }
    });
}

TEST_P(numbers, of_files_that_come_and_go_while_others_are_used) {
    make(racing_files::files - 2);
    racing_files files(*pool, folder);
    race(workers,
         [&](std::uint32_t me, buffer::session& session) { files.work(me, session, 3000); });
    race(1, [&](std::uint32_t, buffer::session& session) { files.close_all(session); });
    EXPECT_EQ(pool->contents().pages, 0u);
}

INSTANTIATE_TEST_SUITE_P(of, numbers,
                         testing::Values(policy_kind::native, policy_kind::gram, policy_kind::dedu),
                         [](const auto& info) {
                             const bool is_native = info.param == policy_kind::native;
                             const bool is_gram = info.param == policy_kind::gram;
                             return std::string(is_native ? "native" : is_gram ? "gram" : "dedu");
                         });

}  // namespace penstock::test::pool_numbers
