// Regions, and programs that use the same files through a mount of this process: on CPU threads and
// on the GPU.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "mount/mounted_backend.hpp"
#include "hub/hub.hpp"
#include "rounds.hpp"

namespace penstock::test {

namespace {

using bytes = std::vector<std::uint8_t>;

// Only regions and programs of the mount write.
constexpr region_options by_page{.outside_writers = false};

std::uint64_t word_of(file_region& r, backend where, std::uint64_t offset) {
    const bytes seen = peek(r, where, offset, 8);
    std::uint64_t out = 0;
    std::memcpy(&out, seen.data(), 8);
    return out;
}
void set_word(file_region& r, backend where, std::uint64_t offset, std::uint64_t value) {
    bytes out(8);
    std::memcpy(out.data(), &value, 8);
    poke(r, where, offset, out);
}

std::uint64_t rounds_of(backend where) {
    const char* const wanted = std::getenv("PENSTOCK_PING_PONG");
    return wanted != nullptr       ? std::strtoull(wanted, nullptr, 10)
           : where == backend::gpu ? 500
                                   : rounds(std::uint64_t{3000});
}

class mounted_regions : public mounted_backend {
protected:
    std::string make_file(const bytes& content) {
        write_file(source(), content);
        return source();
    }

    struct own_handle {
        explicit own_handle(const std::string& path) : fd(::open(path.c_str(), O_RDONLY)) {}
        ~own_handle() { ::close(fd); }
        int fd;
    };
    // Neither the source nor the mount has any of it in memory then, where the file system lets go
    // of it.
    bool drop_from_memory(const std::string& path) const {
        const own_handle below(path), above(seen_as());
        return ::fsync(below.fd) == 0 &&
               ::posix_fadvise(above.fd, 0, 0, POSIX_FADV_DONTNEED) == 0 &&
               ::posix_fadvise(below.fd, 0, 0, POSIX_FADV_DONTNEED) == 0;
    }
    static bool is_any_in_memory(const std::string& path, std::uint64_t end = UINT64_MAX) {
        const own_handle file(path);
        for (std::uint64_t at = 0; at < std::min(end, std::filesystem::file_size(path)); at += 4096)
            if (host::linux_environment().in_page_cache(file.fd, at, 4096) != 0) return true;
        return false;
    }

    // A program and a region answer each other through one page; neither may see an older number
    // than it was promised. The first wrong number, or 0.
    std::uint64_t ping_pong(bool mapped, std::uint64_t rounds) {
        const auto r =
            map_whole(*runtime_, make_file(bytes(8192, 0)), protection::read_write, by_page);
        EXPECT_GE(one_.open(seen_as()), 0);
        EXPECT_EQ(mapped ? one_.map(8192) : 0, 0);
        for (std::uint64_t round = 1; round <= rounds; ++round) {
            EXPECT_GE(mapped ? one_.store(64, round) : one_.write(64, round), 0);
            EXPECT_GE(r->acquire(), 0);
            if (word_of(*r, where(), 64) != round) return round;
            set_word(*r, where(), 72, round);
            EXPECT_EQ(r->release(), 1);
            const program::answer seen = mapped ? one_.load(72) : one_.read(72);
            EXPECT_GE(seen.code, 0);
            if (seen.value != round) return round;
        }
        EXPECT_EQ(one_.close_file(), 0);
        return 0;
    }
};

}  // namespace

TEST_P(mounted_regions, ping_pong_by_read_and_write) {
    EXPECT_EQ(ping_pong(false, rounds_of(where())), 0u);
}

TEST_P(mounted_regions, ping_pong_through_a_mapping) {
    EXPECT_EQ(ping_pong(true, rounds_of(where())), 0u);
}

// The canary: where the mount is told nothing, the same test must find an old number. (Not so by
// read and write: the kernel itself drops pages of a file of which it sees that the times have
// changed, which it looks up after each write.)
TEST_P(mounted_regions, a_region_that_takes_no_views_is_found_out) {
    host::hub& shared = host::hub::of_process();
    for (const auto& views : shared.views()) shared.remove_views(*views);
    EXPECT_NE(ping_pong(true, 100), 0u);
}

TEST_P(mounted_regions, only_the_pages_that_a_program_wrote_are_fetched) {
    constexpr std::uint64_t size = 8 << 20;
    const auto r = map_whole(*runtime_, make_file(pattern(3, size)), protection::read, by_page);
    EXPECT_EQ(r->acquire(), 0);
    ASSERT_GE(one_.open(seen_as()), 0);
    for (const std::uint64_t page : {1u, 2u, 700u, 2047u})
        EXPECT_EQ(one_.write(page * 4096 + 4080, page), 8);
    EXPECT_EQ(one_.write(5 * 4096 - 4, 5), 8);  // over the edge of two pages
    EXPECT_EQ(r->acquire(), 6);
    EXPECT_EQ(r->acquire(), 0);
    EXPECT_EQ(one_.map(size), 0);
    EXPECT_EQ(one_.store(900 * 4096, 77), 0);
    EXPECT_EQ(r->acquire(), 1);
    EXPECT_EQ(word_of(*r, where(), 900 * 4096), 77u);
    EXPECT_EQ(peek(*r, where(), 0, size), read_file(folder_ / "source/f"));
    EXPECT_EQ(::truncate(seen_as().c_str(), size - 100), 0);
    EXPECT_EQ(r->acquire(), -ESTALE);
    EXPECT_EQ(::truncate(seen_as().c_str(), size), 0);
    EXPECT_EQ(r->acquire(), 1);
    EXPECT_EQ(peek(*r, where(), size - 100, 100), bytes(100, 0));
    EXPECT_EQ(one_.close_file(), 0);
}

// By calls that bring no bytes of the program's own.
TEST_P(mounted_regions, pages_that_a_program_copied_or_punched_are_fetched) {
    constexpr std::uint64_t grain = 4096, size = 64 * grain;
    write_file(folder_ / "source/g", pattern(4, size));
    const auto r = map_whole(*runtime_, make_file(pattern(3, size)), protection::read, by_page);
    const auto expect_fetched = [&](std::int64_t pages) {
        EXPECT_EQ(r->acquire(), pages);
        EXPECT_EQ(peek(*r, where(), 0, size), read_file(folder_ / "source/f"));
    };
    const int from = ::open((folder_ / "point/g").c_str(), O_RDONLY),
              to = ::open(seen_as().c_str(), O_RDWR);
    off_t from_at = 10 * grain, to_at = 20 * grain;
    EXPECT_EQ(::copy_file_range(from, &from_at, to, &to_at, 3 * grain, 0),
              static_cast<ssize_t>(3 * grain));
    expect_fetched(3);
    const int code =
        ::fallocate(to, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 40 * grain, 2 * grain);
    EXPECT_TRUE(code == 0 || errno == EOPNOTSUPP) << errno;
    expect_fetched(code == 0 ? 2 : 0);
    ::close(from);
    ::close(to);
}

namespace {

// How many words differ, and the first of them; nothing if none does.
std::string differences(const std::vector<std::uint64_t>& seen,
                        const std::vector<std::uint64_t>& expected) {
    std::string out;
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < expected.size(); ++i)
        if (seen[i] != expected[i] && ++count <= 5)
            out += "; word " + std::to_string(i) + " is " + std::to_string(seen[i]) + ", not " +
                   std::to_string(expected[i]);
    return count == 0 ? "" : std::to_string(count) + " words differ" + out;
}

}  // namespace

// Programs store to mappings and write, and a region changes bytes of the same pages, all at once:
// every byte has one writer, and what that wrote last is there.
TEST_P(mounted_regions, nothing_is_lost_of_pages_that_all_change) {
    constexpr std::uint64_t size = 256 << 10, words = size / 8;
    const auto r = map_whole(*runtime_, make_file(bytes(size, 0)), protection::read_write, by_page);
    ASSERT_GE(one_.open(seen_as()), 0);
    ASSERT_GE(two_.open(seen_as()), 0);
    ASSERT_EQ(one_.map(size), 0);
    constexpr std::uint64_t rounds = test::rounds(std::uint64_t{40});
    one_.begin_hammering(0, 3, size, 2000 * rounds);
    two_.begin_hammering(1, 3 * 97, size, 10 * rounds);
    for (std::uint64_t round = 1; round <= rounds; ++round) {
        for (std::uint64_t word = 2; word < words; word += 3 * 31)
            set_word(*r, where(), word * 8, round);
        ASSERT_GE(r->release(), 0);
        ASSERT_GE(r->acquire(), 0);
    }
    EXPECT_EQ(one_.hear().code, 0);
    EXPECT_EQ(two_.hear().code, 0);
    ASSERT_GE(r->acquire(), 0);
    std::vector<std::uint64_t> expected(words), seen(words);
    for (std::uint64_t word = 0; word < words; word += 3) expected[word] = 2000 * rounds;
    for (std::uint64_t word = 1; word < words; word += 3 * 97) expected[word] = 10 * rounds;
    for (std::uint64_t word = 2; word < words; word += 3 * 31) expected[word] = rounds;
    std::memcpy(seen.data(), peek(*r, where(), 0, size).data(), size);
    EXPECT_EQ(differences(seen, expected), "") << "the region";
    std::memcpy(seen.data(), read_file(folder_ / "source/f").data(), size);
    EXPECT_EQ(differences(seen, expected), "") << "the source";
    std::memcpy(seen.data(), read_file(seen_as()).data(), size);
    EXPECT_EQ(differences(seen, expected), "") << "the mount";
    EXPECT_EQ(one_.close_file(), 0);
    EXPECT_EQ(two_.close_file(), 0);
}

// A program and a region change the same byte, neither knowing the other's change
// (docs/guide/mount.md).
TEST_P(mounted_regions, of_one_byte_the_region_wins_over_a_mapping_and_else_the_later) {
    constexpr std::uint64_t at = 4096 + 64;
    const auto r =
        map_whole(*runtime_, make_file(bytes(16384, 0)), protection::read_write, by_page);
    ASSERT_GE(one_.open(seen_as()), 0);
    const auto everywhere = [&](std::uint64_t value, const char* order) {
        EXPECT_EQ(one_.read(at).value, value) << order << ": the program";
        EXPECT_GE(r->acquire(), 0);
        EXPECT_EQ(word_of(*r, where(), at), value) << order << ": the region";
        std::uint64_t below = 0;
        std::memcpy(&below, read_file(source()).data() + at, 8);
        EXPECT_EQ(below, value) << order << ": the source";
    };
    const auto release = [&] { EXPECT_EQ(r->release(), 1); };
    set_word(*r, where(), at, 1);
    EXPECT_EQ(one_.write(at, 2), 8);
    release();
    everywhere(1, "written, then released");
    set_word(*r, where(), at, 3);
    release();
    EXPECT_EQ(one_.write(at, 4), 8);
    everywhere(4, "released, then written");
    ASSERT_EQ(one_.map(16384), 0);
    set_word(*r, where(), at, 5);
    EXPECT_EQ(one_.store(at, 6), 0);
    release();
    everywhere(5, "the region, then the mapping");
    EXPECT_EQ(one_.load(at).value, 5u);
    EXPECT_EQ(one_.store(at, 7), 0);
    set_word(*r, where(), at, 8);
    EXPECT_EQ(one_.store(at + 8, 9), 0);
    release();
    everywhere(8, "the mapping, then the region");
    EXPECT_EQ(one_.load(at).value, 8u);
    EXPECT_EQ(one_.load(at + 8).value, 9u) << "the byte beside it is the program's";
    EXPECT_EQ(one_.close_file(), 0);
}

TEST_P(mounted_regions, unmounting_brings_stores_home_and_leaves_regions) {
    const auto r =
        map_whole(*runtime_, make_file(bytes(16384, 1)), protection::read_write, by_page);
    ASSERT_GE(one_.open(seen_as()), 0);
    ASSERT_EQ(one_.map(16384), 0);
    EXPECT_EQ(one_.store(8192, 99), 0);
    EXPECT_TRUE(mount_->is_mounted());
    EXPECT_EQ(mount_->unmount(), 0);
    EXPECT_FALSE(mount_->is_mounted());
    EXPECT_EQ(one_.write(0, 7), -ENOTCONN);
    EXPECT_EQ(read_file(folder_ / "source/f")[8192], 99);
    EXPECT_EQ(r->acquire(), 1);
    EXPECT_EQ(word_of(*r, where(), 8192), 99u);
    set_word(*r, where(), 0, 5);
    EXPECT_EQ(r->release(), 1);
    EXPECT_EQ(mount_->unmount(), 0);
    const status again =
        mount_directory(*runtime_, folder_ / "source", folder_ / "point", {}, mount_);
    EXPECT_TRUE(again.ok()) << again.message;
    EXPECT_EQ(read_file(seen_as())[0], 5);
}

TEST_P(mounted_regions, a_mount_that_others_took_away) {
    const auto r = map_whole(*runtime_, make_file(bytes(4096, 1)), protection::read_write, by_page);
    EXPECT_EQ(read_file(seen_as())[0], 1);
    const std::string point = folder_ / "point";
    ASSERT_EQ(std::system(("fusermount3 -u " + point + " 2>/dev/null || umount " + point).c_str()),
              0);
    for (int tries = 0; mount_->is_mounted() && tries < 6000; ++tries)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_FALSE(mount_->is_mounted());
    set_word(*r, where(), 0, 5);
    EXPECT_EQ(r->release(), 1);
    EXPECT_EQ(read_file(folder_ / "source/f")[0], 5);
}

// Of a file that the operating system does not have in memory programs get from the region what it
// holds, and the rest from the disk.
TEST_P(mounted_regions, programs_read_what_a_region_holds) {
    constexpr std::uint64_t size = 8 << 20, held = 5 << 20;
    bytes content = pattern(4, size);
    const std::string path = make_file(content);
    std::unique_ptr<file_region> r;
    const status s = map_region(*runtime_, path, 0, held, protection::read_write, by_page, r);
    ASSERT_TRUE(s.ok()) << s.message;
    ASSERT_TRUE(drop_from_memory(path));
    if (is_any_in_memory(path)) GTEST_SKIP() << "this file system keeps files in memory";
    // Beside busy programs the kernel asks for some pages twice.
    const auto expect_from_devices = [&](const mount_report& before, std::uint64_t wanted) {
        const mount_report now = mount_->report();
        const std::uint64_t got = now.bytes_from_devices - before.bytes_from_devices;
        EXPECT_GE(got, wanted);
        EXPECT_LE(got + size - wanted, now.bytes_asked - before.bytes_asked);
    };
    EXPECT_TRUE(read_file(seen_as()) == content);
    expect_from_devices({}, held);
    EXPECT_FALSE(is_any_in_memory(path, held)) << "the disk was read too";
    // The newest of each: what the kernel released, and what a program wrote since.
    set_word(*r, where(), 4096 * 10, 77);
    EXPECT_EQ(r->release(), 1);
    ASSERT_GE(one_.open(seen_as()), 0);
    EXPECT_EQ(one_.write(4096 * 20 + 8, 99), 8);
    for (const auto& [at, value] : {std::pair{4096 * 10, 77}, std::pair{4096 * 20 + 8, 99}}) {
        std::fill_n(content.begin() + at, 8, 0);
        content[static_cast<std::size_t>(at)] = static_cast<std::uint8_t>(value);
    }
    for (int round = 0; round < 2; ++round) {
        ASSERT_TRUE(drop_from_memory(path));
        const mount_report before = mount_->report();
        EXPECT_TRUE(read_file(seen_as()) == content);
        expect_from_devices(before, round == 0 ? held - 4096 : held);
        EXPECT_EQ(r->acquire(), round == 0 ? 1 : 0);
    }
    EXPECT_EQ(one_.close_file(), 0);
}

// The same of the pages that kernels have opened and read.
TEST_P(mounted_regions, programs_read_what_the_cache_of_open_and_read_holds) {
    constexpr std::uint64_t size = 8 << 20, held = 128 << 10;
    bytes content = pattern(5, size), in_kernel(held);
    const std::string path = make_file(content);
    let_files_settle();
    const int file = runtime_->open(path);
    ASSERT_GE(file, 0);
    EXPECT_EQ(runtime_->read(file, in_kernel.data(), held, 0), static_cast<std::int64_t>(held));
    EXPECT_EQ(runtime_->close(file), 0);
    ASSERT_TRUE(drop_from_memory(path));
    if (is_any_in_memory(path)) GTEST_SKIP() << "this file system keeps files in memory";
    const auto read_cold = [&] {
        EXPECT_TRUE(drop_from_memory(path));
        const std::uint64_t before = mount_->report().bytes_from_devices;
        EXPECT_TRUE(read_file(seen_as()) == content);
        return mount_->report().bytes_from_devices - before;
    };
    // A GPU that others use may be late with its answer, and is not asked again for a while then.
    std::uint64_t from_devices = 0;
    for (int round = 0; from_devices != held && round < 50; ++round) from_devices = read_cold();
    EXPECT_EQ(from_devices, held);
    EXPECT_FALSE(is_any_in_memory(path, held)) << "the disk was read too";
    ASSERT_GE(one_.open(seen_as()), 0);
    EXPECT_EQ(one_.write(4096 * 20 + 8, 99), 8);
    std::fill_n(content.begin() + 4096 * 20 + 8, 8, 0);
    content[4096 * 20 + 8] = 99;
    EXPECT_EQ(read_cold(), 0u) << "open for writing";
    EXPECT_EQ(one_.close_file(), 0);
    EXPECT_EQ(read_cold(), 0u) << "changed";
}

TEST_P(mounted_regions, bad_input) {
    std::unique_ptr<file_mount> out;
    const auto refused = [&](const std::string& source, const std::string& point) {
        const status s = mount_directory(*runtime_, source, point, {}, out);
        EXPECT_EQ(out, nullptr);
        EXPECT_FALSE(s.message.empty());
        return s.code;
    };
    std::filesystem::create_directory(folder_ / "empty");
    EXPECT_EQ(refused(folder_ / "absent", folder_ / "empty"), -ENOENT);
    EXPECT_EQ(refused(folder_ / "source", folder_ / "absent"), -ENOENT);
    EXPECT_EQ(refused(folder_ / "source", folder_ / "point"), -EBUSY);
    EXPECT_EQ(refused(folder_ / "source", folder_ / "source"), -EINVAL);
    EXPECT_TRUE(mount_->is_mounted());
}

INSTANTIATE_TEST_SUITE_P(on, mounted_regions,
                         testing::Values(mounted_as(backend::cpu), mounted_as(backend::gpu),
                                         mounted_as(backend::cpu, true),
                                         mounted_as(backend::gpu, true)),
                         [](const auto& info) { return name_of(info); });

}  // namespace penstock::test
