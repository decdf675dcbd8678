// Page frames in memory of the caller: what is read and written there, and what is refused.
#include <array>
#include <sstream>
#include <string>

#include "unit/frame_memory.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t given_frames = 64;

options with_frames(const temporary_folder& folder, frame_memory& memory) {
    options o = small_options(folder, 1);
    o.cache_bytes = memory.size_bytes();
    o.cache_memory = memory.data();
    return o;
}

// Reads a file in pieces that straddle pages.
std::vector<std::uint8_t> read_all(runtime& rt, const char* name, std::uint64_t bytes) {
    std::vector<std::uint8_t> got(bytes);
    const int fd = rt.open(name);
    for (std::uint64_t at = 0; at < bytes;) {
        const std::uint64_t part = std::min<std::uint64_t>(3000, bytes - at);
        if (rt.read(fd, &got[at], static_cast<std::int64_t>(part), static_cast<std::int64_t>(at)) !=
            static_cast<std::int64_t>(part))
            return {};
        at += part;
    }
    EXPECT_EQ(rt.close(fd), 0);
    return got;
}

}  // namespace

TEST(cache_memory, holds_the_pages_and_no_byte_beside_it_changes) {
    const temporary_folder folder;
    const auto bytes = pattern(1, 3 * given_frames * page + 77);
    write_file(folder / "data", bytes);
    frame_memory memory(given_frames * page);
    auto rt = make_runtime(with_frames(folder, memory));
    EXPECT_EQ(rt->settings().cache_memory, memory.data());
    EXPECT_EQ(read_all(*rt, "data", bytes.size()), bytes);
    EXPECT_GT(rt->stats().evictions, given_frames) << "the frames were used more than once";
    const int fd = rt->open("data");
    const mapping m = rt->map(fd, 5 * page + 9, 100);
    ASSERT_EQ(m.bytes, 100);
    EXPECT_GE(m.data, memory.data());
    EXPECT_LT(m.data, memory.data() + memory.size_bytes());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(m.data) % frame_memory::alignment_bytes, 9u);
    EXPECT_EQ(rt->unmap(m), 0);
    rt.reset();
    EXPECT_TRUE(memory.is_touched());
    EXPECT_TRUE(memory.are_guards_whole());
}

TEST(cache_memory, is_the_callers_again_when_the_runtime_is_gone) {
    const temporary_folder folder;
    frame_memory memory(given_frames * page);
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        const auto bytes = pattern(seed, 2 * given_frames * page + seed);
        write_file(folder / "data", bytes);
        auto rt = make_runtime(with_frames(folder, memory));
        EXPECT_EQ(read_all(*rt, "data", bytes.size()), bytes) << "seed " << seed;
        rt.reset();
        EXPECT_TRUE(memory.are_guards_whole());
        memory.refill();  // the caller uses it for something else
    }
}

// A page that the file has no bytes of is zero, whatever its frame held before.
TEST(cache_memory, never_shows_what_was_in_it) {
    const temporary_folder folder;
    frame_memory memory(given_frames * page);
    options o = with_frames(folder, memory);
    o.writable = true;
    const auto rt = make_runtime(o);
    const int fd = rt->open("holes", open_read_write | open_create);
    ASSERT_GE(fd, 0) << error_text(fd);
    const std::array<std::uint8_t, 3> written{1, 2, 3};
    constexpr std::int64_t at = 9 * page + 1001, size = at + 3;
    ASSERT_EQ(rt->write(fd, written.data(), 3, at), 3);
    ASSERT_EQ(rt->truncate(fd, size + 500), 0);
    std::vector<std::uint8_t> expected(size + 500), got(size + 500);
    std::copy(written.begin(), written.end(), expected.begin() + at);
    EXPECT_EQ(rt->read(fd, got.data(), size + 500, 0), size + 500);
    EXPECT_EQ(got, expected);
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(folder / "holes"), expected);
}

// Written pages go to their file while the runtime ends, and not later.
TEST(cache_memory, is_written_back_before_the_runtime_is_gone) {
    const temporary_folder folder;
    const auto bytes = pattern(5, 20 * page);
    frame_memory memory(given_frames * page);
    options o = with_frames(folder, memory);
    o.writable = true;
    o.write_behind_bytes = *o.cache_bytes;
    auto rt = make_runtime(o);
    const int fd = rt->open("data", open_write | open_create);
    ASSERT_EQ(rt->write(fd, bytes.data(), static_cast<std::int64_t>(bytes.size()), 0),
              static_cast<std::int64_t>(bytes.size()));
    EXPECT_NE(bytes_on_disk(folder / "data"), bytes) << "the pages are still in the cache";
    rt.reset();
    EXPECT_TRUE(memory.are_guards_whole());
    memory.refill();
    EXPECT_EQ(bytes_on_disk(folder / "data"), bytes);
}

TEST(cache_memory, wrong_options_are_refused_with_value_and_cure) {
    const temporary_folder folder;
    frame_memory memory(given_frames * page);
    const options right = with_frames(folder, memory);
    struct wrong_case {
        void (*change)(options&);
        const char *begins, *has;
    };
    const wrong_case cases[] = {
        {[](options& o) { o.cache_bytes.reset(); }, "cache_memory: 0x", "give cache_bytes too"},
        {[](options& o) { o.where = backend::automatic; }, "cache_memory: 0x", "where is auto"},
        {[](options& o) { o.cache_memory = static_cast<std::byte*>(o.cache_memory) + 16; },
         "cache_memory: 0x", "no multiple of 256"},
        {[](options& o) { o.cache_bytes = UINT64_MAX - 4096; }, "cache_memory: 0x",
         "past the last address"},
        {[](options& o) { o.cache_bytes = 7 * page; }, "cache_bytes: 28 KiB", "at least 32 KiB"}};
    for (const wrong_case& wrong : cases) {
        options o = right;
        wrong.change(o);
        std::unique_ptr<runtime> rt;
        const status s = runtime::make(o, rt);
        EXPECT_EQ(s.code, -EINVAL) << wrong.has;
        EXPECT_EQ(rt, nullptr);
        EXPECT_EQ(s.message.rfind(wrong.begins, 0), 0u) << s.message;
        EXPECT_NE(s.message.find(wrong.has), std::string::npos) << s.message;
    }
    EXPECT_FALSE(memory.is_touched());
    // The address that is refused stands in the message.
    options o = right;
    o.cache_bytes.reset();
    std::stringstream address;
    address << o.cache_memory;
    EXPECT_NE(o.check().message.find(address.str()), std::string::npos) << o.check().message;
    EXPECT_TRUE(right.check().ok()) << right.check().message;
}

// With cache_memory the machine need not have cache_bytes free besides.
TEST(cache_memory, does_not_count_against_what_is_free) {
    const temporary_folder folder;
    frame_memory memory(given_frames * page);
    options o = with_frames(folder, memory);
    const auto free_bytes = static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                            static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));
    if (free_bytes > std::uint64_t{1} << 40) GTEST_SKIP() << "more than table_bytes may be";
    o.table_bytes = free_bytes - *o.cache_bytes / 2;
    o.cache_memory = nullptr;
    std::unique_ptr<runtime> rt;
    EXPECT_EQ(runtime::make(o, rt).code, -EINVAL);
    o.cache_memory = memory.data();
    const status fits = runtime::make(o, rt);  // unless a limit forbids so much (ulimit -v)
    EXPECT_TRUE(fits.ok() || fits.code == -ENOMEM) << fits.message;
    o.table_bytes = free_bytes;
    const status refused = runtime::make(o, rt);
    EXPECT_EQ(refused.code, -EINVAL);
    EXPECT_EQ(refused.message.rfind("table_bytes: " + format_size(free_bytes) + " do not fit", 0),
              0u)
        << refused.message;
}

TEST(cache_memory, is_not_among_the_device_bytes) {
    const temporary_folder folder;
    for (const bool writable : {false, true}) {
        frame_memory memory(given_frames * page);
        options given = with_frames(folder, memory);
        given.writable = writable;
        options own = given;
        own.cache_memory = nullptr;
        const auto first = make_runtime(own), second = make_runtime(given);
        EXPECT_EQ(first->stats().device_bytes - second->stats().device_bytes, given_frames * page);
    }
}

}  // namespace penstock::test
