// A disk that is full in the middle of a large write, a limit on file sizes, a disk that never
// works again: which calls tell of it, and that nothing is missing once the cause is gone.
//
// The full disk is a tmpfs of its own, which only root may mount; elsewhere that test skips itself.
// It is 64 MiB large; with PENSTOCK_DISK_FULL_MIB=2048 in the environment it is 1 GiB and 2 GiB are
// written to it (8 GiB of memory, a minute).
#include <csignal>
#include <fstream>
#include <future>
#include <iterator>
#include <numeric>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#include "fault/write_scenario.hpp"
#include "penstock/table.hpp"

namespace penstock::fault {

namespace {

constexpr std::uint64_t mib = 1u << 20;

// What the log says.
class listener {
public:
    [[nodiscard]] std::function<void(const std::string&)> ear() {
        return [this](const std::string& line) {
            std::lock_guard lock(mutex_);
            lines_ += line + "\n";
        };
    }
    [[nodiscard]] std::string lines() {
        std::lock_guard lock(mutex_);
        return lines_;
    }
    [[nodiscard]] std::size_t count(const std::string& part) {
        const std::string text = lines();
        std::size_t found = 0;
        for (std::size_t at = text.find(part); at != std::string::npos;
             at = text.find(part, at + 1))
            ++found;
        return found;
    }

private:
    std::mutex mutex_;
    std::string lines_;
};

class small_disk {
public:
    explicit small_disk(std::uint64_t bytes) {
        is_there_ = ::mount("tmpfs", folder_.path().c_str(), "tmpfs", MS_NOSUID | MS_NODEV,
                            ("size=" + std::to_string(bytes)).c_str()) == 0;
    }
    ~small_disk() {
        if (is_there_) ::umount2(folder_.path().c_str(), MNT_DETACH);
    }
    [[nodiscard]] bool is_there() const { return is_there_; }
    [[nodiscard]] const temporary_folder& folder() const { return folder_; }

private:
    temporary_folder folder_;
    bool is_there_ = false;
};

std::uint64_t megabytes_to_write() {
    const char* const text = std::getenv("PENSTOCK_DISK_FULL_MIB");
    return text != nullptr ? std::strtoull(text, nullptr, 10) : 48;
}

bool same_bytes(const std::string& path, std::uint64_t seed, std::uint64_t bytes) {
    std::ifstream in(path, std::ios::binary);
    std::vector<char> piece(mib);
    for (std::uint64_t at = 0; at < bytes; at += mib) {
        in.read(piece.data(), static_cast<std::streamsize>(mib));
        if (in.gcount() != static_cast<std::streamsize>(mib)) return false;
        const auto wanted = test::pattern(seed + at / mib, mib);
        if (!std::equal(wanted.begin(), wanted.end(),
                        reinterpret_cast<const std::uint8_t*>(piece.data())))
            return false;
    }
    return in.peek() == std::char_traits<char>::eof();
}

// Lowers the limit on the sizes of files that this process writes, as long as it lives.
class size_limit {
public:
    explicit size_limit(std::uint64_t bytes) {
        ::getrlimit(RLIMIT_FSIZE, &before_);
        rlimit now = before_;
        now.rlim_cur = bytes;
        ::setrlimit(RLIMIT_FSIZE, &now);
    }
    ~size_limit() { ::setrlimit(RLIMIT_FSIZE, &before_); }

private:
    rlimit before_{};
};

}  // namespace

// A file takes half of the disk; then a write of three quarters. The half is removed, and fsync
// succeeds.
TEST(disk_full, in_the_middle_of_a_write) {
    const std::uint64_t pieces = megabytes_to_write(), all = pieces * mib;
    const small_disk disk((pieces + pieces / 3) * mib);
    if (!disk.is_there()) GTEST_SKIP() << "mounting a tmpfs needs root (CAP_SYS_ADMIN)";
    const std::string ballast = disk.folder() / "ballast", path = disk.folder() / "file";
    {
        std::ofstream out(ballast, std::ios::binary);
        const std::vector<char> zeros(mib);
        for (std::uint64_t i = 0; i < (pieces + pieces / 3) / 2; ++i)
            out.write(zeros.data(), static_cast<std::streamsize>(mib));
        ASSERT_TRUE(out.good());
    }
    listener log;
    options o = test::small_options(disk.folder());
    o.writable = true;
    o.page_bytes = 65536;
    o.cache_bytes =
        all / 6;  // less than what the disk cannot take, so the write ends in the middle
    o.table_bytes = 16 * mib;
    o.frame_wait_ms = 100;
    o.log = log.ear();
    const auto rt = test::make_runtime(o);
    const int fd = rt->open(path, open_read_write | open_create);
    ASSERT_GE(fd, 0);
    const auto write_piece = [&](std::uint64_t i) {
        const auto bytes = test::pattern(7 + i, mib);
        std::int64_t done = 0;
        while (done < static_cast<std::int64_t>(mib)) {
            const std::int64_t now =
                rt->write(fd, bytes.data() + done, static_cast<std::int64_t>(mib) - done,
                          static_cast<std::int64_t>(i * mib) + done);
            if (now < 0) return now;
            done += now;
        }
        return done;
    };
    std::uint64_t i = 0;
    std::int64_t code = 0;
    for (; i < pieces && (code = write_piece(i)) > 0; ++i) {
    }
    EXPECT_EQ(code, -ENOSPC) << "no page could be written back for its frame, and why";
    EXPECT_LT(i, pieces);
    EXPECT_EQ(rt->fsync(fd), -ENOSPC);
    EXPECT_EQ(rt->fsync(fd), -ENOSPC) << "it is not acknowledged as long as it is not there";
    const status found = rt->write_status();
    EXPECT_EQ(found.code, -ENOSPC);
    EXPECT_NE(found.message.find(path + ": bytes "), std::string::npos) << found.message;
    EXPECT_NE(found.message.find(error_text(-ENOSPC)), std::string::npos) << found.message;
    EXPECT_EQ(log.count(path), 1u) << "one line a file: " << log.lines();
    EXPECT_EQ(log.count("free space on the file system at " + disk.folder().path() + ","), 1u)
        << log.lines();
    std::filesystem::remove(ballast);
    for (; i < pieces; ++i)
        ASSERT_EQ(write_piece(i), static_cast<std::int64_t>(mib)) << "space was freed";
    const int first = rt->fsync(fd);
    EXPECT_TRUE(first == 0 || first == -ENOSPC)
        << error_text(first);  // of a write-back before space was freed
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_TRUE(same_bytes(path, 7, all));
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_TRUE(same_bytes(path, 7, all));
    rt->clear_write_status();
    EXPECT_TRUE(rt->write_status().ok());
}

class failing_disk : public testing::Test {
protected:
    temporary_folder folder;
    faulty_environment disk;
    listener log;
    std::unique_ptr<runtime> rt;
    const std::string path = folder / "file";

    void SetUp() override { make({}); }
    void make(std::optional<std::uint64_t> write_behind_bytes) {
        host::runtime_hooks hooks;
        hooks.env = &disk;
        options o = test::small_options(folder);
        o.writable = true;
        o.frame_wait_ms = 1000;  // also beside busy programs
        o.write_behind_bytes = write_behind_bytes;
        o.log = log.ear();
        rt = test::make_runtime(o, hooks);
    }
    void fail(std::uint32_t calls, int error) {
        fault_plan plan;
        plan.calls = calls;
        plan.nth = 1;
        plan.for_ever = true;
        plan.error = error;
        disk.set(plan);
    }
    int open_and_write(std::uint64_t seed, std::uint64_t bytes, std::uint64_t offset) {
        const int fd = rt->open(path, open_read_write | open_create);
        EXPECT_GE(fd, 0);
        const auto content = test::pattern(seed, bytes);
        EXPECT_EQ(rt->write(fd, content.data(), static_cast<std::int64_t>(bytes),
                            static_cast<std::int64_t>(offset)),
                  static_cast<std::int64_t>(bytes));
        return fd;
    }
};

TEST_F(failing_disk, the_status_names_file_range_and_cause) {
    const int fd = open_and_write(1, 100, 3 * page + 50);
    EXPECT_TRUE(rt->write_status().ok());
    fail(call_write, -ENOSPC);
    EXPECT_EQ(rt->fsync(fd), -ENOSPC);
    const std::string first_byte = std::to_string(3 * page + 50),
                      last_byte = std::to_string(3 * page + 149);
    EXPECT_EQ(rt->write_status().code, -ENOSPC);
    EXPECT_EQ(rt->write_status().message, test::label_of_cache() + path + ": bytes " + first_byte +
                                              " to " + last_byte +
                                              " could not be written: " + error_text(-ENOSPC));
    EXPECT_EQ(log.count("bytes " + first_byte + " to " + last_byte), 1u) << log.lines();
    EXPECT_EQ(rt->msync(fd, 0, INT64_MAX), -ENOSPC);
    EXPECT_EQ(rt->fsync(fd), -ENOSPC);
    EXPECT_EQ(log.count(path), 1u) << log.lines();
    disk.clear();
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(rt->fsync(fd), 0);
    ASSERT_EQ(rt->write(fd, "x", 1, 0), 1);
    fail(call_write, -EDQUOT);
    EXPECT_EQ(rt->fsync(fd), -EDQUOT);
    EXPECT_EQ(log.count(path), 2u) << "it worked in between: " << log.lines();
    EXPECT_EQ(rt->write_status().code, -ENOSPC) << "the first one stays";
    rt->clear_write_status();
    EXPECT_TRUE(rt->write_status().ok());
    disk.clear();
    EXPECT_EQ(rt->close(fd), 0);
}

// 64 frames, all of them dirty before the disk says anything.
TEST_F(failing_disk, a_writer_is_told_why_it_gets_no_frame) {
    test::write_file(folder / "other", test::pattern(20, 4 * page));
    const int other = rt->open("other");
    options dirty_all = rt->settings();
    dirty_all.write_behind_bytes = dirty_all.cache_bytes;
    host::runtime_hooks hooks;
    hooks.env = &disk;
    rt = test::make_runtime(dirty_all, hooks);
    const int again = rt->open("other"), fd = open_and_write(21, 64 * page, 0);
    ASSERT_EQ(again, other);
    fail(call_write, -ENOSPC);
    std::vector<std::uint8_t> got(page);
    EXPECT_EQ(rt->write(fd, got.data(), page, 64 * page), -ENOSPC);
    EXPECT_EQ(map_write(lane{}, rt->ref(), fd, 64 * page, page).bytes, -ENOSPC);
    EXPECT_EQ(rt->read(again, got.data(), page, 0), -ENOSPC) << "no frame is clean";
    EXPECT_EQ(log.count("unmap"), 0u) << log.lines();
    disk.clear();
    EXPECT_EQ(rt->read(again, got.data(), page, 0), static_cast<std::int64_t>(page));
    EXPECT_EQ(got, test::pattern(20, page));
    EXPECT_EQ(rt->write(fd, got.data(), page, 64 * page), static_cast<std::int64_t>(page))
        << "space was freed";
    EXPECT_EQ(rt->fsync(fd), -ENOSPC) << "of a write-back before";
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(rt->close(fd), 0);
}

// Others hold every page that could be written back, and the cache is too large for one search to
// find that out: so the writer tries none, and the file's error says why there is no room.
TEST_F(failing_disk, a_writer_is_told_why_though_others_hold_what_cannot_be_written) {
    constexpr std::int64_t small_page = 512;
    options large = rt->settings();
    large.page_bytes = small_page;
    large.cache_bytes = 64 * mib;
    host::runtime_hooks hooks;
    hooks.env = &disk;
    rt = test::make_runtime(large, hooks);
    const int fd = rt->open(path, open_read_write | open_create);
    ASSERT_GE(fd, 0);
    fail(call_write, -ENOSPC);
    const auto bytes = test::pattern(24, small_page);
    std::int64_t code = 0, end = 0;
    for (; code >= 0 && end < static_cast<std::int64_t>(64 * mib);
         end += std::max<std::int64_t>(code, 0))
        code = rt->write(fd, bytes.data(), small_page, end);
    ASSERT_EQ(code, -ENOSPC);
    std::vector<mapping> held;
    for (std::int64_t at = 0; at < end; at += small_page) {
        held.push_back(map(lane{}, rt->ref(), fd, at, small_page));
        ASSERT_EQ(held.back().bytes, small_page);
    }
    EXPECT_EQ(rt->write(fd, bytes.data(), small_page, end), -ENOSPC);
    EXPECT_EQ(map_write(lane{}, rt->ref(), fd, end, small_page).bytes, -ENOSPC);
    for (const mapping& mapped : held) unmap(lane{}, rt->ref(), mapped);
    disk.clear();
    EXPECT_EQ(rt->write(fd, bytes.data(), small_page, end), small_page);
    EXPECT_EQ(rt->fsync(fd), -ENOSPC) << "of a write-back before";
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(path).size(), static_cast<std::size_t>(end + small_page));
}

// Each row that finds no frame would wait as long as the first.
TEST_F(failing_disk, rows_behind_one_that_finds_no_room_are_not_tried) {
    constexpr std::uint64_t count = 300;
    options quick = rt->settings();
    quick.frame_wait_ms = 100;
    host::runtime_hooks hooks;
    hooks.env = &disk;
    rt = test::make_runtime(quick, hooks);
    test::write_file(folder / "rows", std::vector<std::uint8_t>(count * page));
    table_layout layout{.row_bytes = page};
    layout.pieces.push_back({folder / "rows", 0, count});
    std::unique_ptr<table> rows;
    ASSERT_TRUE(table::make(*rt, layout, {.writable = true}, rows).ok());
    std::vector<std::int64_t> numbers(count);
    std::iota(numbers.begin(), numbers.end(), 0);
    const auto content = test::pattern(23, count * page);
    fail(call_write, -ENOSPC);
    ASSERT_EQ(rows->scatter(numbers.data(), count, content.data()), 0);
    const status noted = rows->check();
    EXPECT_EQ(noted.code, -ENOSPC) << noted.message;
    EXPECT_LE(rt->stats().errors, 64u)
        << "each write that fails counts, and 236 rows have no frame";
    disk.clear();
    ASSERT_EQ(rows->scatter(numbers.data(), count, content.data()), 0);
    EXPECT_TRUE(rows->check().ok());
    ASSERT_EQ(rows->sync(), -ENOSPC) << "of a write-back before";
    EXPECT_EQ(rows->sync(), 0);
    std::ifstream in(folder / "rows", std::ios::binary);
    const std::vector<std::uint8_t> there{std::istreambuf_iterator<char>(in), {}};
    EXPECT_EQ(there, content);
}

// A writer whose bytes find no room leaves the clean frames to the readers of other files.
TEST_F(failing_disk, readers_of_other_files_go_on) {
    test::write_file(folder / "other", test::pattern(22, 200 * page));
    const auto wanted = test::pattern(22, 200 * page);
    const int other = rt->open("other"), fd = rt->open(path, open_read_write | open_create);
    ASSERT_GE(fd, 0);
    fail(call_write, -ENOSPC);
    const auto bytes = test::pattern(23, page);
    std::int64_t code = 0, written = 0;
    for (; code >= 0 && written<1000; written += code> 0 ? 1 : 0)
        code = rt->write(fd, bytes.data(), page, written * static_cast<std::int64_t>(page));
    EXPECT_EQ(code, -ENOSPC);
    EXPECT_GE(written, 16) << "as many as may be dirty before any is written back";
    EXPECT_LT(written, 64) << "clean frames are left";
    for (std::uint64_t i = 0; i < 200; ++i) {
        std::vector<std::uint8_t> got(page);
        ASSERT_EQ(rt->read(other, got.data(), page, static_cast<std::int64_t>(i * page)),
                  static_cast<std::int64_t>(page))
            << i;
        ASSERT_TRUE(std::equal(got.begin(), got.end(),
                               wanted.begin() + static_cast<std::ptrdiff_t>(i * page)))
            << i;
    }
    EXPECT_EQ(rt->write(fd, bytes.data(), page, written * static_cast<std::int64_t>(page)),
              -ENOSPC);
    disk.clear();
    for (std::int64_t i = written; i < written + 100; ++i)
        ASSERT_EQ(rt->write(fd, bytes.data(), page, i * static_cast<std::int64_t>(page)),
                  static_cast<std::int64_t>(page))
            << i;
    EXPECT_EQ(rt->fsync(fd), -ENOSPC);
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(path).size(), static_cast<std::size_t>(written + 100) * page);
}

// A file that has grown to the limit is no reason for a shorter one to fail: its writer leaves the
// pages that cannot be written to their own file.
TEST_F(failing_disk, writers_of_other_files_go_on) {
    const std::int64_t pages = 100;
    const auto bytes = test::pattern(24, pages * page);
    const int fd = rt->open(path, open_read_write | open_create),
              other = rt->open(folder / "other", open_read_write | open_create);
    ASSERT_GE(fd, 0);
    ASSERT_GE(other, 0);
    {
        const size_limit limit(pages * page);
        std::int64_t code = 0, at = pages * page;
        for (std::int64_t i = 0; code >= 0 && i < 1000; ++i, at += page)
            code = rt->write(fd, bytes.data(), page, at);
        EXPECT_EQ(code, -EFBIG);
        for (std::int64_t i = 0; i < pages; ++i)
            ASSERT_EQ(rt->write(other, bytes.data() + i * page, page, i * page), page) << i;
        EXPECT_EQ(rt->fsync(other), 0);
        EXPECT_EQ(bytes_on_disk(folder / "other"), bytes);
        EXPECT_EQ(rt->fsync(fd), -EFBIG);
        EXPECT_EQ(rt->close(other), 0);
    }
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(rt->close(fd), 0);
}

TEST_F(failing_disk, a_short_write_moves_the_range) {
    const int fd = open_and_write(1, 3000, 0);
    fault_plan plan;
    plan.calls = call_write;
    plan.longest_write = 1000;
    plan.nth = 3;
    plan.error = -EIO;
    disk.set(plan);
    EXPECT_EQ(rt->fsync(fd), -EIO);
    EXPECT_NE(rt->write_status().message.find("bytes 2000 to 2999 "), std::string::npos)
        << rt->write_status().message;
    disk.clear();
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(path), test::pattern(1, 3000));
}

TEST_F(failing_disk, an_error_of_sync_itself_is_told_and_named) {
    const int fd = open_and_write(2, page, 0);
    fail(call_sync, -EIO);
    EXPECT_EQ(rt->fsync(fd), -EIO);
    EXPECT_NE(rt->write_status().message.find(path + ": could not be brought to its storage"),
              std::string::npos)
        << rt->write_status().message;
    disk.clear();
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(rt->close(fd), 0);
}

// A write-back for want of a frame fails: the caller that needed the frame gets another one, and
// the file's next fsync tells.
TEST_F(failing_disk, the_next_fsync_tells_what_an_eviction_met) {
    const auto bytes = test::pattern(3, 100 * page);
    const int fd = rt->open(path, open_read_write | open_create);
    fault_plan plan;
    plan.calls = call_write;
    plan.nth = 1;
    plan.error = -ENOSPC;
    disk.set(plan);
    for (std::uint64_t i = 0; i < 100; ++i)
        ASSERT_EQ(rt->write(fd, bytes.data() + i * page, page, static_cast<std::int64_t>(i * page)),
                  static_cast<std::int64_t>(page))
            << i;
    ASSERT_EQ(disk.failures(), 1u) << "no page was written back for its frame";
    EXPECT_EQ(rt->fsync(fd), -ENOSPC);
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(bytes_on_disk(path), bytes);
    EXPECT_EQ(rt->close(fd), 0);
}

TEST_F(failing_disk, close_tells_and_the_next_open_finds_the_pages) {
    const int fd = open_and_write(4, 2 * page, 0);
    fail(call_write, -EIO);
    EXPECT_EQ(rt->close(fd), -EIO);
    EXPECT_EQ(rt->close(fd), -EBADF) << "it is closed all the same";
    disk.clear();
    const int again = rt->open(path, open_read_write);
    std::vector<std::uint8_t> got(2 * page);
    EXPECT_EQ(rt->read(again, got.data(), 2 * page, 0), static_cast<std::int64_t>(2 * page));
    EXPECT_EQ(got, test::pattern(4, 2 * page));
    EXPECT_EQ(rt->close(again), 0);
    EXPECT_EQ(bytes_on_disk(path), test::pattern(4, 2 * page));
}

TEST_F(failing_disk, what_is_lost_with_the_runtime_is_named) {
    open_and_write(5, 3 * page, 0);
    fail(call_write, -EIO);
    rt.reset();
    EXPECT_EQ(log.count(path + ": 3 pages of "), 1u) << log.lines();
    EXPECT_EQ(log.count("are lost"), 1u) << log.lines();
}

TEST_F(failing_disk, a_refused_truncate_leaves_the_file_as_it_was) {
    const int fd = open_and_write(6, 2 * page, 0);
    fail(call_truncate, -EROFS);
    EXPECT_EQ(rt->truncate(fd, 10), -EROFS);
    std::vector<std::uint8_t> got(2 * page);
    EXPECT_EQ(rt->read(fd, got.data(), 2 * page, 0), static_cast<std::int64_t>(2 * page));
    EXPECT_EQ(got, test::pattern(6, 2 * page));
    disk.clear();
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(path), test::pattern(6, 2 * page));
}

// Bytes that have their place on a full disk are written, also behind a hole that has none.
TEST_F(failing_disk, what_can_be_written_is_written_beside_what_cannot) {
    const int fd = open_and_write(9, 10 * page, 0);
    ASSERT_EQ(rt->fsync(fd), 0);
    const std::vector<std::uint8_t> all = test::pattern(10, 10 * page);
    ASSERT_EQ(rt->write(fd, all.data(), 10 * page, 0), static_cast<std::int64_t>(10 * page));
    disk.refuse_writes_before(page);
    EXPECT_EQ(rt->fsync(fd), -ENOSPC);
    const std::vector<std::uint8_t> stored = bytes_on_disk(path);
    EXPECT_TRUE(std::equal(all.begin() + page, all.end(), stored.begin() + page));
    EXPECT_FALSE(std::equal(all.begin(), all.begin() + page, stored.begin()));
    disk.refuse_writes_before(0);
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(path), all);
}

// A full disk is not a full table, for which an opener waits and takes down closed files.
TEST_F(failing_disk, a_file_that_cannot_be_made_is_told_at_once) {
    fail(call_create, -ENOSPC);
    EXPECT_EQ(open(lane{}, rt->ref(), "new", open_write | open_create), -ENOSPC);
    EXPECT_EQ(disk.failures(), 1u);
}

TEST_F(failing_disk, a_disk_that_says_try_again_for_ever_ends_in_an_error) {
    for (const int error : {-EAGAIN, -EINTR}) {
        const int fd = open_and_write(7, 100, 0);
        fail(every_write_call, error);
        EXPECT_EQ(rt->fsync(fd), error);
        disk.clear();
        EXPECT_EQ(rt->close(fd), 0);
    }
}

// Each write-back for a frame fails at once, so that no wait is long.
TEST_F(failing_disk, rows_asked_for_ahead_find_no_frame_and_are_told_why) {
    const std::string other = folder / "other";
    test::write_file(other, test::pattern(11, 8 * page));
    make(mib);  // the writer itself writes nothing back
    const std::uint64_t frames = rt->ref().view.frame_count;
    const int ahead = rt->open(other);
    ASSERT_GE(ahead, 0);
    fail(call_write, -ENOSPC);
    const int fd = open_and_write(12, frames * page, 0);
    auto asked = std::async(std::launch::async, [&] { return rt->prefetch(ahead, 0, 8 * page); });
    const bool came = asked.wait_for(std::chrono::minutes(2)) == std::future_status::ready;
    EXPECT_TRUE(came) << "a group looks for a frame for ever";
    disk.clear();
    if (came) EXPECT_EQ(asked.get(), -ENOSPC);
    EXPECT_EQ(rt->close(ahead), 0);
    EXPECT_EQ(rt->fsync(fd), -ENOSPC) << "the writer of the pages is told too";
    EXPECT_EQ(rt->close(fd), 0);
}

// The operating system sends SIGXFSZ with EFBIG, which ends a program that does not expect it.
TEST_F(failing_disk, the_limit_on_file_sizes_does_not_end_the_program) {
    const int fd = open_and_write(8, 4 * page, 0);
    {
        const size_limit limit(2 * page + 100);
        EXPECT_EQ(rt->fsync(fd), -EFBIG);
        EXPECT_EQ(rt->truncate(fd, 100 * page), -EFBIG);
        EXPECT_EQ(rt->write_status().code, -EFBIG);
        EXPECT_EQ(log.count("ulimit -f"), 1u) << log.lines();
        // Cutting the file is no cure: what lies behind the cut is written back first.
        EXPECT_EQ(rt->truncate(fd, page), -EFBIG);
        EXPECT_EQ(log.count("truncate"), 0u) << log.lines();
        EXPECT_EQ(rt->fsync(fd), -EFBIG);
    }
    EXPECT_EQ(rt->truncate(fd, 100 * page), 0);
    EXPECT_EQ(rt->fsync(fd), 0);
    auto wanted = test::pattern(8, 4 * page);
    wanted.resize(100 * page);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(path), wanted);
}

}  // namespace penstock::fault
