// Pages of a file that a runtime wrote and closed: they are used again if nothing else wrote, and
// never after anything else did, whichever way it wrote and whenever it did so.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <thread>

#include "fault/faulty_environment.hpp"
#include "penstock/write.hpp"
#include "unit/leases.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t file_bytes = 8 * page + 300;  // of a cache of 64 pages
const lane one_lane{};

// A way for another program to change the middle of a file, whose size stays.
struct outside_writer {
    const char* name;
    std::function<void(const std::string& path)> change;
};

constexpr off_t changed_at = 3 * page + 17;

void store(int fd, const char* bytes) { ASSERT_EQ(::pwrite(fd, bytes, 4, changed_at), 4); }

int must_open(const std::string& path, int flags) {
    const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
    EXPECT_GE(fd, 0) << path;
    return fd;
}

void write_there(const std::string& path) {
    const int fd = must_open(path, O_WRONLY);
    store(fd, "here");
    ::close(fd);
}

void store_to_mapping(const std::string& path) {
    const int fd = must_open(path, O_RDWR);
    void* const at = ::mmap(nullptr, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ::close(fd);
    ASSERT_NE(at, MAP_FAILED);
    std::memcpy(static_cast<char*>(at) + changed_at, "here", 4);
    ::munmap(at, file_bytes);
}

// The change times of a file cannot be set back, the others can.
void set_times_back(const std::string& path) {
    struct stat before {};
    ASSERT_EQ(::stat(path.c_str(), &before), 0);
    write_there(path);
    const timespec times[2] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
}

void cut_and_stretch(const std::string& path) {
    ASSERT_EQ(::truncate(path.c_str(), page), 0);
    ASSERT_EQ(::truncate(path.c_str(), file_bytes), 0);
}

void cut_by_reader(const std::string& path) {
    ::close(must_open(path, O_RDONLY | O_TRUNC));
    ASSERT_EQ(::truncate(path.c_str(), file_bytes), 0);
}

void write_anew(const std::string& path) { write_file(path, pattern(77, file_bytes)); }

void take_the_name(const std::string& path) {
    write_file(path + ".new", pattern(78, file_bytes));
    ASSERT_EQ(::rename((path + ".new").c_str(), path.c_str()), 0);
}

const outside_writer outside_writers[] = {
    {"write", write_there},         {"mapping", store_to_mapping}, {"times", set_times_back},
    {"truncate", cut_and_stretch},  {"read only", cut_by_reader},  {"O_TRUNC", write_anew},
    {"rename over", take_the_name},
};

}  // namespace

class closed_files : public testing::Test {
protected:
    temporary_folder folder;
    fault::faulty_environment env;
    std::unique_ptr<runtime> rt;
    const std::string path = folder / "file";

    void SetUp() override { make(); }
    void make() {
        options o = small_options(folder, 1);
        o.writable = true;
        host::runtime_hooks hooks;
        hooks.env = &env;
        rt = make_runtime(o, hooks);
    }
    bool can_prove() { return can_prove_writes(folder, env); }
    std::uint64_t host_reads() { return rt->stats().file_reads; }
    std::uint64_t kept() { return rt->stats().kept_files; }

    int open_here(std::uint32_t flags) {
        const int fd = open(one_lane, rt->ref(), path.c_str(), flags);
        EXPECT_GE(fd, 0);
        return fd;
    }
    void put(int fd, const std::vector<std::uint8_t>& bytes, std::uint64_t offset = 0) {
        EXPECT_EQ(write(one_lane, rt->ref(), fd, bytes.data(),
                        static_cast<std::int64_t>(bytes.size()), static_cast<std::int64_t>(offset)),
                  static_cast<std::int64_t>(bytes.size()));
    }
    void close_here(int fd) { EXPECT_EQ(close(one_lane, rt->ref(), fd), 0); }
    void write_whole(const std::vector<std::uint8_t>& bytes, std::uint32_t flags) {
        const int fd = open_here(flags);
        put(fd, bytes);
        close_here(fd);
    }
    std::vector<std::uint8_t> read_whole(std::uint64_t bytes = file_bytes) {
        const int fd = open_here(open_read);
        std::vector<std::uint8_t> out(bytes, 0xee);
        EXPECT_EQ(read(one_lane, rt->ref(), fd, out.data(), static_cast<std::int64_t>(bytes), 0),
                  static_cast<std::int64_t>(bytes));
        close_here(fd);
        return out;
    }
};

constexpr std::uint32_t anew = open_write | open_create | open_truncate;

TEST_F(closed_files, what_was_written_is_read_from_the_cache) {
    if (!can_prove()) GTEST_SKIP() << "this file system or kernel allows no proof";
    const auto bytes = pattern(1, file_bytes);
    write_whole(bytes, anew);
    EXPECT_EQ(kept(), 1u);
    EXPECT_EQ(bytes_on_disk(path), bytes);
    EXPECT_EQ(read_whole(), bytes);
    EXPECT_EQ(read_whole(), bytes);
    EXPECT_EQ(host_reads(), 0u);
}

TEST_F(closed_files, a_chain_of_writers_and_readers_reads_nothing) {
    if (!can_prove()) GTEST_SKIP() << "this file system or kernel allows no proof";
    auto bytes = pattern(1, file_bytes);
    write_whole(bytes, anew);
    for (std::uint32_t round = 0; round < 50; ++round) {
        const auto part = pattern(round + 2, page);
        const std::uint64_t offset = round % 7 * page + 100;
        const int fd = open_here(round % 2 == 0 ? open_write : open_read_write);
        put(fd, part, offset);
        close_here(fd);
        std::copy(part.begin(), part.end(), bytes.begin() + static_cast<std::ptrdiff_t>(offset));
        ASSERT_EQ(read_whole(), bytes) << round;
    }
    EXPECT_EQ(kept(), 51u);
    EXPECT_EQ(host_reads(), 0u);
    EXPECT_EQ(bytes_on_disk(path), bytes);
}

TEST_F(closed_files, a_file_that_was_read_before_is_kept_too) {
    if (!can_prove()) GTEST_SKIP() << "this file system or kernel allows no proof";
    auto bytes = pattern(1, file_bytes);
    write_file(path, bytes);
    EXPECT_EQ(read_whole(), bytes);
    const std::uint64_t before = host_reads();
    const int fd = open_here(open_read_write);
    put(fd, {1, 2, 3}, 5);
    close_here(fd);
    bytes[5] = 1, bytes[6] = 2, bytes[7] = 3;
    EXPECT_EQ(read_whole(), bytes);
    EXPECT_EQ(host_reads(), before);
}

// Blocks that come late find the file closed by those before them.
TEST_F(closed_files, a_file_that_looks_closed_between_its_writers_keeps_its_pages) {
    if (!can_prove()) GTEST_SKIP() << "this file system or kernel allows no proof";
    const auto bytes = pattern(1, 8 * page);
    for (std::uint64_t i = 0; i < 8; ++i) {
        const int fd = open_here(open_read_write | open_create);
        put(fd,
            {bytes.begin() + static_cast<std::ptrdiff_t>(i * page),
             bytes.begin() + static_cast<std::ptrdiff_t>((i + 1) * page)},
            i * page);
        close_here(fd);
    }
    EXPECT_EQ(read_whole(8 * page), bytes);
    EXPECT_EQ(host_reads(), 0u);
    EXPECT_EQ(kept(), 8u);
}

TEST_F(closed_files, an_outside_writer_after_the_close_is_seen) {
    for (const outside_writer& other : outside_writers) {
        write_whole(pattern(1, file_bytes), anew);
        other.change(path);
        EXPECT_EQ(read_whole(), bytes_on_disk(path)) << other.name;
    }
}

TEST_F(closed_files, an_outside_writer_while_it_is_written_is_seen_after_the_close) {
    for (const outside_writer& other : outside_writers) {
        write_whole(pattern(1, file_bytes), anew);
        const std::uint64_t before = kept();
        const int fd = open_here(open_read_write);
        std::vector<std::uint8_t> out(file_bytes);
        EXPECT_EQ(read(one_lane, rt->ref(), fd, out.data(), file_bytes, 0),
                  static_cast<std::int64_t>(file_bytes));
        put(fd, {1, 2, 3}, 5);
        EXPECT_EQ(msync(one_lane, rt->ref(), fd, 0, file_bytes), 0);
        other.change(path);
        put(fd, {4, 5, 6}, 9);
        close_here(fd);
        EXPECT_EQ(read_whole(), bytes_on_disk(path)) << other.name;
        // A name that now leads to another file says nothing about the old one.
        if (std::string(other.name) != "rename over") {
            EXPECT_EQ(kept(), before) << other.name;
        }
    }
}

// It had the file open before the runtime opened it, or keeps it open over the close.
TEST_F(closed_files, an_outside_writer_that_stays_is_seen) {
    for (const bool closes_before : {true, false}) {
        write_whole(pattern(1, file_bytes), anew);
        const int other = must_open(path, O_RDWR);
        void* const at = ::mmap(nullptr, file_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, other, 0);
        ASSERT_NE(at, MAP_FAILED);
        ::close(other);
        char* const stored = static_cast<char*>(at) + changed_at;
        stored[0] = 'a';  // the page is dirty: later stores change no time
        EXPECT_EQ(read_whole(), bytes_on_disk(path));
        const std::uint64_t before = kept();
        const int fd = open_here(open_read_write);
        put(fd, {1, 2, 3}, 5);
        stored[1] = 'b';
        if (closes_before) ::munmap(at, file_bytes);
        close_here(fd);
        EXPECT_EQ(kept(), before);
        EXPECT_EQ(read_whole(), bytes_on_disk(path)) << closes_before;
        if (!closes_before) {
            stored[2] = 'c';
            EXPECT_EQ(read_whole(), bytes_on_disk(path));
            ::munmap(at, file_bytes);
        }
    }
}

TEST_F(closed_files, a_cut_by_this_runtime_is_no_proof_unless_nothing_is_left) {
    write_whole(pattern(1, file_bytes), anew);
    const std::uint64_t before = kept();
    const int fd = open_here(open_read_write);
    EXPECT_EQ(truncate(one_lane, rt->ref(), fd, 2 * page), 0);
    close_here(fd);
    EXPECT_EQ(kept(), before) << "another cut at the same time would look the same";
    EXPECT_EQ(read_whole(2 * page), bytes_on_disk(path));
}

TEST_F(closed_files, a_writer_that_counts_pages_as_zeros_keeps_nothing) {
    write_whole(pattern(1, file_bytes), anew);
    const std::uint64_t before = kept();
    const int fd = open_here(open_write_once);
    auto mapped = map_write(one_lane, rt->ref(), fd, 0, page);
    ASSERT_NE(mapped.data, nullptr);
    std::memset(mapped.data, 0, page);  // zeros over something else are not written
    EXPECT_EQ(unmap(one_lane, rt->ref(), mapped), 0);
    close_here(fd);
    EXPECT_EQ(kept(), before);
    EXPECT_EQ(read_whole(), bytes_on_disk(path));
}

TEST_F(closed_files, a_file_larger_than_the_cache_is_not_kept) {
    const auto bytes = pattern(1, 70 * page);
    write_whole(bytes, anew);
    EXPECT_EQ(kept(), 0u) << "it would be read without windows and host tier from now on";
    EXPECT_EQ(read_whole(70 * page), bytes);
}

TEST_F(closed_files, a_reader_of_another_program_costs_the_proof_and_nothing_else) {
    const auto bytes = pattern(1, file_bytes);
    const int fd = open_here(anew);
    put(fd, bytes);
    const int other = must_open(path, O_RDONLY);
    close_here(fd);
    EXPECT_EQ(kept(), 0u);
    EXPECT_EQ(read_whole(), bytes);
    ::close(other);
}

// The version from before an outside change, whose handle is in the way of the proof.
TEST_F(closed_files, an_older_version_of_the_file_costs_no_proof) {
    if (!can_prove()) GTEST_SKIP() << "this file system or kernel allows no proof";
    write_file(path, pattern(1, file_bytes));
    read_whole();
    for (std::uint64_t round = 1; round <= 3; ++round) {
        write_there(path);
        read_whole();
        write_whole(pattern(round, file_bytes), open_write);
        EXPECT_EQ(kept(), round);
    }
}

TEST_F(closed_files, a_reader_of_an_older_version_reads_on_without_its_name) {
    if (!can_prove()) GTEST_SKIP() << "this file system or kernel allows no proof";
    write_file(path, pattern(1, file_bytes));
    const std::string other_name = folder / "other";
    ASSERT_EQ(::link(path.c_str(), other_name.c_str()), 0);
    const int old = open(one_lane, rt->ref(), other_name.c_str(), open_read);
    ASSERT_GE(old, 0);
    write_there(path);
    const auto bytes = pattern(2, file_bytes);
    write_whole(bytes, open_write);
    EXPECT_EQ(kept(), 1u);
    ASSERT_EQ(::unlink(other_name.c_str()), 0);
    std::vector<std::uint8_t> out(page);
    EXPECT_EQ(read(one_lane, rt->ref(), old, out.data(), page, 0), static_cast<std::int64_t>(page));
    EXPECT_TRUE(std::equal(out.begin(), out.end(), bytes.begin()));
    close_here(old);
}

// What a runtime wrote and closed may be in the operating system's memory alone. No descriptor that
// writes is left, so a reader brings it to its storage.
TEST_F(closed_files, a_reader_brings_a_closed_file_to_its_storage) {
    for (const bool keeps : {true, false}) {
        if (keeps && !can_prove()) continue;
        const std::uint64_t before = kept();
        const int fd = open_here(anew);
        put(fd, pattern(1, file_bytes));
        const int other = keeps ? -1 : must_open(path, O_RDONLY);
        close_here(fd);
        if (other >= 0) ::close(other);
        ASSERT_EQ(kept() - before, keeps ? 1u : 0u);
        const int reader = open_here(open_read);
        env.set({.calls = fault::call_sync});
        EXPECT_EQ(fsync(one_lane, rt->ref(), reader), 0);
        EXPECT_EQ(env.calls(), 1u) << "kept: " << keeps;
        env.set({.calls = fault::call_sync, .nth = 1, .error = -EIO});
        EXPECT_EQ(fsync(one_lane, rt->ref(), reader), -EIO);
        EXPECT_EQ(rt->write_status().code, -EIO);
        rt->clear_write_status();
        env.clear();
        EXPECT_EQ(fsync(one_lane, rt->ref(), reader), 0);
        EXPECT_EQ(msync(one_lane, rt->ref(), reader, 0, file_bytes), 0);
        close_here(reader);
    }
    EXPECT_EQ(rt->stats().bad_requests, 0u);
}

TEST_F(closed_files, readers_sync_while_a_writer_comes_and_goes) {
    write_whole(pattern(1, file_bytes), anew);
    std::atomic<bool> ends{false};
    std::thread writer([&] {
        while (!ends) {
            const int fd = open_here(open_read_write);
            put(fd, {1, 2, 3}, 5);
            close_here(fd);
            // Without a pause a reader would write back for the writer for ever, and give up.
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
    });
    std::vector<std::thread> readers;
    for (int i = 0; i < 3; ++i)
        readers.emplace_back([&] {
            for (int k = 0; k < 200; ++k) {
                const int fd = open_here(open_read);
                EXPECT_EQ(fsync(one_lane, rt->ref(), fd), 0);
                close_here(fd);
            }
        });
    for (std::thread& reader : readers) reader.join();
    ends = true;
    writer.join();
    EXPECT_EQ(rt->stats().bad_requests, 0u);
}

// The file grew by several leaves of page words, and no writer touched the first of them.
TEST_F(closed_files, a_reader_finds_zeros_where_the_file_grew_and_nothing_was_written) {
    if (!can_prove()) GTEST_SKIP() << "this file system or kernel allows no proof";
    options o = small_options(folder, 1);
    o.writable = true;
    o.cache_bytes = 512 * page;
    o.table_bytes = 64 << 10;
    rt = make_runtime(o);
    const std::uint64_t leaf_pages = std::uint64_t{1} << rt->ref().view.leaf_shift,
                        far = (leaf_pages + 10) * page;
    ASSERT_LT(far, *o.cache_bytes);
    const int fd = open_here(anew);
    put(fd, {1, 2, 3}, far);
    close_here(fd);
    ASSERT_EQ(kept(), 1u);
    std::vector<std::uint8_t> expected(far + 3);
    expected[far] = 1, expected[far + 1] = 2, expected[far + 2] = 3;
    EXPECT_EQ(read_whole(far + 3), expected);
    EXPECT_EQ(rt->stats().bad_requests, 0u);
}

// The tests above can fail: without the proof every one of these readers gets what is no longer
// there.
TEST_F(closed_files, canary_without_the_proof_stale_bytes_are_read) {
    if (!can_prove()) GTEST_SKIP() << "this file system or kernel allows no proof";
    env.hide_handles();
    env.hide_changes();
    std::uint32_t stale = 0;
    for (const outside_writer& other : outside_writers) {
        if (std::string(other.name) == "rename over") continue;
        write_whole(pattern(1, file_bytes), anew);
        const int fd = open_here(open_read_write);
        std::vector<std::uint8_t> out(file_bytes);
        EXPECT_EQ(read(one_lane, rt->ref(), fd, out.data(), file_bytes, 0),
                  static_cast<std::int64_t>(file_bytes));
        other.change(path);
        put(fd, {4, 5, 6}, 9);
        close_here(fd);
        if (read_whole() != bytes_on_disk(path)) ++stale;
    }
    EXPECT_EQ(stale, std::size(outside_writers) - 1);
}

}  // namespace penstock::test
