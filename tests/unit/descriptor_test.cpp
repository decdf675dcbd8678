// Descriptors: each is its opener's own, so a second close harms no other opener.
#include <atomic>
#include <set>

#include "penstock/engine/invariants.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

class descriptors : public testing::TestWithParam<bool> {
protected:
    temporary_folder folder;
    std::unique_ptr<runtime> rt;
    const std::string path = folder / "file";

    void SetUp() override {
        write_file(path, pattern(1, 5000));
        options o = small_options(folder);
        o.writable = true;
        rt = make_runtime(o);
    }
    // By the host, or by a group of a kernel.
    [[nodiscard]] int opened(int flags = open_read) const {
        return GetParam() ? rt->open(path, flags) : open(lane{}, rt->ref(), path.c_str(), flags);
    }
    [[nodiscard]] int closed(int fd) const {
        return GetParam() ? rt->close(fd) : close(lane{}, rt->ref(), fd);
    }
    [[nodiscard]] std::int64_t byte_of(int fd) const {
        std::uint8_t got = 0;
        const std::int64_t code = read(lane{}, rt->ref(), fd, &got, 1, 7);
        return code == 1 ? got : code;
    }
    void expect_references(std::uint64_t held) const {
        const engine::invariant_report found = engine::check_invariants(rt->ref().view, {0, held});
        EXPECT_EQ(found.rule, nullptr) << found.rule << " at " << found.where;
    }
};

}  // namespace

TEST_P(descriptors, a_second_close_of_a_reader_leaves_the_writer_alone) {
    const int reading = opened(), writing = opened(open_read_write);
    EXPECT_EQ(closed(reading), 0);
    EXPECT_EQ(closed(reading), -EBADF);
    EXPECT_EQ(rt->write(writing, "x", 1, 0), 1);
    EXPECT_EQ(closed(writing), 0);
    EXPECT_EQ(closed(writing), -EBADF);
    EXPECT_EQ(std::ifstream(path).get(), 'x');
    expect_references(0);
}

TEST_P(descriptors, six_of_a_file_are_their_openers_own) {
    for (const int flags : {open_read, open_read_write}) {
        std::vector<int> all;
        for (int i = 0; i < 6; ++i) all.push_back(opened(flags));
        EXPECT_EQ(std::set<int>(all.begin(), all.end()).size(), 6u);
        for (const int fd : all) EXPECT_EQ(byte_of(fd), pattern_byte(1, 7));
        for (std::size_t i = 0; i < all.size(); ++i) {
            EXPECT_EQ(closed(all[i]), 0);
            EXPECT_EQ(closed(all[i]), -EBADF);
            EXPECT_EQ(byte_of(all[i]), -EBADF) << "used after its close";
            for (std::size_t k = i + 1; k < all.size(); ++k)
                EXPECT_EQ(byte_of(all[k]), pattern_byte(1, 7));
        }
        expect_references(0);
    }
}

// The seventh and those after it share a number. Closing that too often takes none of the others'
// references.
TEST_P(descriptors, those_that_share_a_number_do_not_take_the_others) {
    const int writing = opened(open_read_write);
    std::vector<int> own, shared;
    for (int i = 0; i < 5; ++i) own.push_back(opened());
    for (int i = 0; i < 10; ++i) shared.push_back(opened());
    EXPECT_EQ(std::set<int>(shared.begin(), shared.end()).size(), 1u);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(closed(shared[0]), 0);
    EXPECT_EQ(closed(shared[0]), -EBADF);
    for (const int fd : own) EXPECT_EQ(closed(fd), 0);
    for (const int fd : own) EXPECT_EQ(closed(fd), -EBADF);
    EXPECT_EQ(rt->write(writing, "y", 1, 0), 1);
    EXPECT_EQ(closed(writing), 0);
    expect_references(0);
}

// All numbers are taken by readers, so writers share one; a reader that has shared it before is
// known to be gone.
TEST_P(descriptors, a_shared_writer_is_not_closed_by_a_reader) {
    std::vector<int> own;
    for (int i = 0; i < 6; ++i) own.push_back(opened());
    const int reading = opened(), writing = opened(open_read_write);
    EXPECT_EQ(closed(reading), 0);
    for (const int fd : own) EXPECT_EQ(closed(fd), 0);
    EXPECT_EQ(closed(reading), -EBADF);
    EXPECT_EQ(rt->write(writing, "z", 1, 0), 1);
    EXPECT_EQ(closed(writing), 0);
    expect_references(0);
}

TEST_P(descriptors, a_runtime_that_only_reads) {
    rt = make_runtime(small_options(folder));
    const int first = opened(), second = opened();
    EXPECT_EQ(closed(first), 0);
    EXPECT_EQ(closed(first), -EBADF);
    EXPECT_EQ(byte_of(second), pattern_byte(1, 7));
    EXPECT_EQ(closed(second), 0);
    EXPECT_EQ(closed(second), -EBADF);
    expect_references(0);
}

TEST_P(descriptors, numbers_that_no_open_returned_are_refused) {
    const int fd = opened();
    for (int number = 0; number < 8; ++number) {
        const int other = (fd & ~(7 << 16)) | number << 16;
        if (other == fd) continue;
        EXPECT_EQ(closed(other), -EBADF) << number;
    }
    EXPECT_EQ(byte_of(fd), pattern_byte(1, 7));
    EXPECT_EQ(closed(fd), 0);
}

// Threads open, read and close; each close is right once and wrong the second time, or may meet
// another's open.
TEST_P(descriptors, many_threads_open_and_close) {
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
        threads.emplace_back([&, t] {
            for (int i = 0; i < 500; ++i) {
                const int fd = opened((t + i) % 2 == 0 ? open_read : open_read_write);
                if (fd < 0 || byte_of(fd) != pattern_byte(1, 7) || closed(fd) != 0) ++wrong;
            }
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    expect_references(0);
}

// A descriptor that is held for a moment is no writer, whatever access its origin has.
TEST(descriptor, windows_of_a_file_that_is_written_leave_its_writer_counted) {
    const temporary_folder folder;
    const std::string path = folder / "file";
    write_file(path, pattern(1, 3 * page));
    options o = small_options(folder, 1);
    o.writable = true;
    host::runtime_hooks hooks;
    hooks.windows_on_cpu = true;
    const auto rt = make_runtime(o, hooks);
    const int writer = rt->open(path, open_read_write);
    ASSERT_GE(writer, 0);
    for (int i = 0; i < 2; ++i) static_cast<void>(rt->open_windows(writer));  // it may be refused
    // Only the first of several writers cuts.
    const int other = open(lane{}, rt->ref(), path.c_str(), open_read_write | open_truncate);
    EXPECT_GE(other, 0);
    EXPECT_EQ(bytes_on_disk(path).size(), 3 * page);
    EXPECT_EQ(close(lane{}, rt->ref(), other), 0);
    EXPECT_EQ(rt->close(writer), 0);
    EXPECT_EQ(engine::writers_of(rt->ref().view, engine::descriptor_slot(rt->ref().view, writer)),
              0u);
}

// More slots than leave room for numbers: as ever.
TEST(descriptor, files_beyond_65536_share_their_numbers) {
    const temporary_folder folder;
    write_file(folder / "file", pattern(1, 100));
    options o = small_options(folder);
    o.max_files = 100000;
    const auto rt = make_runtime(o);
    const int first = rt->open("file"), second = rt->open("file");
    EXPECT_EQ(first, second);
    EXPECT_EQ(rt->close(first), 0);
    EXPECT_EQ(rt->close(second), 0);
    EXPECT_EQ(rt->close(second), -EBADF);
}

INSTANTIATE_TEST_SUITE_P(by, descriptors, testing::Bool(),
                         [](const auto& info) { return info.param ? "host" : "kernel"; });

}  // namespace penstock::test
