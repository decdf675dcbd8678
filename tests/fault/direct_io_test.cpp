// Reads past the page cache, of real files: the right bytes, whatever refuses or fails.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "fault/scenario.hpp"
#include "soon.hpp"

namespace penstock::fault {

namespace {

class direct_io : public testing::Test {
protected:
    static constexpr std::uint64_t spots = 300, far_bytes = 16 << 20;
    temporary_folder folder;
    faulty_environment disk;
    std::vector<std::string> lines;
    std::unique_ptr<runtime> rt;

    void SetUp() override {
        made_with = test::small_options(folder);
        made_with.service_threads = 1;
        test::write_file(folder / "probe", test::pattern(1, 4096));
        const int fd = ::open((folder / "probe").c_str(), O_RDONLY | O_CLOEXEC);
        std::uint32_t grain = 0;
        const int direct = host::linux_environment().open_direct(fd, grain);
        ::close(fd);
        if (direct < 0)
            GTEST_SKIP() << "the file system of " << folder.path()
                         << " has no O_DIRECT: " << error_text(direct);
        ::close(direct);
    }
    // Other programs of this user may have used up what it may lock meanwhile.
    [[nodiscard]] bool was_refused() const {
        return std::any_of(lines.begin(), lines.end(), [](const std::string& line) {
            return line.find("RLIMIT_MEMLOCK") != std::string::npos;
        });
    }
    // Does this kernel register a mebibyte for this user?
    static bool kernel_registers() {
        std::string why;
        const auto io = host::linux_environment().make_io_engine(true, 4, why);
        std::vector<std::byte> memory(1 << 20);
        return io != nullptr && io->register_memory({{memory.data(), memory.size()}}) == 0;
    }
    options made_with;
    void make(direct_mode mode, io_method io = io_method::automatic) {
        options o = made_with;
        o.direct_io = mode;
        o.io = io;
        o.table_bytes = 64 << 20;
        o.log = [this](const std::string& line) { lines.push_back(line); };
        host::runtime_hooks hooks;
        hooks.env = &disk;
        rt = test::make_runtime(o, hooks);
    }
    void expect_file(const char* name, const std::vector<std::uint8_t>& bytes) {
        const int fd = rt->open(folder / name);
        ASSERT_GE(fd, 0);
        std::vector<std::uint8_t> got(bytes.size());
        EXPECT_EQ(rt->read(fd, got.data(), static_cast<std::int64_t>(got.size()), 0),
                  static_cast<std::int64_t>(got.size()));
        EXPECT_TRUE(got == bytes);
        EXPECT_EQ(rt->close(fd), 0);
    }
    // A large file with a page of its own bytes every 16 MiB, none of it in memory.
    void make_scattered() {
        const int fd = ::open((folder / "scattered").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        ASSERT_GE(fd, 0);
        for (std::uint64_t i = 0; i < spots; ++i) {
            const auto bytes = test::pattern(i, page);
            ASSERT_EQ(::pwrite(fd, bytes.data(), page, static_cast<off_t>(i * far_bytes)),
                      static_cast<ssize_t>(page));
        }
        // Pages that the system still has in hand stay, and go a moment later.
        EXPECT_TRUE(soon([&] {
            return ::fsync(fd) == 0 && ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) == 0 &&
                   !any_is_in_memory(fd);
        }));
        ::close(fd);
    }
    static bool any_is_in_memory(int fd) {
        bool any = false;
        for (std::uint64_t i = 0; i < spots; ++i)
            any |= host::linux_environment().in_page_cache(fd, i * far_bytes, page) > 0;
        return any;
    }
    void read_scattered(int fd) {
        for (std::uint64_t i = 0; i < spots; ++i) {
            const std::uint64_t spot = i * 77 % spots;
            std::vector<std::uint8_t> got(page);
            EXPECT_EQ(rt->read(fd, got.data(), page, static_cast<std::int64_t>(spot * far_bytes)),
                      static_cast<std::int64_t>(page));
            EXPECT_TRUE(got == test::pattern(spot, page)) << spot;
        }
    }
};

}  // namespace

// A read of its last page then brings more bytes than the file had when it was opened.
TEST_F(direct_io, of_a_file_that_has_grown_gives_what_it_had) {
    make(direct_mode::on);
    const auto bytes = test::pattern(4, page + 904);
    test::write_file(folder / "grows", bytes);
    test::let_files_settle();
    const int fd = rt->open(folder / "grows");
    ASSERT_GE(fd, 0);
    std::ofstream(folder / "grows", std::ios::app) << std::string(3 * page, 'x');
    std::vector<std::uint8_t> got(3 * page, 0xa5);
    EXPECT_EQ(rt->read(fd, got.data(), static_cast<std::int64_t>(got.size()), 0),
              static_cast<std::int64_t>(bytes.size()));
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), got.begin()));
    EXPECT_EQ(got[bytes.size()], 0xa5);
    EXPECT_GT(rt->stats().direct_reads, 0u);
    EXPECT_EQ(rt->close(fd), 0);
}

TEST_F(direct_io, on_brings_every_byte_also_of_the_last_page) {
    for (const std::uint64_t size : {std::uint64_t{1}, page - 1, page, 37 * page + 513}) {
        const auto bytes = test::pattern(size, size);
        test::write_file(folder / "a", bytes);
        test::let_files_settle();
        for (const io_method io : {io_method::automatic, io_method::pread}) {
            make(direct_mode::on, io);
            expect_file("a", bytes);
            EXPECT_EQ(rt->stats().direct_reads, (size + page - 1) / page);
            EXPECT_EQ(rt->stats().file_read_bytes, size);
        }
    }
    rt.reset();
    EXPECT_EQ(disk.handles(), 0);
}

// Written a moment ago and still to be written out.
TEST_F(direct_io, on_sees_what_was_written_last) {
    for (std::uint64_t round = 0; round < 5; ++round) {
        const auto bytes = test::pattern(round, 9 * page);
        test::write_file(folder / "a", bytes);
        make(direct_mode::on);
        expect_file("a", bytes);
        EXPECT_EQ(rt->stats().direct_reads, 9u);
    }
}

TEST_F(direct_io, automatic_reads_at_random_directly_once_then_into_the_page_cache) {
    make_scattered();
    make(direct_mode::automatic);
    const int fd = rt->open(folder / "scattered");
    ASSERT_GE(fd, 0);
    std::uint8_t byte = 0;
    ASSERT_EQ(rt->read(fd, &byte, 1, 8 * page), 1);
    if (host::linux_environment().in_page_cache(0, 0, 1) == -ENOSYS)
        GTEST_SKIP() << "this kernel does not tell what is in the page cache";
    read_scattered(fd);
    const std::uint64_t first = rt->stats().direct_reads;
    EXPECT_GT(first, spots * 8 / 10);
    EXPECT_LE(first, spots);
    // The cache has 64 frames, so every page is missed again; and a third time, now from memory.
    read_scattered(fd);
    const std::uint64_t second = rt->stats().direct_reads;
    EXPECT_LT(second - first, spots / 10);
    read_scattered(fd);
    EXPECT_EQ(rt->stats().direct_reads, second);
    EXPECT_EQ(rt->stats().file_read_errors, 0u);
    EXPECT_EQ(rt->close(fd), 0);
}

TEST_F(direct_io, what_refuses_to_open_is_read_all_the_same_and_it_is_said_once) {
    const auto bytes = test::pattern(5, 20 * page + 99);
    test::write_file(folder / "a", bytes);
    test::write_file(folder / "b", bytes);
    fault_plan plan;
    plan.calls = call_open_direct;
    plan.nth = 1;
    plan.for_ever = true;
    plan.error = -EINVAL;
    disk.set(plan);
    make(direct_mode::on);
    expect_file("a", bytes);
    expect_file("b", bytes);
    EXPECT_EQ(rt->stats().direct_reads, 0u);
    const std::string begin = test::label_of_cache() + "direct_io: ";
    EXPECT_EQ(std::count_if(lines.begin(), lines.end(),
                            [&](const std::string& line) { return line.find(begin) == 0; }),
              1);
    EXPECT_EQ(disk.calls(), 2u) << "each file is tried once";
}

TEST_F(direct_io, what_refuses_a_read_is_read_all_the_same) {
    const auto bytes = test::pattern(6, 20 * page + 99);
    test::write_file(folder / "a", bytes);
    fault_plan plan;
    plan.calls = call_direct_read;
    plan.nth = 3;
    plan.error = -EINVAL;
    disk.set(plan);
    make(direct_mode::on);
    expect_file("a", bytes);
    EXPECT_LT(rt->stats().direct_reads, 21u);
    EXPECT_EQ(rt->stats().file_reads, 21u);
    EXPECT_EQ(rt->stats().file_read_errors, 0u);
}

TEST_F(direct_io, a_disk_that_fails_is_an_error_and_not_another_way) {
    test::write_file(folder / "a", test::pattern(7, 3 * page));
    fault_plan plan;
    plan.calls = call_direct_read;
    plan.nth = 1;
    plan.error = -EIO;
    disk.set(plan);
    make(direct_mode::on);
    const int fd = rt->open(folder / "a");
    std::uint8_t byte = 0;
    EXPECT_EQ(rt->read(fd, &byte, 1, 0), -EIO);
    EXPECT_EQ(rt->read(fd, &byte, 1, 0), 1);
    EXPECT_EQ(byte, pattern_byte(7, 0));
    EXPECT_EQ(rt->close(fd), 0);
}

TEST_F(direct_io, short_reads_go_on_where_they_stopped) {
    const auto bytes = test::pattern(8, 5 * page + 700);
    test::write_file(folder / "a", bytes);
    for (const std::uint32_t piece : {512u, 1000u, 4095u}) {
        fault_plan plan;
        plan.longest_read = piece;
        disk.set(plan);
        make(direct_mode::on);
        expect_file("a", bytes);
        EXPECT_GE(rt->stats().direct_reads, 6u);
    }
}

// The staging area is a mebibyte, so the first 256 pages are read without.
TEST_F(direct_io, staging_memory_is_registered_once_as_much_was_read) {
    const auto bytes = test::pattern(10, 700 * page + 513);
    test::write_file(folder / "a", bytes);
    test::let_files_settle();
    if (!kernel_registers())
        GTEST_SKIP() << "this kernel registers no memory for this user; see ulimit -l";
    make(direct_mode::on);
    expect_file("a", bytes);
    if (was_refused()) GTEST_SKIP() << lines.back();
    EXPECT_EQ(rt->stats().direct_reads, 701u);
    EXPECT_EQ(rt->stats().registered_reads, 701u - 256);
    EXPECT_EQ(rt->stats().file_read_errors, 0u);
    made_with.registered_buffers = false;
    make(direct_mode::on);
    expect_file("a", bytes);
    EXPECT_EQ(rt->stats().direct_reads, 701u);
    EXPECT_EQ(rt->stats().registered_reads, 0u);
}

TEST_F(direct_io, pages_read_ahead_go_into_a_registered_tier) {
    const auto bytes = test::pattern(11, 2500 * page + 77);
    test::write_file(folder / "a", bytes);
    test::let_files_settle();
    if (!kernel_registers())
        GTEST_SKIP() << "this kernel registers no memory for this user; see ulimit -l";
    made_with.tier_bytes = 1 << 20;
    make(direct_mode::on);
    const int fd = rt->open(folder / "a");
    for (std::uint64_t i = 0; i < 2501; ++i) {
        std::vector<std::uint8_t> got(page);
        const auto wanted =
            static_cast<std::int64_t>(std::min<std::uint64_t>(page, bytes.size() - i * page));
        ASSERT_EQ(rt->read(fd, got.data(), page, static_cast<std::int64_t>(i * page)), wanted);
        EXPECT_TRUE(std::equal(got.begin(), got.begin() + wanted,
                               bytes.begin() + static_cast<std::int64_t>(i * page)))
            << i;
    }
    EXPECT_EQ(rt->close(fd), 0);
    if (was_refused()) GTEST_SKIP() << lines.back();
    // Two mebibytes, 512 pages, are read without; hardly anything of the rest goes through the
    // staging area.
    EXPECT_GT(rt->stats().read_ahead_pages, 2000u);
    EXPECT_GT(rt->stats().registered_reads, 0u);
    EXPECT_EQ(rt->stats().file_read_errors, 0u);
}

TEST_F(direct_io, a_kernel_that_registers_nothing_costs_one_line_where_there_is_a_cure) {
    const auto bytes = test::pattern(12, 600 * page + 1);
    test::write_file(folder / "a", bytes);
    test::let_files_settle();
    for (const int refusal : {-ENOMEM, -EOPNOTSUPP, -EFAULT}) {
        fault_plan plan;
        plan.calls = call_register;
        plan.nth = 1;
        plan.for_ever = true;
        plan.error = refusal;
        disk.set(plan);
        lines.clear();
        make(direct_mode::on);
        if (rt->settings().io != io_method::uring) GTEST_SKIP() << "no io_uring here";
        expect_file("a", bytes);
        EXPECT_EQ(rt->stats().direct_reads, 601u);
        EXPECT_EQ(rt->stats().registered_reads, 0u);
        EXPECT_EQ(rt->stats().file_read_errors, 0u);
        EXPECT_EQ(disk.calls(), 1u) << "tried once";
        const auto said = std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
            return line.find("RLIMIT_MEMLOCK") != std::string::npos &&
                   line.find("PENSTOCK_REGISTERED_BUFFERS") != std::string::npos;
        });
        rlimit locked{};
        ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &locked), 0);
        EXPECT_EQ(said, refusal == -ENOMEM && locked.rlim_cur != RLIM_INFINITY ? 1 : 0);
    }
}

TEST_F(direct_io, a_file_that_shrinks_is_stale) {
    test::write_file(folder / "a", test::pattern(9, 10 * page));
    make(direct_mode::on);
    const int fd = rt->open(folder / "a");
    std::filesystem::resize_file(folder / "a", 4 * page + 100);
    std::vector<std::uint8_t> got(page);
    EXPECT_EQ(rt->read(fd, got.data(), page, 3 * page), static_cast<std::int64_t>(page));
    EXPECT_EQ(got[5], pattern_byte(9, 3 * page + 5));
    EXPECT_EQ(rt->read(fd, got.data(), page, 4 * page), -ESTALE);
    EXPECT_EQ(rt->read(fd, got.data(), page, 8 * page), -ESTALE);
    EXPECT_EQ(rt->close(fd), 0);
}

}  // namespace penstock::fault
