// A mount of this process that reads files through a pool which the program uses too.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <thread>

#include "buffer/pool/manager.hpp"
#include "mount/mounted_backend.hpp"
#include "os/shared_memory.hpp"
#include "soon.hpp"

namespace penstock::test::mount_pool {

namespace {

using bytes = std::vector<std::uint8_t>;
constexpr region_options by_page{.outside_writers = false};
constexpr std::uint64_t page = 1 << 14, file_bytes = 64 * page;  // twice the pool

class pooled_mount : public mounted_backend {
protected:
    void make_files() {
        write_file(source(), pattern(1, file_bytes));
        write_file(folder_ / "source/own", pattern(2, 16 * page));
    }
    [[nodiscard]] std::unique_ptr<file_region> map_source() {
        return map_whole(*runtime_, source(), protection::read_write, by_page);
    }
    // Through the mount, until the pool answered so much of one pass over the file: a thread brings
    // pages there when it comes to it.
    void read_until_buffered(const std::string& path, const bytes& content,
                             std::uint64_t least = 1) {
        std::uint64_t answered = 0;
        for (int tries = 0; tries < 20'000 && answered < least; ++tries) {
            const std::uint64_t before = mount_->report().bytes_from_buffer;
            EXPECT_EQ(read_file(path), content);
            answered = mount_->report().bytes_from_buffer - before;
            if (answered < least) std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
        EXPECT_GE(answered, least);
    }
    void set_word(file_region& r, std::uint64_t at, std::uint64_t value) {
        bytes out(8);
        std::memcpy(out.data(), &value, 8);
        poke(r, where(), at, out);
        EXPECT_EQ(r.release(), 1);
    }
};

}  // namespace

TEST_P(pooled_mount, serves_programs_beside_sessions_of_its_own) {
    make_files();
    std::uint32_t own = 0;
    ASSERT_TRUE(
        pool_->open_file(folder_ / "source/own", buffer::file_access::read_write, own).ok());
    const auto session = pool_->open_session();
    ASSERT_NE(session, nullptr);
    bytes there(16 * page);
    std::thread beside([&] {
        for (int round = 0; round < 50; ++round) {
            EXPECT_EQ(
                session->read(own, 0, reinterpret_cast<std::byte*>(there.data()), there.size()),
                static_cast<std::int64_t>(there.size()));
            EXPECT_EQ(there, pattern(2, 16 * page));
        }
    });
    for (int round = 0; round < 8; ++round)
        EXPECT_EQ(read_file(seen_as()), pattern(1, file_bytes)) << round;
    beside.join();
    read_until_buffered(seen_as(), pattern(1, file_bytes));
    EXPECT_FALSE(mount_->report().passes_through);
}

// What programs have read lies in frames of the pool, and kernels that miss it take it from there.
TEST_P(pooled_mount, has_pages_for_kernels_that_programs_read) {
    make_files();
    let_files_settle();
    const bytes content = pattern(2, 16 * page);
    read_until_buffered(folder_ / "point/own", content);
    const auto read_in_kernel = [&] {
        bytes there(content.size());
        const int fd = runtime_->open(folder_ / "source/own");
        EXPECT_GE(fd, 0);
        EXPECT_EQ(runtime_->read(fd, there.data(), static_cast<std::int64_t>(there.size()), 0),
                  static_cast<std::int64_t>(there.size()));
        EXPECT_EQ(runtime_->close(fd), 0);
        return there;
    };
    EXPECT_EQ(read_in_kernel(), content);
    const std::uint64_t lent = runtime_->stats().buffer_loads;
    EXPECT_GT(lent, 0u);
    // A program changes a page, by the mount: kernels read it from the file. As long as the program
    // has it open the pool keeps what it had before; afterwards its thread may bring new pages
    // there at any time.
    bytes changed = content;
    std::fill_n(changed.begin() + page, 8, 77);
    ASSERT_GE(one_.open(folder_ / "point/own"), 0);
    EXPECT_EQ(one_.write(page, 0x4d4d4d4d4d4d4d4dull), 8);
    EXPECT_EQ(read_in_kernel(), changed);
    EXPECT_EQ(runtime_->stats().buffer_loads, lent);
    EXPECT_EQ(one_.close_file(), 0);
    EXPECT_EQ(read_in_kernel(), changed);
}

TEST_P(pooled_mount, outlives_its_pool) {
    make_files();
    EXPECT_EQ(read_file(seen_as()), pattern(1, file_bytes));
    pool_.reset();
    read_until_buffered(seen_as(), pattern(1, file_bytes));
}

TEST_P(pooled_mount, gives_its_numbers_and_sessions_back) {
    make_files();
    for (const std::string name : {"a", "b", "c", "d", "e", "g"}) {
        write_file(folder_ / "source/" + name, pattern(3, 2 * page));
        EXPECT_EQ(read_file(folder_ / "point/" + name), pattern(3, 2 * page));
    }
    read_until_buffered(folder_ / "point/g", pattern(3, 2 * page));
    EXPECT_GT(pool_->counts().pages, 0u);
    EXPECT_EQ(mount_->unmount(), 0);
    mount_.reset();
    EXPECT_EQ(pool_->counts().pages, 0u) << "its files have left the pool";
    std::vector<std::unique_ptr<buffer::session>> all;
    for (int i = 0; i < 4; ++i) EXPECT_NE(all.emplace_back(pool_->open_session()), nullptr) << i;
    for (const std::string name : {"a", "b", "c", "d", "e", "g", "f", "own"}) {
        std::uint32_t number = 0;
        EXPECT_TRUE(
            pool_->open_file(folder_ / "source/" + name, buffer::file_access::read, number).ok())
            << name;
    }
}

TEST_P(pooled_mount, lets_go_of_a_file_that_has_no_name) {
    make_files();
    read_until_buffered(folder_ / "point/own", pattern(2, 16 * page));
    ASSERT_GE(one_.open(folder_ / "point/own", O_RDONLY), 0);
    ASSERT_EQ(std::filesystem::remove(folder_ / "point/own"), true);
    EXPECT_EQ(one_.read(0).code, 8);
    EXPECT_EQ(one_.close_file(), 0);
    for (int tries = 0; pool_->counts().pages != 0 && tries < 20'000; ++tries)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(pool_->counts().pages, 0u);
}

// Its space on the disk is free only when no descriptor is left, and no call tells of the removal.
TEST_P(pooled_mount, lets_go_of_a_file_that_is_removed_after_its_close) {
    make_files();
    read_until_buffered(folder_ / "point/own", pattern(2, 16 * page));
    ASSERT_TRUE(std::filesystem::remove(folder_ / "point/own"));
    EXPECT_TRUE(soon([&] { return pool_->counts().pages == 0; }));
}

// The pool has some memory for each page that a file has, also of holes, and a program at the mount
// makes files as large as it likes.
TEST_P(pooled_mount, takes_no_more_memory_for_larger_files) {
    make_files();
    const auto resident_bytes = [] {
        std::uint64_t whole = 0, resident = 0;
        std::ifstream("/proc/self/statm") >> whole >> resident;
        return resident * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
    };
    // Orders are carried out one after the other.
    const bytes content = pattern(2, 16 * page);
    const auto wait_for_orders = [&] {
        let_files_settle();
        read_until_buffered(folder_ / "point/own", content);
    };
    const auto read_first = [&](const std::string& name) {
        bytes first(page);
        std::ifstream(folder_ / "point/" + name).read(reinterpret_cast<char*>(first.data()), page);
        return first;
    };
    wait_for_orders();
    const std::uint64_t before = resident_bytes();
    write_file(folder_ / "source/huge", pattern(4, page));
    write_file(folder_ / "source/grown", pattern(5, page));
    EXPECT_EQ(read_first("grown"), pattern(5, page));
    constexpr std::uint64_t huge_bytes = 1ull << 40;
    for (const std::string name : {"huge", "grown"})
        ASSERT_EQ(::truncate((folder_ / "source/" + name).c_str(), huge_bytes), 0);
    // 24 GiB each: two of them are known at a time.
    for (const std::string name : {"a", "b", "c"}) {
        write_file(folder_ / "source/" + name, pattern(6, page));
        ASSERT_EQ(::truncate((folder_ / "source/" + name).c_str(), 24ll << 30), 0);
    }
    let_files_settle();
    for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(read_first("huge"), pattern(4, page));
        EXPECT_EQ(read_first("grown"), pattern(5, page));
        for (const std::string name : {"a", "b", "c"})
            EXPECT_EQ(read_first(name), pattern(6, page));
        wait_for_orders();
    }
    EXPECT_LT(resident_bytes(), before + (96u << 20));
}

// Whose last page is not whole.
TEST_P(pooled_mount, has_a_file_again_after_it_changed) {
    const std::string own = folder_ / "source/own";
    bytes content = pattern(2, 16 * page - 100);
    write_file(own, content);
    let_files_settle();
    read_until_buffered(folder_ / "point/own", content, content.size());
    patch_file(own, 4096, bytes(8, 77));
    std::fill_n(content.begin() + 4096, 8, 77);
    let_files_settle();
    read_until_buffered(folder_ / "point/own", content, content.size());
    content = pattern(2, 17 * page - 100);
    write_file(own, content);
    let_files_settle();
    read_until_buffered(folder_ / "point/own", content, content.size());
}

// Pages of the pool are larger than those of a region, and read ahead.
TEST_P(pooled_mount, has_what_a_region_released) {
    make_files();
    const auto r = map_source();
    ASSERT_GE(one_.open(seen_as(), O_RDONLY), 0);
    for (std::uint64_t round = 1; round < 200; ++round) {
        const std::uint64_t at = page + round % 4 * 4096 + 64;
        set_word(*r, at, round);
        EXPECT_EQ(one_.read(at).value, round);
        EXPECT_EQ(one_.read(at - 64).code, 8);
    }
    EXPECT_EQ(one_.close_file(), 0);
}

// The canary: a pool that does not look at the version gives programs what was before.
TEST_P(pooled_mount, that_does_not_look_at_the_version_is_found_out) {
    make_files();
    let_files_settle();
    EXPECT_EQ(mount_->unmount(), 0);
    buffer::manager_settings tuning;
    tuning.lends_unchecked = true;
    ASSERT_TRUE(buffer::make_pool({.policy = buffer::policy_kind::native,
                                   .where = backend::cpu,
                                   .host_bytes = 2 * file_bytes,
                                   .page_bytes = page,
                                   .sessions = 4,
                                   .fixed_pages = 1},
                                  tuning, pool_)
                    .ok());
    ASSERT_TRUE(
        mount_directory(*runtime_, folder_ / "source", folder_ / "point", settings(), mount_).ok());
    const bytes content = pattern(2, 16 * page);
    read_until_buffered(folder_ / "point/own", content, content.size());
    // While it is open to write the pool's thread brings nothing of it there.
    const host::owned_fd writer(::open((folder_ / "source/own").c_str(), O_WRONLY | O_CLOEXEC));
    ASSERT_TRUE(writer);
    patch_file(folder_ / "source/own", 4096, bytes(8, 77));
    EXPECT_EQ(read_file(folder_ / "point/own"), content);
}

TEST_P(pooled_mount, refuses_pools_that_it_cannot_use) {
    std::filesystem::create_directory(folder_ / "empty");
    std::unique_ptr<file_mount> out;
    std::vector<std::unique_ptr<buffer::session>> all;
    while (all.emplace_back(pool_->open_session()) != nullptr) {
    }
    const status s = mount_directory(*runtime_, folder_ / "source", folder_ / "empty",
                                     {.buffer = pool_.get()}, out);
    EXPECT_EQ(s.code, -EINVAL);
    EXPECT_NE(s.message.find("buffer_options::sessions"), std::string::npos) << s.message;
    EXPECT_EQ(out, nullptr);
}

INSTANTIATE_TEST_SUITE_P(on, pooled_mount,
                         testing::Values(mounted_as(backend::cpu, true),
                                         mounted_as(backend::gpu, true)),
                         [](const auto& info) { return name_of(info); });

}  // namespace penstock::test::mount_pool
