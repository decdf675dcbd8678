// Writing by lanes of the cpu back end: what the file has afterwards, and what readers see
// meanwhile.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

#include "penstock/engine/invariants.hpp"
#include "penstock/group/racing_lane.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

options writing_options(const temporary_folder& folder) {
    options o = small_options(folder);
    o.writable = true;
    o.write_behind_bytes = o.cache_bytes;  // the tests say when something is written;
                                           // tests/unit/write_behind_test.cpp has the rest
    return o;
}

void expect_sound(const runtime& rt, std::uint64_t references = 0) {
    const engine::invariant_report found = engine::check_invariants(rt.ref().view, {0, references});
    EXPECT_EQ(found.rule, nullptr) << found.rule << " at " << found.where;
}

}  // namespace

class writing : public testing::Test {
protected:
    temporary_folder folder;
    std::unique_ptr<runtime> rt = make_runtime(writing_options(folder));
    const std::string path = folder / "file";

    std::vector<std::uint8_t> read_back(int fd, std::uint64_t bytes, std::uint64_t offset = 0) {
        std::vector<std::uint8_t> out(bytes, 0xee);
        EXPECT_EQ(rt->read(fd, out.data(), static_cast<std::int64_t>(bytes),
                           static_cast<std::int64_t>(offset)),
                  static_cast<std::int64_t>(bytes));
        return out;
    }
};

TEST_F(writing, a_new_file_has_what_was_written_after_close) {
    const auto bytes = pattern(1, 3 * page + 100);
    const int fd = rt->open(path, open_read_write | open_create);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(rt->write(fd, bytes.data(), static_cast<std::int64_t>(bytes.size()), 0),
              static_cast<std::int64_t>(bytes.size()));
    EXPECT_EQ(read_back(fd, bytes.size()), bytes) << "a later read sees the write";
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(path), bytes);
    EXPECT_EQ(rt->stats().file_reads, 0u) << "pages past the end of the file need not be read";
    expect_sound(*rt);
}

TEST_F(writing, fsync_brings_it_to_the_file_while_it_is_open) {
    const auto bytes = pattern(2, 2 * page);
    const int fd = rt->open(path, open_write | open_create);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(rt->write(fd, bytes.data(), 2 * page, 0), static_cast<std::int64_t>(2 * page));
    EXPECT_EQ(bytes_on_disk(path).size(), 0u) << "write alone does not wait for the file";
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(bytes_on_disk(path), bytes);
    EXPECT_EQ(rt->stats().file_syncs, 1u);
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(rt->stats().write_backs, 2u) << "clean pages are not written again";
    EXPECT_EQ(rt->close(fd), 0);
}

TEST_F(writing, parts_of_pages_keep_the_rest) {
    auto bytes = pattern(3, 5 * page + 17);
    write_file(path, bytes);
    const int fd = rt->open(path, open_read_write);
    ASSERT_GE(fd, 0);
    for (const auto& [offset, length] :
         std::vector<std::pair<std::uint64_t, std::uint64_t>>{{10, 1},
                                                              {page - 3, 7},
                                                              {2 * page, page},
                                                              {3 * page + 1, 2 * page},
                                                              {5 * page + 10, 500}}) {
        const auto part = pattern(offset + 9, length);
        ASSERT_EQ(rt->write(fd, part.data(), static_cast<std::int64_t>(length),
                            static_cast<std::int64_t>(offset)),
                  static_cast<std::int64_t>(length));
        if (bytes.size() < offset + length) bytes.resize(offset + length);
        std::copy(part.begin(), part.end(), bytes.begin() + static_cast<std::ptrdiff_t>(offset));
    }
    EXPECT_EQ(read_back(fd, bytes.size()), bytes);
    file_stat facts;
    EXPECT_EQ(rt->stat(fd, &facts), 0);
    EXPECT_EQ(facts.size_bytes, bytes.size());
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(path), bytes);
}

// Of a page that is not in the cache: of a whole one, and of the last one, which is shorter.
TEST_F(writing, all_but_the_last_byte_of_a_page_keeps_that_byte) {
    auto bytes = pattern(3, page + 17);
    write_file(path, bytes);
    const int fd = rt->open(path, open_read_write);
    ASSERT_GE(fd, 0);
    for (const auto& [offset, length] :
         std::vector<std::pair<std::uint64_t, std::uint64_t>>{{0, page - 1}, {page, 16}}) {
        const auto part = pattern(offset + 9, length);
        ASSERT_EQ(rt->write(fd, part.data(), static_cast<std::int64_t>(length),
                            static_cast<std::int64_t>(offset)),
                  static_cast<std::int64_t>(length));
        std::copy(part.begin(), part.end(), bytes.begin() + static_cast<std::ptrdiff_t>(offset));
    }
    EXPECT_EQ(read_back(fd, bytes.size()), bytes);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(path), bytes);
}

TEST_F(writing, only_written_bytes_go_to_the_file) {
    write_file(path, pattern(4, 2 * page));
    const int fd = rt->open(path, open_read_write);
    ASSERT_GE(fd, 0);
    const char written[] = "mine";
    ASSERT_EQ(rt->write(fd, written, 4, 100), 4);
    ASSERT_EQ(rt->write(fd, written, 4, 300), 4);
    // Another program writes to the same page, between and beside.
    auto expected = pattern(5, 2 * page);
    const int other = ::open(path.c_str(), O_WRONLY);
    ASSERT_EQ(::pwrite(other, expected.data(), 2 * page, 0), static_cast<ssize_t>(2 * page));
    ::close(other);
    EXPECT_EQ(rt->close(fd), 0);
    std::memcpy(expected.data() + 100, written, 4);
    std::memcpy(expected.data() + 300, written, 4);
    EXPECT_EQ(bytes_on_disk(path), expected);
}

TEST_F(writing, more_than_the_cache_holds) {
    const std::uint64_t pages = 64 * 6;
    const auto bytes = pattern(6, pages * page);
    const int fd = rt->open(path, open_read_write | open_create);
    ASSERT_GE(fd, 0);
    for (std::uint64_t i = 0; i < pages; ++i)
        ASSERT_EQ(rt->write(fd, bytes.data() + i * page, page, static_cast<std::int64_t>(i * page)),
                  static_cast<std::int64_t>(page));
    EXPECT_GT(rt->stats().dirty_victims, 0u);
    EXPECT_EQ(read_back(fd, bytes.size()), bytes);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(path), bytes);
    expect_sound(*rt);
}

// One frame is needed when every page is dirty: the pages beside the one that has to go are written
// with it, and stay in the cache.
TEST_F(writing, neighbours_go_with_the_page_whose_frame_is_needed) {
    const auto bytes = pattern(7, 65 * page);
    const int fd = rt->open(path, open_read_write | open_create);
    ASSERT_EQ(rt->write(fd, bytes.data(), 64 * page, 0), static_cast<std::int64_t>(64 * page));
    ASSERT_EQ(rt->stats().write_backs, 0u);
    ASSERT_EQ(rt->write(fd, bytes.data() + 64 * page, page, 64 * page),
              static_cast<std::int64_t>(page));
    const statistics after = rt->stats();
    EXPECT_GT(after.write_backs, 8u)
        << "the next searches would each have to wait for a write of one page";
    EXPECT_EQ(after.dirty_victims, after.write_backs);
    EXPECT_EQ(after.evictions, 1u);
    EXPECT_EQ(read_back(fd, bytes.size()), bytes);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(path), bytes);
    expect_sound(*rt);
}

TEST_F(writing, far_behind_the_end_leaves_zeros) {
    const int fd = rt->open(path, open_read_write | open_create);
    ASSERT_GE(fd, 0);
    const std::uint64_t far = 40 * page + 5;
    ASSERT_EQ(rt->write(fd, "x", 1, static_cast<std::int64_t>(far)), 1);
    std::vector<std::uint8_t> expected(far + 1);
    expected[far] = 'x';
    EXPECT_EQ(read_back(fd, far + 1), expected);
    EXPECT_EQ(rt->write(fd, "x", 1, std::int64_t{1} << 50), -EFBIG);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(path), expected);
}

TEST_F(writing, access_and_flags_are_checked) {
    write_file(path, pattern(7, 10));
    char byte = 0;
    const int reading = rt->open(path);
    EXPECT_EQ(rt->write(reading, &byte, 1, 0), -EBADF);
    EXPECT_EQ(rt->truncate(reading, 0), -EBADF);
    EXPECT_EQ(rt->append(reading, &byte, 1), -EBADF);
    const int writing_only = rt->open(path, open_write);
    ASSERT_GE(writing_only, 0);
    EXPECT_NE(writing_only, reading);
    EXPECT_EQ(rt->read(writing_only, &byte, 1, 0), -EBADF);
    EXPECT_EQ(rt->write(writing_only, &byte, 1, -1), -EINVAL);
    EXPECT_EQ(rt->write(writing_only, &byte, -1, 0), -EINVAL);
    EXPECT_EQ(rt->write(writing_only, nullptr, 1, 0), -EINVAL);
    EXPECT_EQ(rt->write(writing_only, &byte, 1, INT64_MAX), -EINVAL);
    EXPECT_EQ(rt->truncate(writing_only, -1), -EINVAL);
    EXPECT_EQ(rt->write(writing_only, &byte, 0, 5), 0);
    EXPECT_EQ(rt->open(path, 4), -EINVAL);
    EXPECT_EQ(rt->open(path, open_create), -EINVAL) << "only an open for writing makes files";
    EXPECT_EQ(rt->open(path, open_write | open_exclusive), -EINVAL);
    EXPECT_EQ(rt->open(path, open_write | 0x4000000), -EINVAL);
    EXPECT_EQ(rt->open(path, open_write | open_create | open_exclusive), -EEXIST);
    EXPECT_EQ(rt->open(folder / "missing", open_write), -ENOENT);
    EXPECT_EQ(rt->open(folder.path(), open_write), -EISDIR);
    EXPECT_EQ(open(lane{}, rt->ref(), "/proc/self/comm", open_write), -EACCES)
        << "outside of the roots";
    EXPECT_EQ(open(lane{}, rt->ref(), "../outside", open_write | open_create), -EACCES);
    EXPECT_EQ(rt->close(reading), 0);
    EXPECT_EQ(rt->close(writing_only), 0);
    EXPECT_EQ(rt->write(writing_only, &byte, 1, 0), -EBADF);
    EXPECT_EQ(bytes_on_disk(path), pattern(7, 10));
}

TEST_F(writing, a_runtime_that_does_not_write_says_so) {
    write_file(path, pattern(8, 10));
    const auto plain = make_runtime(small_options(folder));
    EXPECT_EQ(plain->open(path, open_read_write), -EROFS);
    EXPECT_EQ(open(lane{}, plain->ref(), path.c_str(), open_write | open_create), -EROFS);
    const int fd = plain->open(path);
    EXPECT_EQ(plain->write(fd, "x", 1, 0), -EBADF);
    EXPECT_EQ(plain->fsync(fd), 0);
    EXPECT_EQ(plain->close(fd), 0);
}

TEST_F(writing, a_reader_that_has_it_open_sees_it_grow) {
    write_file(path, pattern(9, 100));  // a moment ago: its times prove nothing
    const int reading = rt->open(path);
    const int fd = open(lane{}, rt->ref(), path.c_str(), open_read_write);
    ASSERT_GE(fd, 0);
    // Two pages, no more than a close leaves to the next (engine/close_share.hpp).
    const auto more = pattern(10, page);
    ASSERT_EQ(rt->write(fd, more.data(), page, 100), static_cast<std::int64_t>(page));
    EXPECT_EQ(read_back(reading, page, 100), more);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(path).size(), 100u) << "a reader still has it open";
    EXPECT_EQ(rt->close(reading), 0);
    EXPECT_EQ(bytes_on_disk(path).size(), 100 + page);
}

// An open that fails must not forget that the name leads to a file which is open: the next writer
// would get a version of its own.
TEST_F(writing, a_reader_that_has_it_open_sees_writes_after_a_refused_open) {
    write_file(path, pattern(30, page));
    const int reading = rt->open(path);
    ASSERT_GE(reading, 0);
    EXPECT_EQ(read_back(reading, 1), pattern(30, 1));
    write_file(path,
               pattern(31, 2 * page));  // another program: by its looks the file is another one now
    // As a kernel does: runtime::open would look at the file itself first.
    EXPECT_EQ(
        penstock::open(lane{}, rt->ref(), path.c_str(), open_write | open_create | open_exclusive),
        -EEXIST);
    const int fd = rt->open(path, open_write);
    ASSERT_GE(fd, 0);
    const std::uint8_t value = 0x5a;
    ASSERT_EQ(rt->write(fd, &value, 1, 7), 1);
    EXPECT_EQ(read_back(reading, 1, 7)[0], value)
        << "a write that has returned is seen by every later read";
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(rt->close(reading), 0);
    EXPECT_EQ(bytes_on_disk(path)[7], value);
}

// Through a pointer, as kernels do: exactly the bytes that changed go to the file, whatever else is
// in the page.
TEST_F(writing, what_is_changed_through_a_mapping) {
    auto bytes = pattern(40, 3 * page);
    write_file(path, bytes);
    const int fd = rt->open(path, open_read_write);
    ASSERT_GE(fd, 0);
    const runtime_ref fs = rt->ref();
    const writable_mapping part = map_write(lane{}, fs, fd, page + 100, 1000),
                           whole = map_write(lane{}, fs, fd, page, page);
    ASSERT_EQ(part.bytes, 1000);
    ASSERT_EQ(whole.bytes, static_cast<std::int64_t>(page));
    EXPECT_EQ(std::memcmp(part.data, &bytes[page + 100], 1000), 0);
    EXPECT_EQ(whole.data + 100, part.data) << "one page, one copy";
    for (const std::uint64_t i : {0u, 63u, 999u}) part.data[i] = ~part.data[i];
    EXPECT_EQ(unmap(lane{}, fs, part), 0);
    whole.data[4095] = std::byte{1};
    // Meanwhile another program changes other bytes of the page. They stay its own.
    auto expected = bytes;
    for (const std::uint64_t i : {0u, 63u, 999u})
        expected[page + 100 + i] = static_cast<std::uint8_t>(~expected[page + 100 + i]);
    {
        std::fstream beside(path, std::ios::in | std::ios::out | std::ios::binary);
        beside.seekp(page + 50);
        beside.put('!');
        expected[page + 50] = '!';
    }
    ASSERT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(bytes_on_disk(path), expected)
        << "the byte that only `whole` still maps is not written yet";
    expected[2 * page - 1] = 1;
    EXPECT_EQ(unmap(lane{}, fs, whole), 0);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(path), expected);
    EXPECT_EQ(unmap(lane{}, fs, whole), -EINVAL) << "given back twice";
    expect_sound(*rt);
}

TEST_F(writing, a_mapping_grows_the_file_and_can_be_synchronised) {
    const int fd = rt->open(path, open_read_write | open_create);
    ASSERT_GE(fd, 0);
    const runtime_ref fs = rt->ref();
    const writable_mapping far = map_write(lane{}, fs, fd, 5 * page + 10, 2 * page);
    ASSERT_EQ(far.bytes, static_cast<std::int64_t>(page - 10)) << "to the end of the page";
    far.data[0] = std::byte{7};
    EXPECT_EQ(msync(lane{}, fs, far), 0);
    auto now = bytes_on_disk(path);
    ASSERT_EQ(now.size(), 5 * page + 11) << "what changed is in the file";
    EXPECT_EQ(now.back(), 7);
    far.data[1] = std::byte{8};
    EXPECT_EQ(unmap(lane{}, fs, far), 0);
    EXPECT_EQ(rt->close(fd), 0);
    now = bytes_on_disk(path);
    ASSERT_GE(now.size(), 5 * page + 12);
    EXPECT_EQ(now[5 * page + 11], 8);
    EXPECT_EQ(rt->stats().file_reads, 0u) << "there was nothing to read";
    expect_sound(*rt);
}

TEST_F(writing, mappings_that_write_once_need_no_copy) {
    options o = writing_options(folder);
    o.cache_bytes = 8 * page;
    rt.reset();
    rt = make_runtime(o);
    const int fd = rt->open(path, open_write_once | open_create | open_truncate),
              usual = rt->open(path, open_read_write);
    ASSERT_GE(fd, 0);
    ASSERT_GE(usual, 0);
    const runtime_ref fs = rt->ref();
    std::vector<writable_mapping> all;
    for (std::int64_t i = 0; i < 7; ++i) {
        all.push_back(map_write(lane{}, fs, fd, i * static_cast<std::int64_t>(page), page));
        ASSERT_EQ(all.back().bytes, static_cast<std::int64_t>(page)) << "a frame each, of eight";
        all.back().data[i] = static_cast<std::byte>(i + 1);
    }
    EXPECT_EQ(map_write(lane{}, fs, usual, 0, 10).bytes, -EBUSY);
    for (const writable_mapping& mapped_page : all) EXPECT_EQ(unmap(lane{}, fs, mapped_page), 0);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(rt->close(usual), 0);
    std::vector<std::uint8_t> expected(7 * page);
    for (std::uint64_t i = 0; i < 7; ++i) expected[i * page + i] = static_cast<std::uint8_t>(i + 1);
    auto now = bytes_on_disk(path);
    now.resize(expected.size());
    EXPECT_EQ(now, expected);
    EXPECT_EQ(rt->stats().file_reads, 0u);
    expect_sound(*rt);
}

TEST_F(writing, a_mapping_says_what_it_cannot) {
    write_file(path, pattern(41, page));
    const runtime_ref fs = rt->ref();
    const int reading = rt->open(path), writing_only = rt->open(path, open_write),
              fd = rt->open(path, open_read_write);
    EXPECT_EQ(map_write(lane{}, fs, reading, 0, 10).bytes, -EBADF);
    EXPECT_EQ(map_write(lane{}, fs, writing_only, 0, 10).bytes, -EBADF)
        << "a pointer can be read through";
    EXPECT_EQ(map_write(lane{}, fs, 12345, 0, 10).bytes, -EBADF);
    EXPECT_EQ(map_write(lane{}, fs, fd, -1, 10).bytes, -EINVAL);
    EXPECT_EQ(map_write(lane{}, fs, fd, 0, -10).bytes, -EINVAL);
    EXPECT_EQ(map_write(lane{}, fs, fd, INT64_MAX, 10).bytes, -EINVAL);
    const writable_mapping nothing = map_write(lane{}, fs, fd, 0, 0);
    EXPECT_EQ(nothing.bytes, 0);
    EXPECT_EQ(unmap(lane{}, fs, nothing), 0);
    writable_mapping made_up{reinterpret_cast<std::byte*>(1), 10, 3, 2, 0};
    EXPECT_EQ(unmap(lane{}, fs, made_up), -EINVAL);
    EXPECT_EQ(msync(lane{}, fs, made_up), -EINVAL);
    made_up.word_index = ~std::uint64_t{0};
    EXPECT_EQ(unmap(lane{}, fs, made_up), -EINVAL);
    for (const int descriptor : {reading, writing_only, fd}) EXPECT_EQ(rt->close(descriptor), 0);
    expect_sound(*rt);
}

// Every other page is dirty: one of them is written back for the frame of the copy, and not the
// page itself given away for it.
TEST_F(writing, a_mapping_in_a_cache_full_of_dirty_pages) {
    options o = writing_options(folder);
    o.cache_bytes = 8 * page;
    rt.reset();
    rt = make_runtime(o);
    write_file(path, pattern(43, 9 * page));
    const int fd = rt->open(path, open_read_write);
    const auto bytes = pattern(44, 8 * page);
    ASSERT_EQ(rt->write(fd, bytes.data(), 8 * page, 0), static_cast<std::int64_t>(8 * page));
    const writable_mapping mapped_page = map_write(lane{}, rt->ref(), fd, 8 * page, page);
    ASSERT_EQ(mapped_page.bytes, static_cast<std::int64_t>(page));
    EXPECT_EQ(unmap(lane{}, rt->ref(), mapped_page), 0);
    EXPECT_EQ(rt->close(fd), 0);
    expect_sound(*rt);
}

// Four mapped pages and their copies take all eight frames. There is none for a fifth, and it is
// said.
TEST_F(writing, copies_come_from_the_cache_and_go_back) {
    options o = writing_options(folder);
    o.cache_bytes = 8 * page;
    o.frame_wait_ms = 50;
    rt.reset();
    rt = make_runtime(o);
    write_file(path, pattern(42, 8 * page));
    const int fd = rt->open(path, open_read_write);
    const runtime_ref fs = rt->ref();
    std::vector<writable_mapping> all;
    for (std::int64_t i = 0; i < 4; ++i) {
        all.push_back(map_write(lane{}, fs, fd, i * static_cast<std::int64_t>(page), 1));
        ASSERT_EQ(all.back().bytes, 1);
    }
    EXPECT_EQ(map_write(lane{}, fs, fd, 4 * page, 1).bytes, -ENOBUFS);
    EXPECT_EQ(unmap(lane{}, fs, all[0]), 0);
    all[0] = map_write(lane{}, fs, fd, 4 * page, 1);
    EXPECT_EQ(all[0].bytes, 1);
    for (const writable_mapping& mapped_page : all) EXPECT_EQ(unmap(lane{}, fs, mapped_page), 0);
    EXPECT_EQ(rt->stats().write_backs, 0u) << "nothing was changed";
    EXPECT_EQ(rt->close(fd), 0);
    expect_sound(*rt);
}

TEST_F(writing, truncate_both_ways) {
    auto bytes = pattern(11, 10 * page);
    write_file(path, bytes);
    const int fd = rt->open(path, open_read_write);
    ASSERT_EQ(read_back(fd, bytes.size()), bytes);
    ASSERT_EQ(rt->write(fd, "dirty", 5, 8 * page), 5);
    EXPECT_EQ(rt->truncate(fd, 3 * page + 7), 0);
    bytes.resize(3 * page + 7);
    std::uint8_t rest[10];
    EXPECT_EQ(rt->read(fd, rest, 10, 3 * page), 7);
    EXPECT_EQ(rt->read(fd, rest, 10, 8 * page), 0);
    EXPECT_EQ(rt->truncate(fd, 12 * page), 0);
    bytes.resize(12 * page);
    EXPECT_EQ(read_back(fd, bytes.size()), bytes) << "what is new reads as zeros";
    ASSERT_EQ(rt->write(fd, "more", 4, 11 * page), 4);
    std::memcpy(bytes.data() + 11 * page, "more", 4);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(path), bytes);
    expect_sound(*rt);
}

TEST_F(writing, a_page_that_the_file_grew_by_can_be_mapped) {
    write_file(path, pattern(15, 100));
    const int fd = rt->open(path, open_read_write);
    ASSERT_EQ(rt->truncate(fd, 50 * page), 0);
    // No caller has asked for a word of that page yet.
    const mapping first = rt->map(fd, 40 * page, 10);
    ASSERT_EQ(first.bytes, 10);
    EXPECT_EQ(rt->unmap(first), 0);
    EXPECT_EQ(rt->close(fd), 0);
    expect_sound(*rt);
}

TEST_F(writing, open_truncate_cuts_once) {
    write_file(path, pattern(12, 5 * page));
    const int reading = rt->open(path);
    ASSERT_EQ(read_back(reading, 5 * page).size(), 5 * page);
    const int first = rt->open(path, open_write | open_create | open_truncate);
    ASSERT_GE(first, 0);
    std::uint8_t byte = 0;
    EXPECT_EQ(rt->read(reading, &byte, 1, 0), 0);
    ASSERT_EQ(rt->write(first, "kept", 4, 0), 4);
    const int second = rt->open(path, open_write | open_create | open_truncate);
    EXPECT_NE(second, first) << "each open has a descriptor of its own";
    EXPECT_EQ(read_back(reading, 4), (std::vector<std::uint8_t>{'k', 'e', 'p', 't'}))
        << "the same file";
    EXPECT_EQ(rt->close(second), 0);
    EXPECT_EQ(rt->close(first), 0);
    EXPECT_EQ(rt->close(reading), 0);
    EXPECT_EQ(bytes_on_disk(path), (std::vector<std::uint8_t>{'k', 'e', 'p', 't'}));
    const int third = rt->open(path, open_write | open_truncate);
    EXPECT_EQ(rt->close(third), 0);
    EXPECT_TRUE(bytes_on_disk(path).empty());
}

TEST_F(writing, many_threads_append_whole_records) {
    constexpr std::uint64_t threads = 4, records = 500, record_bytes = 37;
    // Held open, so that no thread comes after all the others have closed, and cuts what they
    // wrote.
    const int held = rt->open(path, open_write | open_create);
    ASSERT_GE(held, 0);
    std::vector<std::thread> team;
    std::atomic<int> failed{0};
    for (std::uint64_t t = 0; t < threads; ++t)
        team.emplace_back([&, t] {
            const int fd =
                open(lane{}, rt->ref(), "file", open_write | open_create | open_truncate);
            for (std::uint64_t i = 0; i < records; ++i) {
                const auto record = pattern(t * records + i, record_bytes);
                if (append(lane{}, rt->ref(), fd, record.data(), record_bytes) < 0) ++failed;
            }
            if (close(lane{}, rt->ref(), fd) != 0) ++failed;
        });
    for (std::thread& thread : team) thread.join();
    EXPECT_EQ(failed.load(), 0);
    EXPECT_EQ(rt->close(held), 0);
    const auto bytes = bytes_on_disk(path);
    ASSERT_EQ(bytes.size(), threads * records * record_bytes);
    ASSERT_EQ(bytes.size() % record_bytes, 0u);
    std::vector<std::vector<std::uint8_t>> got, wanted;
    for (std::size_t at = 0; at < bytes.size(); at += record_bytes)
        got.emplace_back(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                         bytes.begin() + static_cast<std::ptrdiff_t>(at + record_bytes));
    for (std::uint64_t i = 0; i < threads * records; ++i)
        wanted.push_back(pattern(i, record_bytes));
    std::sort(got.begin(), got.end());
    std::sort(wanted.begin(), wanted.end());
    EXPECT_EQ(got, wanted);
}

TEST_F(writing, the_runtime_writes_back_when_it_ends) {
    const auto bytes = pattern(13, 3 * page);
    const int fd = rt->open(path, open_write | open_create);
    ASSERT_EQ(rt->write(fd, bytes.data(), 3 * page, 0), static_cast<std::int64_t>(3 * page));
    rt->interrupt();
    rt.reset();
    EXPECT_EQ(bytes_on_disk(path), bytes);
}

TEST_F(writing, what_others_change_between_two_sessions_is_seen) {
    const int fd = rt->open(path, open_read_write | open_create);
    ASSERT_EQ(rt->write(fd, "first", 5, 0), 5);
    EXPECT_EQ(rt->close(fd), 0);
    write_file(path, {'o', 't', 'h', 'e', 'r'});  // the same size, and maybe the same times
    const int again = rt->open(path);
    EXPECT_EQ(read_back(again, 5), (std::vector<std::uint8_t>{'o', 't', 'h', 'e', 'r'}));
    EXPECT_EQ(rt->close(again), 0);
}

TEST_F(writing, racing_lanes_write_their_own_bytes_of_shared_pages) {
    constexpr std::uint64_t threads = 4, bytes = 20 * page, stride = 7;
    std::vector<std::thread> team;
    std::atomic<int> failed{0};
    const auto wanted = pattern(14, bytes);
    for (std::uint64_t t = 0; t < threads; ++t)
        team.emplace_back([&, t] {
            const racing_lane g;
            const int fd = open(g, rt->ref(), "file", open_read_write | open_create);
            for (std::uint64_t at = t * stride; at < bytes; at += threads * stride) {
                const auto length = static_cast<std::int64_t>(std::min(stride, bytes - at));
                const std::int64_t done = write(g, rt->ref(), fd, wanted.data() + at, length,
                                                static_cast<std::int64_t>(at));
                if (done != length && failed++ < 4)
                    ADD_FAILURE() << done << " of " << length << " at " << at;
                if (at % 11 == 0 &&
                    msync(g, rt->ref(), fd, static_cast<std::int64_t>(at), length) != 0)
                    ++failed;
            }
            if (close(g, rt->ref(), fd) != 0) ++failed;
        });
    for (std::thread& thread : team) thread.join();
    EXPECT_EQ(failed.load(), 0);
    EXPECT_EQ(bytes_on_disk(path), wanted);
    expect_sound(*rt);
}

}  // namespace penstock::test
