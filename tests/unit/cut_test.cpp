// Cuts beside groups that write: each write comes wholly before the cut or wholly after it, and the
// device and the file agree.
#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "penstock/file.hpp"
#include "penstock/write.hpp"
#include "rounds.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

// A group whose clock, which the engine reads when it begins to wait, runs a step of the test once.
struct interrupted : lane {
    std::function<void()>* step;
    [[nodiscard]] std::uint64_t now_ns() const {
        if (*step) std::exchange(*step, nullptr)();
        return lane::now_ns();
    }
};

}  // namespace

class cutting : public testing::Test {
protected:
    temporary_folder folder;
    options settings = small_options(folder);
    std::unique_ptr<runtime> rt;
    const std::string path = folder / "file";
    std::thread other;

    void SetUp() override {
        settings.writable = true;
        rt = make_runtime(settings);
        ASSERT_NE(rt, nullptr);
    }
    void TearDown() override {
        if (other.joinable()) other.join();
    }
    int open_file(std::uint64_t bytes) {
        const int fd = rt->open(path, open_read_write | open_create);
        EXPECT_GE(fd, 0);
        const std::string all(bytes, 'o');
        EXPECT_EQ(rt->write(fd, all.data(), static_cast<std::int64_t>(bytes), 0),
                  static_cast<std::int64_t>(bytes));
        EXPECT_EQ(rt->fsync(fd), 0);
        return fd;
    }
    std::uint64_t size(int fd) {
        file_stat facts;
        EXPECT_EQ(rt->stat(fd, &facts), 0);
        return facts.size_bytes;
    }
    std::string on_disk() {
        const auto bytes = bytes_on_disk(path);
        return {bytes.begin(), bytes.end()};
    }
    writable_mapping map_to_write(int fd, std::uint64_t at, std::int64_t bytes) {
        const writable_mapping mapped =
            map_write(lane{}, rt->ref(), fd, static_cast<std::int64_t>(at), bytes);
        EXPECT_EQ(mapped.bytes, bytes);
        return mapped;
    }
    // Closes the file, which has the size and the bytes that the device had. Returns them.
    std::string expect_agreement(int fd) {
        std::string seen(size(fd), '?');
        const auto bytes = static_cast<std::int64_t>(seen.size());
        EXPECT_EQ(rt->read(fd, seen.data(), bytes, 0), bytes);
        EXPECT_EQ(gate_of(fd), 0u);
        EXPECT_EQ(rt->fsync(fd), 0);
        EXPECT_EQ(on_disk(), seen);
        EXPECT_EQ(rt->close(fd), 0);
        EXPECT_EQ(on_disk(), seen);
        return seen;
    }
    std::uint64_t gate_of(int fd) {
        const engine::cache_view& c = rt->ref().view;
        return c.writes[engine::descriptor_slot(c, fd)].gate;
    }
    // Another thread writes, after the wait of the one that cuts has begun.
    std::function<void()> write_meanwhile(int fd, std::int64_t at, std::atomic<std::int64_t>& got) {
        return [this, fd, at, &got] {
            other = std::thread([this, fd, at, &got] {
                const std::string mine(50, 'w');
                got = rt->write(fd, mine.data(), 50, at);
            });
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
        };
    }
    // The write came before the cut to `size_bytes`, or after it; the file is as the device says.
    void expect_before_or_after(int fd, std::uint64_t size_bytes, std::uint64_t at) {
        const std::uint64_t now = size(fd);
        const std::string mine(50, 'w');
        EXPECT_TRUE(now == size_bytes || now == at + 50) << now;
        if (now == at + 50) {
            std::string got(50, '?');
            EXPECT_EQ(rt->read(fd, got.data(), 50, static_cast<std::int64_t>(at)), 50);
            EXPECT_EQ(got, mine);
        }
        EXPECT_EQ(gate_of(fd), 0u);
        EXPECT_EQ(rt->close(fd), 0);
        const std::string disk = on_disk();
        EXPECT_EQ(disk.size(), now);
        if (now == at + 50) {
            EXPECT_EQ(disk.substr(at), mine);
        }
    }
};

TEST_F(cutting, a_write_to_the_page_that_is_cut_is_not_cleared) {
    const int fd = open_file(5 * page);
    std::atomic<std::int64_t> got{0};
    std::function<void()> step = write_meanwhile(fd, 200, got);
    EXPECT_EQ(truncate(interrupted{{}, &step}, rt->ref(), fd, 100), 0);
    other.join();
    EXPECT_EQ(got, 50);
    expect_before_or_after(fd, 100, 200);
}

TEST_F(cutting, a_write_behind_the_cut_leaves_device_and_file_of_one_size) {
    const int fd = open_file(5 * page);
    std::atomic<std::int64_t> got{0};
    const std::uint64_t at = 2 * page + 7;
    std::function<void()> step = write_meanwhile(fd, static_cast<std::int64_t>(at), got);
    EXPECT_EQ(truncate(interrupted{{}, &step}, rt->ref(), fd, 100), 0);
    other.join();
    EXPECT_EQ(got, 50);
    expect_before_or_after(fd, 100, at);
}

// Of the two, the writer begins first about every other time.
TEST_F(cutting, threads_that_cut_and_write_agree_with_the_file) {
    std::atomic<int> round{0}, done{0};
    std::atomic<int> fd{-1};
    const int rounds = 300;
    const std::uint64_t at = 2 * page;
    other = std::thread([&] {
        for (int i = 1; i <= rounds; ++i) {
            while (round < i) std::this_thread::yield();
            const std::string mine(50, 'w');
            EXPECT_EQ(rt->write(fd, mine.data(), 50, static_cast<std::int64_t>(at)), 50);
            done = i;
        }
    });
    for (int i = 1; i <= rounds; ++i) {
        fd = open_file(3 * page);
        round = i;
        if (i % 2 == 0) std::this_thread::yield();
        EXPECT_EQ(rt->truncate(fd, 100), 0);
        while (done < i) std::this_thread::yield();
        expect_before_or_after(fd, 100, at);
        if (HasFailure()) round = rounds;
    }
}

TEST_F(cutting, two_cuts_leave_device_and_file_of_one_size) {
    std::atomic<int> round{0}, done{0};
    std::atomic<int> fd{-1};
    const int rounds = 300;
    other = std::thread([&] {
        for (int i = 1; i <= rounds; ++i) {
            while (round < i) std::this_thread::yield();
            EXPECT_EQ(rt->truncate(fd, 300), 0);
            done = i;
        }
    });
    for (int i = 1; i <= rounds; ++i) {
        fd = open_file(3 * page);
        round = i;
        EXPECT_EQ(rt->truncate(fd, 100), 0);
        while (done < i) std::this_thread::yield();
        const std::uint64_t now = size(fd);
        EXPECT_TRUE(now == 100 || now == 300) << now;
        EXPECT_EQ(rt->close(fd), 0);
        EXPECT_EQ(on_disk().size(), now);
    }
}

// A log that is rotated: the room of a record ends with the bytes before the cut.
TEST_F(cutting, a_record_has_its_room_behind_the_cut) {
    const int fd = rt->open(path, open_read_write | open_create);
    const std::string old(250, 'o'), first(50, 'a'), second(300, 'b');
    ASSERT_EQ(rt->append(fd, old.data(), 250), 0);
    std::atomic<std::int64_t> cut{1}, got{-1};
    std::function<void()> step = [&] {
        other = std::thread([&] {
            cut = rt->truncate(fd, 0);
            got = rt->append(fd, second.data(), 300);
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    };
    const std::int64_t at = append(interrupted{{}, &step}, rt->ref(), fd, first.data(), 50);
    other.join();
    EXPECT_EQ(cut, 0);
    EXPECT_EQ(rt->close(fd), 0);
    const std::string disk = on_disk();
    EXPECT_EQ(disk.substr(static_cast<std::size_t>(got), 300), second);
    if (at == 250) {
        EXPECT_EQ(got, 0) << "the first record came before the cut";
    } else {
        EXPECT_EQ(disk.substr(static_cast<std::size_t>(at), 50), first);
    }
}

TEST_F(cutting, changes_through_a_pointer_come_before_or_after) {
    const int fd = open_file(5 * page);
    const writable_mapping mapped = map_to_write(fd, 2 * page, 50);
    std::memset(mapped.data, 'w', 50);
    std::atomic<int> got{1};
    std::function<void()> step = [&] {
        other = std::thread([&] { got = unmap(lane{}, rt->ref(), mapped); });
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    };
    EXPECT_EQ(truncate(interrupted{{}, &step}, rt->ref(), fd, 100), 0);
    other.join();
    EXPECT_EQ(got, 0);
    expect_agreement(fd);
}

// A flush leaves the marks of a page that is mapped to be changed.
TEST_F(cutting, what_was_written_before_goes_though_a_pointer_holds_the_page) {
    for (const std::uint64_t size_bytes : {std::uint64_t{100}, 2 * page + 50}) {
        const int fd = open_file(5 * page);
        const writable_mapping mapped = map_to_write(fd, 2 * page + 100, 50);
        EXPECT_EQ(rt->write(fd, "xy", 2, static_cast<std::int64_t>(2 * page + 60)), 2);
        EXPECT_EQ(rt->write(fd, "ab", 2, static_cast<std::int64_t>(2 * page + 8)), 2);
        EXPECT_EQ(rt->truncate(fd, static_cast<std::int64_t>(size_bytes)), 0);
        EXPECT_EQ(size(fd), size_bytes);
        EXPECT_EQ(rt->fsync(fd), 0);
        EXPECT_EQ(on_disk().size(), size_bytes);
        EXPECT_EQ(unmap(lane{}, rt->ref(), mapped), 0);
        const std::string disk = expect_agreement(fd);
        ASSERT_EQ(disk.size(), 2 * page + 150) << "it reaches to the end of the mapping";
        if (size_bytes > 2 * page) {
            EXPECT_EQ(disk.substr(2 * page + 8, 2), "ab");
        }
        EXPECT_EQ(disk.substr(size_bytes), std::string(disk.size() - size_bytes, '\0'));
    }
}

// While a pointer holds a page, each synchronisation finds the bytes that were written before.
TEST_F(cutting, a_synchronisation_beside_it_brings_nothing_back) {
    for (const std::uint64_t bytes : {std::uint64_t{4096}, std::uint64_t{65536}}) {
        settings.page_bytes = bytes;
        settings.cache_bytes = 64 * bytes;
        settings.staging_bytes = std::uint64_t{4} << 20;
        rt = make_runtime(settings);
        ASSERT_NE(rt, nullptr);
        const int fd = open_file(bytes);
        const writable_mapping mapped = map_to_write(fd, 0, 16);
        std::atomic<bool> ends{false};
        other = std::thread([&] {
            while (!ends) {
                EXPECT_EQ(msync(lane{}, rt->ref(), mapped), 0);
                EXPECT_EQ(rt->msync(fd, 0, static_cast<std::int64_t>(bytes)), 0);
            }
        });
        const std::string late(bytes - 100, 'w');
        for (int i = 0; i < rounds(200, 30) && !HasFailure(); ++i) {
            EXPECT_EQ(rt->write(fd, late.data(), static_cast<std::int64_t>(late.size()), 100),
                      static_cast<std::int64_t>(late.size()));
            EXPECT_EQ(rt->truncate(fd, 100), 0);
            EXPECT_EQ(on_disk().size(), 100u);
            EXPECT_EQ(rt->write(fd, "y", 1, static_cast<std::int64_t>(bytes - 1)), 1);
            EXPECT_EQ(rt->fsync(fd), 0);
            EXPECT_TRUE(on_disk().substr(100) == std::string(bytes - 101, '\0') + 'y') << i;
        }
        ends = true;
        other.join();
        EXPECT_EQ(unmap(lane{}, rt->ref(), mapped), 0);
        expect_agreement(fd);
        rt.reset();
        std::filesystem::remove(path);
    }
}

// Two pointers of one page, and one that was synchronised before.
TEST_F(cutting, what_pointers_brought_to_the_file_before_goes) {
    const int fd = open_file(5 * page);
    const writable_mapping first = map_to_write(fd, 2 * page, 50),
                           second = map_to_write(fd, 2 * page + 50, 50);
    std::memset(first.data, 'f', 50);
    std::memset(second.data, 's', 50);
    EXPECT_EQ(unmap(lane{}, rt->ref(), first), 0);
    EXPECT_EQ(msync(lane{}, rt->ref(), second), 0);
    EXPECT_EQ(rt->truncate(fd, 100), 0);
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(on_disk().size(), 100u);
    std::memset(second.data, 't', 10);
    EXPECT_EQ(unmap(lane{}, rt->ref(), second), 0);
    const std::string disk = expect_agreement(fd);
    EXPECT_EQ(disk, std::string(100, 'o') + std::string(2 * page - 50, '\0') +
                        std::string(10, 't') + std::string(40, '\0'));
}

// The writer in the gate waits for a frame; pointers hold all of them, and are given back behind
// it.
TEST_F(cutting, waits_for_no_frame_that_one_outside_holds) {
    settings.cache_bytes = 8 * page;
    settings.frame_wait_ms = 2000;
    rt = make_runtime(settings);
    const int fd = open_file(20 * page);
    std::vector<writable_mapping> held;
    for (std::uint64_t i = 0; i < 4; ++i) held.push_back(map_to_write(fd, i * page, 50));
    std::atomic<std::int64_t> got{0};
    std::atomic<int> cut{1};
    const engine::cache_view& c = rt->ref().view;
    const std::uint32_t slot = engine::descriptor_slot(c, fd);
    other = std::thread([&] {
        got =
            rt->write(fd, std::string(page, 'w').data(), page, static_cast<std::int64_t>(9 * page));
    });
    while (engine::look_at_gate(c, slot) == 0) std::this_thread::yield();
    std::thread cutter([&] { cut = rt->truncate(fd, static_cast<std::int64_t>(15 * page)); });
    while ((engine::look_at_gate(c, slot) & engine::gate_closed) == 0) std::this_thread::yield();
    for (const writable_mapping& one : held) EXPECT_EQ(unmap(lane{}, rt->ref(), one), 0);
    other.join();
    cutter.join();
    EXPECT_EQ(got, static_cast<std::int64_t>(page));
    EXPECT_EQ(cut, 0);
    EXPECT_EQ(expect_agreement(fd).size(), 15 * page);
}

// Where no page can be, nothing could be read or written.
TEST_F(cutting, a_size_that_the_table_has_no_room_for_is_refused) {
    settings.page_bytes = 512;
    rt = make_runtime(settings);
    const int fd = open_file(3 * 512);
    const engine::cache_view& c = rt->ref().view;
    const std::uint64_t known = c.file_records[engine::descriptor_slot(c, fd)].page_count;
    const auto most = static_cast<std::int64_t>(
        ((std::uint64_t{c.growth_entries} << c.leaf_shift) + known) << c.page_shift);
    EXPECT_EQ(rt->write(fd, "ab", 2, 700), 2);
    for (const std::int64_t bytes : {most + 1, std::int64_t{1} << 40, INT64_MAX})
        EXPECT_EQ(rt->truncate(fd, bytes), -EFBIG) << bytes;
    EXPECT_EQ(size(fd), 3u * 512);
    EXPECT_EQ(on_disk().size(), 3u * 512);
    EXPECT_EQ(on_disk()[700], 'o') << "it was not even flushed";
    EXPECT_EQ(rt->truncate(fd, most), 0);
    char last = '?';
    EXPECT_EQ(rt->read(fd, &last, 1, most - 1), 1);
    EXPECT_EQ(last, '\0');
    EXPECT_EQ(rt->write(fd, "z", 1, most - 1), 1);
    EXPECT_EQ(rt->truncate(fd, 710), 0);
    EXPECT_EQ(expect_agreement(fd).substr(700), "aboooooooo");
}

// A descriptor that another group closes meanwhile is the program's mistake; the next file in its
// slot is not closed by it.
TEST_F(cutting, a_new_life_of_the_slot_has_an_open_gate) {
    const int fd = open_file(page);
    const engine::cache_view& c = rt->ref().view;
    const std::uint32_t slot = engine::descriptor_slot(c, fd);
    EXPECT_EQ(engine::go_in(c, slot), 0u);
    c.writes[slot].gate |= engine::gate_closed | engine::gate_left;
    engine::reset_writes(c, slot, page);
    EXPECT_EQ(c.writes[slot].gate, 1u) << "the group that is in goes out";
    engine::go_out(c, slot);
    EXPECT_EQ(c.writes[slot].gate, 0u);
    engine::grant(c, slot);
    engine::count_writers(c, slot, 1);
    EXPECT_EQ(rt->close(fd), 0);
}

}  // namespace penstock::test
