// A cut of which the host's part comes late, or the device's part ends early: no later write goes
// with it, and no old byte comes back.
#include <algorithm>
#include <future>
#include <string>
#include <thread>

#include "fault/scenario.hpp"
#include "penstock/write.hpp"
#include "soon.hpp"

namespace penstock::fault {

namespace {

class late_cut : public testing::Test {
protected:
    temporary_folder folder;
    faulty_environment disk;
    host::runtime_hooks hooks;
    options o = test::small_options(folder);
    std::unique_ptr<runtime> rt;
    const std::string path = folder / "file";
    static constexpr std::int64_t bytes = 20000;

    void SetUp() override {
        hooks.env = &disk;
        o.writable = true;
        o.request_wait_ms = 300;
    }
    void TearDown() override { disk.release(); }
    void create() {
        rt = test::make_runtime(o, hooks);
        ASSERT_NE(rt, nullptr);
    }
    int open_and_fill(char with) {
        const int fd = rt->open(path, open_read_write | open_create);
        EXPECT_GE(fd, 0);
        EXPECT_EQ(fill(fd, with), bytes);
        EXPECT_EQ(rt->fsync(fd), 0);
        return fd;
    }
    std::int64_t fill(int fd, char with) {
        const std::string all(static_cast<std::size_t>(bytes), with);
        return rt->write(fd, all.data(), bytes, 0);
    }
    void await_stalled() {
        ASSERT_TRUE(soon([&] { return disk.stalled() > 0; }));
    }
    std::uint64_t size(int fd) {
        file_stat facts;
        EXPECT_EQ(rt->stat(fd, &facts), 0);
        return facts.size_bytes;
    }
    void expect_sound() {
        const engine::invariant_report found = engine::check_invariants(rt->ref().view);
        EXPECT_EQ(found.rule, nullptr) << found.rule << " at " << found.where;
    }
    std::string on_disk() {
        const auto all = test::bytes_on_disk(path);
        return {all.begin(), all.end()};
    }
};

}  // namespace

TEST_F(late_cut, takes_no_write_that_was_acknowledged_after_it) {
    create();
    const int fd = open_and_fill('a');
    disk.stall(call_truncate);
    EXPECT_EQ(rt->truncate(fd, 0), -ETIMEDOUT);
    EXPECT_EQ(fill(fd, 'b'), -ETIMEDOUT) << "the host may cut the file yet";
    EXPECT_EQ(size(fd), static_cast<std::uint64_t>(bytes));
    disk.release();
    while (fill(fd, 'c') < 0) {
    }
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(on_disk(), std::string(bytes, 'c'));
    std::string got(bytes, '?');
    EXPECT_EQ(rt->read(fd, got.data(), bytes, 0), bytes);
    EXPECT_EQ(got, std::string(bytes, 'c'));
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(on_disk(), std::string(bytes, 'c'));
}

TEST_F(late_cut, of_an_opener_takes_no_write_of_another) {
    create();
    EXPECT_EQ(rt->close(open_and_fill('a')), 0);
    disk.stall(call_truncate);
    EXPECT_EQ(rt->open(path, open_read_write | open_truncate), -ETIMEDOUT);
    const int fd = rt->open(path, open_read_write);
    ASSERT_GE(fd, 0) << "no opener has to cut the file any more";
    EXPECT_EQ(fill(fd, 'b'), -ETIMEDOUT);
    disk.release();
    while (fill(fd, 'c') < 0) {
    }
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(on_disk(), std::string(bytes, 'c'));
    expect_sound();
}

// The second opener waits for the first one's cut, which the disk refuses.
TEST_F(late_cut, that_is_refused_is_the_error_of_all_that_waited_for_it) {
    o.request_wait_ms = 600'000;
    create();
    EXPECT_EQ(rt->close(open_and_fill('a')), 0);
    disk.set({.calls = call_truncate, .nth = 1, .error = -ENOSPC});
    disk.stall(call_truncate);
    const auto open_and_cut = [&] { return rt->open(path, open_read_write | open_truncate); };
    auto first = std::async(std::launch::async, open_and_cut);
    await_stalled();
    auto second = std::async(std::launch::async, open_and_cut);
    const auto writers = [&] {
        const engine::cache_view& c = rt->ref().view;
        std::uint32_t most = 0;
        for (std::uint32_t slot = 0; slot < c.file_slots; ++slot)
            most = std::max(most, engine::writers_of(c, slot));
        return most;
    };
    EXPECT_TRUE(soon([&] { return writers() >= 2; }));
    disk.release();
    EXPECT_EQ(first.get(), -ENOSPC);
    EXPECT_EQ(second.get(), -ENOSPC) << "it has a file that no group cut";
    EXPECT_EQ(on_disk(), std::string(bytes, 'a'));
    const int fd = open_and_cut();
    ASSERT_GE(fd, 0) << "the next one has a cut of its own";
    EXPECT_EQ(size(fd), 0u);
    // One that comes later waits for no cut, and makes none beside it.
    EXPECT_EQ(fill(fd, 'b'), bytes);
    const int beside = open_and_cut();
    ASSERT_GE(beside, 0);
    EXPECT_EQ(rt->close(beside), 0);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(on_disk(), std::string(bytes, 'b'));
    expect_sound();
}

TEST_F(late_cut, is_made_before_the_next_cut) {
    create();
    const int fd = open_and_fill('a');
    disk.stall(call_truncate);
    EXPECT_EQ(rt->truncate(fd, 10), -ETIMEDOUT);
    disk.release();
    int code = -ETIMEDOUT;
    while (code != 0) code = rt->truncate(fd, 5000);
    EXPECT_EQ(size(fd), 5000u);
    EXPECT_EQ(rt->close(fd), 0);
    const std::string disk_bytes = on_disk();
    ASSERT_EQ(disk_bytes.size(), 5000u);
    EXPECT_EQ(disk_bytes, std::string(10, 'a') + std::string(4990, '\0'));
}

TEST_F(late_cut, is_followed_by_a_record_at_the_new_end) {
    create();
    const int fd = open_and_fill('a');
    EXPECT_EQ(rt->append(fd, "ab", 2), bytes);
    disk.stall(call_truncate);
    EXPECT_EQ(rt->truncate(fd, 100), -ETIMEDOUT);
    disk.release();
    std::int64_t at = -ETIMEDOUT;
    while (at < 0) at = rt->append(fd, "cd", 2);
    EXPECT_EQ(at, 100);
    EXPECT_EQ(size(fd), 102u);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(on_disk(), std::string(100, 'a') + "cd");
}

// What the host did with the first request is not known, so the file and the device may be apart
// until a cut is made.
TEST_F(late_cut, that_is_refused_when_it_is_taken_up_is_made_later) {
    create();
    const int fd = open_and_fill('o');
    disk.stall(call_truncate);
    EXPECT_EQ(rt->truncate(fd, 0), -ETIMEDOUT);
    disk.set({.calls = call_truncate, .nth = 2, .error = -EIO});
    disk.release();
    std::int64_t got = -ETIMEDOUT;
    while (got == -ETIMEDOUT) got = rt->write(fd, "ab", 2, 4096);
    EXPECT_EQ(got, -EIO) << "the cut comes first";
    EXPECT_EQ(rt->write(fd, "ab", 2, 4096), 2);
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(size(fd), 4098u);
    std::string seen(4098, '?');
    EXPECT_EQ(rt->read(fd, seen.data(), 4098, 0), 4098);
    EXPECT_EQ(seen, std::string(4096, '\0') + "ab");
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(on_disk(), seen);
}

// An unmap ends also if the cut before it does not.
TEST_F(late_cut, takes_the_changes_of_an_unmap_that_did_not_wait_for_it) {
    create();
    const int fd = open_and_fill('o');
    const writable_mapping mapped = map_write(lane{}, rt->ref(), fd, 8192, 50);
    ASSERT_EQ(mapped.bytes, 50);
    std::memset(mapped.data, 'w', 50);
    disk.stall(call_truncate);
    EXPECT_EQ(rt->truncate(fd, 100), -ETIMEDOUT);
    EXPECT_EQ(unmap(lane{}, rt->ref(), mapped), -ETIMEDOUT);
    disk.release();
    while (rt->write(fd, "ab", 2, 50) < 0) {
    }
    EXPECT_EQ(size(fd), 100u);
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(on_disk(), std::string(50, 'o') + "ab" + std::string(48, 'o'));
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(on_disk().size(), 100u);
}

// The file ended before that page when the cut began.
TEST_F(late_cut, takes_what_an_unmap_put_behind_the_end_meanwhile) {
    create();
    const int fd = open_and_fill('o');
    const writable_mapping mapped = map_write(lane{}, rt->ref(), fd, 24576, 50);
    ASSERT_EQ(mapped.bytes, 50);
    std::memset(mapped.data, 'w', 50);
    disk.stall(call_truncate);
    EXPECT_EQ(rt->truncate(fd, 100), -ETIMEDOUT);
    EXPECT_EQ(unmap(lane{}, rt->ref(), mapped), -ETIMEDOUT);
    disk.release();
    while (rt->write(fd, "ab", 2, 50) < 0) {
    }
    EXPECT_EQ(size(fd), 100u);
    EXPECT_EQ(rt->write(fd, "z", 1, 24700), 1);
    std::string seen(50, '?');
    EXPECT_EQ(rt->read(fd, seen.data(), 50, 24576), 50);
    EXPECT_EQ(seen, std::string(50, '\0'));
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(on_disk().substr(24576, 50), std::string(50, '\0'));
}

// The cut holds the lock of that page while it asks the host, and gives it back whatever comes.
TEST_F(late_cut, lets_a_page_that_a_pointer_holds_be_written_back) {
    create();
    const int fd = open_and_fill('o');
    const writable_mapping mapped = map_write(lane{}, rt->ref(), fd, 8192, 50);
    ASSERT_EQ(mapped.bytes, 50);
    ASSERT_EQ(rt->write(fd, "ab", 2, 9000), 2);
    disk.set({.calls = call_truncate, .nth = 1, .error = -EIO});
    EXPECT_EQ(rt->truncate(fd, 100), -EIO);
    disk.clear();
    EXPECT_EQ(msync(lane{}, rt->ref(), mapped), 0);
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(on_disk(), std::string(9000, 'o') + "ab" + std::string(bytes - 9002, 'o'));
    disk.stall(call_truncate);
    EXPECT_EQ(rt->truncate(fd, 100), -ETIMEDOUT);
    EXPECT_EQ(rt->msync(fd, 0, bytes), 0) << "the lock is free";
    disk.release();
    while (rt->write(fd, "cd", 2, 50) < 0) {
    }
    EXPECT_EQ(size(fd), 100u);
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(on_disk(), std::string(50, 'o') + "cd" + std::string(48, 'o'));
    EXPECT_EQ(unmap(lane{}, rt->ref(), mapped), 0);
    EXPECT_EQ(rt->close(fd), 0);
    const std::string now = on_disk();
    EXPECT_EQ(now, std::string(50, 'o') + "cd" + std::string(48, 'o') +
                       std::string(8192 + 50 - 100, '\0'));
}

TEST_F(late_cut, of_a_file_that_is_closed_leaves_the_next_life_alone) {
    create();
    const int fd = open_and_fill('a');
    disk.stall(call_truncate);
    EXPECT_EQ(rt->truncate(fd, 0), -ETIMEDOUT);
    EXPECT_EQ(rt->close(fd), 0);
    disk.release();
    int again = -1;
    while (again < 0) again = rt->open(path, open_read_write);
    while (fill(again, 'c') < 0) {
    }
    EXPECT_EQ(rt->close(again), 0);
    const std::string now = on_disk();
    EXPECT_EQ(now, std::string(bytes, 'c'));
}

// Another group loads a page from a disk that hangs while the cut drops what the cache has.
TEST_F(late_cut, that_could_not_drop_a_page_in_time_shows_no_old_byte) {
    o.request_wait_ms = 20000;
    create();
    const int fd = open_and_fill('o');
    EXPECT_EQ(rt->close(fd), 0);
    rt.reset();
    create();
    const int again = rt->open(path, open_read_write);
    ASSERT_GE(again, 0);
    char byte = 0;
    constexpr auto page = static_cast<std::int64_t>(test::page);
    EXPECT_EQ(rt->read(again, &byte, 1, 3 * page), 1);
    disk.stall(call_read);
    std::thread reader([&] {
        char got = 0;
        static_cast<void>(read(lane{}, rt->ref(), again, &got, 1, page));
    });
    await_stalled();
    int code = 1;
    std::thread cutter([&] { code = truncate(lane{}, rt->ref(), again, 0); });
    while (size(again) != 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    rt->interrupt();
    reader.join();
    cutter.join();
    // The reader may give its page up before the cut gives up waiting for it.
    EXPECT_TRUE(code == 0 || code == -ECANCELED) << code;
    disk.release();
    rt->resume();
    EXPECT_EQ(rt->write(again, "z", 1, 4 * page), 1);
    EXPECT_EQ(rt->read(again, &byte, 1, 3 * page), 1);
    EXPECT_EQ(byte, '\0');
    EXPECT_EQ(rt->close(again), 0);
    EXPECT_EQ(on_disk(), std::string(static_cast<std::size_t>(4 * page), '\0') + "z");
}

}  // namespace penstock::fault
