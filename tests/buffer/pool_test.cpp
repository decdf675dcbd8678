// The buffer pool as programs have it, by its public header alone: what threads changed is in the
// files, sizes change here and below, and what cannot be is refused with a word on the cure.
#include "penstock/buffer.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "buffer/pool/manager.hpp"
#include "region/support.hpp"
#include "unit/leases.hpp"

namespace penstock::test {

namespace {

using buffer::file_access;
using buffer::fixed_page;
using buffer::make_pool;
using buffer::manager_settings;
using buffer::policy_kind;
using buffer::use_kind;
using bytes = std::vector<std::uint8_t>;

constexpr std::uint32_t page_bytes = 4096;

struct pool_kind {
    policy_kind policy;
    backend where;
    bool direct;
    friend void PrintTo(const pool_kind& kind, std::ostream* out) {
        *out << (kind.policy == policy_kind::native ? "native"
                 : kind.policy == policy_kind::gram ? "gram"
                                                    : "dedu")
             << (kind.where == backend::gpu ? "_gpu" : "_cpu") << (kind.direct ? "_direct" : "");
    }
};

buffer_options usual(const pool_kind& kind) {
    return {.policy = kind.policy,
            .where = kind.where,
            .host_bytes = 24 * page_bytes,
            .device_bytes = 16 * page_bytes,
            .page_bytes = page_bytes,
            .sessions = 4,
            .fixed_pages = 2,
            .max_files = 2,
            .direct_io = kind.direct};
}

struct pool_of_files : testing::TestWithParam<pool_kind> {
    void SetUp() override {
        if (GetParam().where == backend::gpu && !gpu_is_there())
            GTEST_SKIP() << "no GPU in this machine";
        write_file(name, bytes(64 * page_bytes));
        const status made = buffer_pool::make(usual(GetParam()), pool);
        ASSERT_TRUE(made.ok()) << made.message;
        const status opened = pool->open_file(name, file_access::read_write, number);
        ASSERT_TRUE(opened.ok()) << opened.message;
    }

    const temporary_folder folder;
    const std::string name = folder / "f";
    std::unique_ptr<buffer_pool> pool;
    std::uint32_t number = 99;
};

// Adds one to a number at the start of a page.
int add_one(buffer::session& session, buffer::page_id id) {
    fixed_page page;
    if (const int code = session.fix(id, use_kind::write, page); code != 0) return code;
    std::uint64_t sum = 0;
    std::memcpy(&sum, page.data, sizeof sum);
    ++sum;
    std::memcpy(page.data, &sum, sizeof sum);
    session.unfix(page, true);
    return 0;
}

}  // namespace

TEST_P(pool_of_files, threads_count_and_the_file_has_it) {
    constexpr unsigned threads = 4, additions = 500;
    std::vector<std::jthread> all;
    for (unsigned t = 0; t < threads; ++t)
        all.emplace_back([&, t] {
            const auto session = pool->open_session();
            ASSERT_NE(session, nullptr);
            std::mt19937_64 random(t);
            for (unsigned i = 0; i < additions; ++i)
                ASSERT_EQ(add_one(*session, {random() % 64, number}), 0);
        });
    all.clear();
    ASSERT_EQ(pool->close_file(number), 0);
    const bytes now = read_file(name);
    std::uint64_t sum = 0;
    for (std::uint64_t page = 0; page < 64; ++page) {
        std::uint64_t added = 0;
        std::memcpy(&added, now.data() + page * page_bytes, sizeof added);
        sum += added;
    }
    EXPECT_EQ(sum, threads * additions);
    const buffer::manager_counts counts = pool->counts();
    EXPECT_EQ(counts.host_hits + counts.device_hits + counts.misses, threads * additions);
    EXPECT_EQ(pool->contents().pages, 0u);  // the file was closed
}

TEST_P(pool_of_files, grows_and_shrinks_here_and_below) {
    const auto session = pool->open_session();
    bytes ones(64 * page_bytes, 1), seen(100 * page_bytes, 9);
    ASSERT_EQ(session->write(number, 0, reinterpret_cast<std::byte*>(ones.data()), ones.size()),
              64 * page_bytes);
    ASSERT_EQ(pool->resize_file(number, 10 * page_bytes), 0);
    ASSERT_EQ(pool->resize_file(number, 80 * page_bytes), 0);
    EXPECT_EQ(pool->file_bytes(number), 80 * page_bytes);
    EXPECT_EQ(session->read(number, 0, reinterpret_cast<std::byte*>(seen.data()), seen.size()),
              80 * page_bytes);
    for (std::uint64_t at = 0; at < 80 * page_bytes; ++at)
        ASSERT_EQ(seen[at], at < 10 * page_bytes ? 1 : 0) << at;
    ASSERT_EQ(add_one(*session, {79, number}), 0);
    ASSERT_EQ(session->flush(number), 0);
    const bytes now = read_file(name);
    ASSERT_EQ(now.size(), 80 * page_bytes);
    EXPECT_EQ(now[79 * page_bytes], 1);
    EXPECT_EQ(now[10 * page_bytes - 1], 1);
    EXPECT_EQ(now[10 * page_bytes], 0);
    // Past the page cache a file has whole pages; a temporary folder may be in memory, which has no
    // such reads.
    const int odd = pool->resize_file(number, 5000);
    EXPECT_TRUE(odd == 0 || (GetParam().direct && odd == -EINVAL)) << odd;
    EXPECT_EQ(pool->file_bytes(number), odd == 0 ? 5000 : 80 * page_bytes);
    struct stat below {};
    ASSERT_EQ(::stat(name.c_str(), &below), 0);
    EXPECT_EQ(below.st_size, pool->file_bytes(number));
}

TEST_P(pool_of_files, what_is_discarded_does_not_come_to_the_file) {
    const auto session = pool->open_session();
    ASSERT_EQ(add_one(*session, {3, number}), 0);
    ASSERT_EQ(session->flush(number), 0);
    ASSERT_EQ(add_one(*session, {3, number}), 0);
    ASSERT_EQ(pool->discard_file(number), 0);
    EXPECT_EQ(read_file(name)[3 * page_bytes], 1);
    EXPECT_EQ(pool->discard_file(number), -EBADF);
    EXPECT_EQ(pool->close_file(number), -EBADF);
    EXPECT_EQ(pool->resize_file(number, 0), -EBADF);
    EXPECT_EQ(pool->file_bytes(number), -EBADF);
}

TEST_P(pool_of_files, the_end_of_the_pool_writes) {
    ASSERT_EQ(add_one(*pool->open_session(), {5, number}), 0);
    pool.reset();
    EXPECT_EQ(read_file(name)[5 * page_bytes], 1);
}

// The limit on file sizes stands for a disk that is full.
class full_disk {
public:
    explicit full_disk(std::uint64_t most_bytes) {
        ::getrlimit(RLIMIT_FSIZE, &before_);
        rlimit now = before_;
        now.rlim_cur = most_bytes;
        ::setrlimit(RLIMIT_FSIZE, &now);
    }
    ~full_disk() { ::setrlimit(RLIMIT_FSIZE, &before_); }
    full_disk(const full_disk&) = delete;
    full_disk& operator=(const full_disk&) = delete;

private:
    rlimit before_{};
};

TEST_P(pool_of_files, what_cannot_be_written_stays_open_and_changed) {
    const auto session = pool->open_session();
    ASSERT_EQ(add_one(*session, {5, number}), 0);
    {
        const full_disk full(page_bytes);
        EXPECT_EQ(pool->close_file(number), -EFBIG);
        EXPECT_EQ(add_one(*session, {5, number}), 0);
        EXPECT_EQ(pool->resize_file(number, 100 * page_bytes), -EFBIG);
    }
    EXPECT_EQ(pool->file_bytes(number), 64 * page_bytes);
    EXPECT_EQ(pool->close_file(number), 0);
    EXPECT_EQ(read_file(name)[5 * page_bytes], 2);
}

TEST_P(pool_of_files, the_end_of_the_pool_names_what_it_cannot_write) {
    ASSERT_EQ(pool->close_file(number), 0);
    buffer_options options = usual(GetParam());
    std::string lines;
    options.log = [&](const std::string& line) { lines += line; };
    pool.reset();
    ASSERT_TRUE(buffer_pool::make(options, pool).ok());
    ASSERT_TRUE(pool->open_file(name, file_access::read_write, number).ok());
    ASSERT_EQ(add_one(*pool->open_session(), {5, number}), 0);
    const full_disk full(page_bytes);
    pool.reset();
    EXPECT_NE(lines.find(name), std::string::npos) << lines;
}

TEST_P(pool_of_files, one_that_is_read_is_not_changed) {
    ASSERT_EQ(pool->close_file(number), 0);
    ASSERT_TRUE(pool->open_file(name, file_access::read, number).ok());
    const auto session = pool->open_session();
    fixed_page page;
    EXPECT_EQ(session->fix({0, number}, use_kind::write, page), -EACCES);
    EXPECT_EQ(session->fix_fresh({0, number}, page), -EACCES);
    std::byte byte{1};
    EXPECT_EQ(session->write(number, 0, &byte, 1), -EACCES);
    EXPECT_EQ(pool->resize_file(number, 0), -EACCES);
    ASSERT_EQ(session->fix({0, number}, use_kind::read, page), 0);
    EXPECT_EQ(page.data[0], std::byte{0});
    session->unfix(page, false);
}

TEST_P(pool_of_files, a_file_is_open_once_and_must_be_one) {
    std::uint32_t other = 0;
    const status twice = pool->open_file(name, file_access::read, other);
    EXPECT_EQ(twice.code, -EBUSY);
    EXPECT_NE(twice.message.find(name), std::string::npos);
    EXPECT_EQ(pool->open_file(folder.path(), file_access::read, other).code, -EINVAL);
    EXPECT_EQ(pool->open_file(folder.path(), file_access::read_write, other).code, -EISDIR);
    const status untrue = pool->open_file("/proc/cpuinfo", file_access::read, other);
    EXPECT_EQ(untrue.code, -EINVAL);
    EXPECT_NE(untrue.message.find("/proc/cpuinfo"), std::string::npos) << untrue.message;
    ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
    EXPECT_EQ(pool->open_file(folder / "pipe", file_access::read, other).code, -EINVAL);
    EXPECT_EQ(pool->open_file("/dev/null", file_access::read_write, other).code, -EINVAL);
    const status missing = pool->open_file(folder / "none", file_access::read, other);
    EXPECT_EQ(missing.code, -ENOENT);
    EXPECT_NE(missing.message.find("none"), std::string::npos);
    write_file(folder / "g", bytes(100));
    write_file(folder / "h", bytes(100));
    EXPECT_TRUE(pool->open_file(folder / "g", file_access::read_write, other).ok());
    EXPECT_EQ(pool->open_file(folder / "h", file_access::read, other).code, -EMFILE);
    // Of an odd length it goes through the page cache.
    EXPECT_EQ(add_one(*pool->open_session(), {0, other}), 0);
    EXPECT_EQ(pool->close_file(other), 0);
    EXPECT_EQ(read_file(folder / "g")[0], 1);
    EXPECT_TRUE(pool->open_file(folder / "h", file_access::read, other).ok());
}

TEST_P(pool_of_files, an_open_waits_for_a_lease) {
    write_file(folder / "g", bytes(page_bytes));
    for (const file_access access : {file_access::read, file_access::read_write}) {
        held_lease held(folder / "g");
        if (!held.is_there()) GTEST_SKIP() << "no leases in this folder";
        std::uint32_t other = 0;
        const status opened = pool->open_file(folder / "g", access, other);
        ASSERT_TRUE(opened.ok()) << opened.message;
        EXPECT_TRUE(held.was_wanted_back());
        EXPECT_EQ(pool->close_file(other), 0);
    }
}

INSTANTIATE_TEST_SUITE_P(all, pool_of_files,
                         testing::Values(pool_kind{policy_kind::native, backend::cpu, true},
                                         pool_kind{policy_kind::gram, backend::cpu, true},
                                         pool_kind{policy_kind::gram, backend::cpu, false},
                                         pool_kind{policy_kind::dedu, backend::cpu, true},
                                         pool_kind{policy_kind::gram, backend::gpu, true},
                                         pool_kind{policy_kind::dedu, backend::gpu, true}),
                         [](const auto& info) { return testing::PrintToString(info.param); });

// The least that docs/guide/buffer.md names is enough, for every policy, and one page less is
// refused by naming it.
TEST(buffer_pool, takes_the_least_host_part_that_is_documented) {
    for (const policy_kind policy : {policy_kind::native, policy_kind::gram, policy_kind::dedu})
        for (const auto& [sessions, fixed] : {std::pair{16u, 8u}, {1u, 1u}, {3u, 2u}}) {
            const std::uint64_t least = (sessions + 1) * (fixed + 1) + 1;
            buffer_options options = usual({policy, backend::cpu, false});
            options.sessions = sessions;
            options.fixed_pages = fixed;
            options.host_bytes = least * page_bytes;
            std::unique_ptr<buffer_pool> pool;
            EXPECT_TRUE(buffer_pool::make(options, pool).ok());
            options.host_bytes -= 1;
            const status refused = buffer_pool::make(options, pool);
            EXPECT_EQ(refused.code, -EINVAL);
            const std::string words[] = {"host_bytes", std::to_string(sessions) + " session",
                                         std::to_string(least * page_bytes)};
            for (const std::string& word : words)
                EXPECT_NE(refused.message.find(word), std::string::npos) << refused.message;
        }
}

TEST(buffer_pool, refuses_what_cannot_be) {
    const pool_kind any{policy_kind::gram, backend::cpu, false};
    const auto refused = [](const buffer_options& wanted, int code, const char* word,
                            const manager_settings& tuning = {}) {
        std::unique_ptr<buffer_pool> pool;
        const status made = make_pool(wanted, tuning, pool);
        EXPECT_EQ(made.code, code) << made.message;
        EXPECT_NE(made.message.find(word), std::string::npos) << made.message;
        EXPECT_EQ(pool, nullptr);
    };
    const auto with = [&](auto change) {
        buffer_options wanted = usual(any);
        change(wanted);
        return wanted;
    };
    refused(with([](buffer_options& o) { o.page_bytes = 3000; }), -EINVAL, "page_bytes");
    refused(with([](buffer_options& o) { o.host_bytes = page_bytes; }), -EINVAL, "host_bytes");
    refused(with([](buffer_options& o) { o.device_bytes = 0; }), -EINVAL, "device_bytes");
    refused(with([](buffer_options& o) { o.sessions = 0; }), -EINVAL, "sessions");
    refused(with([](buffer_options& o) { o.sessions = 1000; }), -EINVAL, "sessions");
    refused(usual(any), -EINVAL, "batch_pages", {.batch_pages = 0});
    refused(usual(any), -EINVAL, "batch_pages", {.batch_pages = ~0u});
    refused(with([](buffer_options& o) { o.max_files = ~0u; }), -EINVAL, "files");
    refused(with([](buffer_options& o) { o.sessions = o.fixed_pages = ~0u; }), -EINVAL, "sessions");
    const auto dedu = [](buffer_options& o) { o.policy = policy_kind::dedu; };
    refused(with(dedu), -EINVAL, "window_pages", {.dedu = {.window_pages = ~0u - 5}});
    refused(with([](buffer_options& o) { o.device_bytes = std::uint64_t{1} << 41; }), -ENOMEM,
            "device_bytes");
    refused(with([](buffer_options& o) { o.policy = policy_kind::dedu, o.blocks_per_page = 3; }),
            -EINVAL, "blocks");
    refused(with([](buffer_options& o) { o.policy = policy_kind::dedu, o.blocks_per_page = 128; }),
            -EINVAL, "blocks");
}

}  // namespace penstock::test
