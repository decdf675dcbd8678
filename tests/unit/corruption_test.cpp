// The ways in which other page caches for GPUs have lost or mixed up data, one a test: the wrong
// page marked dirty, data beyond the cache lost, one page loaded into two frames, a page number cut
// to 32 bits.
#include <fcntl.h>
#include <unistd.h>

#include <atomic>

#include "penstock/engine/invariants.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t tiny_page = 512;  // the smallest, so that page numbers are large

options tiny_pages(const temporary_folder& folder, std::uint64_t table_bytes = 1 << 20) {
    options o = small_options(folder);
    o.writable = true;
    o.page_bytes = tiny_page;
    // Pages go when their frames are needed, and not before.
    o.cache_bytes = o.write_behind_bytes = 32 * tiny_page;
    o.table_bytes = table_bytes;
    return o;
}

class file_handle_here {
public:
    explicit file_handle_here(const std::string& path)
        : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {}
    ~file_handle_here() { ::close(fd_); }
    [[nodiscard]] int fd() const { return fd_; }

private:
    int fd_;
};

}  // namespace

// Each page of a file that does not fit is written in turn, in an order that brings every page into
// many frames. After each fsync exactly that page has changed.
TEST(corruption, the_page_that_was_written_is_the_one_that_is_dirty) {
    const temporary_folder folder;
    const std::uint64_t pages = 101;
    auto wanted = pattern(1, pages * tiny_page);
    write_file(folder / "file", wanted);
    const auto rt = make_runtime(tiny_pages(folder));
    const int fd = rt->open(folder / "file", open_read_write);
    std::vector<std::uint8_t> got(tiny_page);
    for (std::uint64_t i = 0; i < 300; ++i) {
        const std::uint64_t number = i * 37 % pages, beside = (number + 50) % pages;
        ASSERT_EQ(
            rt->read(fd, got.data(), tiny_page, static_cast<std::int64_t>(beside * tiny_page)),
            static_cast<std::int64_t>(tiny_page));
        const auto bytes = pattern(1000 + i, 9);
        ASSERT_EQ(
            rt->write(fd, bytes.data(), 9, static_cast<std::int64_t>(number * tiny_page + i % 500)),
            9);
        std::copy(bytes.begin(), bytes.end(),
                  wanted.begin() + static_cast<std::ptrdiff_t>(number * tiny_page + i % 500));
        if (i % 10 != 9) continue;
        ASSERT_EQ(rt->fsync(fd), 0);
        ASSERT_EQ(bytes_on_disk(folder / "file"), wanted) << "after step " << i;
    }
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(folder / "file"), wanted);
}

// Thirty times the cache, written by several threads, and read back by all of them.
TEST(corruption, data_beyond_the_cache_is_kept) {
    const temporary_folder folder;
    constexpr std::uint64_t threads = 4, pages = 960;
    const auto wanted = pattern(2, pages * tiny_page);
    const auto rt = make_runtime(tiny_pages(folder));
    const int held = rt->open(folder / "file", open_read_write | open_create);
    ASSERT_GE(held, 0);
    std::atomic<int> wrong{0};
    std::vector<std::thread> team;
    for (std::uint64_t t = 0; t < threads; ++t)
        team.emplace_back([&, t] {
            std::vector<std::uint8_t> got(tiny_page);
            for (std::uint64_t i = t; i < pages; i += threads) {
                if (write(lane{}, rt->ref(), held, wanted.data() + i * tiny_page, tiny_page,
                          static_cast<std::int64_t>(i * tiny_page)) !=
                    static_cast<std::int64_t>(tiny_page))
                    ++wrong;
                const std::uint64_t back =
                    i / 2 / threads * threads + t;  // one that this thread wrote long before
                if (read(lane{}, rt->ref(), held, got.data(), tiny_page,
                         static_cast<std::int64_t>(back * tiny_page)) !=
                        static_cast<std::int64_t>(tiny_page) ||
                    !std::equal(got.begin(), got.end(),
                                wanted.begin() + static_cast<std::ptrdiff_t>(back * tiny_page)))
                    ++wrong;
            }
        });
    for (std::thread& thread : team) thread.join();
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_GT(rt->stats().dirty_victims, pages / 2);
    EXPECT_EQ(rt->close(held), 0);
    EXPECT_EQ(bytes_on_disk(folder / "file"), wanted);
}

// Threads add to counters in the same few pages, in turn for each counter, while other pages push
// them out. Were a page in two frames, one of them would go to the file with old counts.
TEST(corruption, a_page_is_in_one_frame_only) {
    const temporary_folder folder;
    constexpr std::uint64_t threads = 4, rounds = 300, pages = 8, spare = 64;
    write_file(folder / "file", std::vector<std::uint8_t>((pages + spare) * tiny_page));
    const auto rt = make_runtime(tiny_pages(folder));
    const int held = rt->open(folder / "file", open_read_write);
    std::atomic<int> wrong{0};
    std::vector<std::thread> team;
    for (std::uint64_t t = 0; t < threads; ++t)
        team.emplace_back([&, t] {
            for (std::uint64_t i = 0; i < rounds; ++i) {
                const auto at = static_cast<std::int64_t>(i % pages * tiny_page + t * 8);
                std::uint64_t count = 0, seen = 0;
                if (read(lane{}, rt->ref(), held, &count, 8, at) != 8 || count != i / pages)
                    ++wrong;
                ++count;
                if (write(lane{}, rt->ref(), held, &count, 8, at) != 8) ++wrong;
                for (std::uint64_t k = 0; k < 8; ++k)
                    if (read(lane{}, rt->ref(), held, &seen, 8,
                             static_cast<std::int64_t>((pages + (i * 8 + k * 5 + t) % spare) *
                                                       tiny_page)) != 8)
                        ++wrong;
            }
        });
    for (std::thread& thread : team) thread.join();
    EXPECT_EQ(wrong.load(), 0);
    EXPECT_GT(rt->stats().evictions, rounds);
    const auto found = engine::check_invariants(rt->ref().view, {0, 1});
    EXPECT_EQ(found.rule, nullptr) << found.rule;
    EXPECT_EQ(rt->close(held), 0);
}

// Pages whose numbers differ by 2^32 and more: none is taken for another, in reading, writing and
// write-back.
TEST(corruption, page_numbers_are_not_cut_to_32_bits) {
    const temporary_folder folder;
    constexpr std::uint64_t size = std::uint64_t{5} << 41;  // 5 * 2^32 pages of 512 bytes
    const file_handle_here file(folder / "huge");
    if (::ftruncate(file.fd(), static_cast<off_t>(size)) != 0)
        GTEST_SKIP()
            << "the file system of the temporary directory has no file of 10 TiB; set TMPDIR";
    std::vector<std::uint64_t> places;
    for (std::uint64_t i = 0; i < 5; ++i)
        for (const std::uint64_t low :
             {std::uint64_t{0}, std::uint64_t{7}, (std::uint64_t{1} << 32) - 1})
            places.push_back((i << 41) + low * tiny_page);
    for (const std::uint64_t at : places)
        ASSERT_EQ(::pwrite(file.fd(), pattern(at, 100).data(), 100, static_cast<off_t>(at)), 100);
    const auto rt = make_runtime(tiny_pages(folder, 64 << 20));
    const int fd = rt->open(folder / "huge", open_read_write);
    ASSERT_GE(fd, 0) << error_text(fd);
    std::vector<std::uint8_t> got(100);
    for (const std::uint64_t at : places) {
        ASSERT_EQ(rt->read(fd, got.data(), 100, static_cast<std::int64_t>(at)), 100) << at;
        EXPECT_EQ(got, pattern(at, 100)) << at;
    }
    for (const std::uint64_t at : places)
        ASSERT_EQ(
            rt->write(fd, pattern(at + 1, 50).data(), 50, static_cast<std::int64_t>(at + 200)), 50)
            << at;
    ASSERT_EQ(rt->write(fd, "end", 3, static_cast<std::int64_t>(size)), 3) << "and it grows there";
    EXPECT_EQ(rt->write(fd, "far", 3, static_cast<std::int64_t>(size + (std::uint64_t{1} << 42))),
              -EFBIG);
    EXPECT_EQ(rt->fsync(fd), 0);
    for (const std::uint64_t at : places) {
        got.assign(250, 0xee);
        ASSERT_EQ(::pread(file.fd(), got.data(), 250, static_cast<off_t>(at)), 250);
        auto wanted = pattern(at, 100);
        wanted.resize(200);
        const auto second = pattern(at + 1, 50);
        wanted.insert(wanted.end(), second.begin(), second.end());
        EXPECT_EQ(got, wanted) << at;
    }
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(std::filesystem::file_size(folder / "huge"), size + 3);
}

}  // namespace penstock::test
