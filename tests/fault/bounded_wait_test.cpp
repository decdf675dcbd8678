// Nothing waits for ever: each way to get stuck ends in time, with the error that names its cause.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "fault/scenario.hpp"
#include "penstock/launch.hpp"
#include "soon.hpp"

namespace penstock::fault {

namespace {

using clock = std::chrono::steady_clock;

class bounded_wait : public testing::Test {
protected:
    sample_folder from;
    faulty_environment disk;
    options o = tiny_options(from, io_method::automatic);
    host::runtime_hooks hooks = tiny_hooks(disk);
    std::unique_ptr<runtime> rt;
    clock::time_point start;

    void create() { rt = test::make_runtime(o, hooks); }
    void begin() { start = clock::now(); }
    void expect_no_hang() { EXPECT_LT(clock::now() - start, std::chrono::minutes(2)); }
    void TearDown() override { disk.release(); }

    std::int64_t read_byte(int fd, std::uint64_t offset) {
        std::uint8_t byte = 0;
        return read(lane{}, rt->ref(), fd, &byte, 1, static_cast<std::int64_t>(offset));
    }
    void await_stalled(int count) {
        ASSERT_TRUE(soon([&] { return disk.stalled() >= count; }));
    }
    // The leaf that holds the table of the first pages is there from now on, so that reads need one
    // request each.
    void touch_leaf(int fd) { ASSERT_EQ(read_byte(fd, 127 * page), 1); }
};

// What maps of one byte gave that is neither that byte nor a refusal for want of frames.
class other_codes {
public:
    void look_at(std::int64_t code) {
        if (code == 1 || code == -ENOBUFS) return;
        const std::lock_guard lock(mutex_);
        ++counts_[code];
    }
    // Each code, and how often it came.
    [[nodiscard]] std::string text() {
        const std::lock_guard lock(mutex_);
        std::string out;
        for (const auto& [code, count] : counts_)
            out += std::to_string(code) + ": " + std::to_string(count) + " times\n";
        return out;
    }

private:
    std::mutex mutex_;
    std::map<std::int64_t, int> counts_;
};

}  // namespace

TEST_F(bounded_wait, all_frames_pinned) {
    create();
    const int fd = open(lane{}, rt->ref(), "big");
    std::vector<mapping> held;
    for (int i = 0; i < 16; ++i) held.push_back(map(lane{}, rt->ref(), fd, i * 4096, 1));
    begin();
    EXPECT_EQ(map(lane{}, rt->ref(), fd, 100 * 4096, 1).bytes, -ENOBUFS);
    expect_no_hang();
    begin();
    EXPECT_EQ(read_byte(fd, 101 * page), -ENOBUFS);
    expect_no_hang();
    begin();
    EXPECT_EQ(prefetch(lane{}, rt->ref(), fd, 102 * page, page), -ENOBUFS);
    expect_no_hang();
    EXPECT_EQ(read_byte(fd, 3 * page), 1) << "a pinned page can still be read";
    for (const mapping& mapped : held) EXPECT_EQ(unmap(lane{}, rt->ref(), mapped), 0);
    EXPECT_EQ(read_byte(fd, 101 * page), 1);
    close(lane{}, rt->ref(), fd);
    EXPECT_EQ(what_is_lost(*rt), "");
}

TEST_F(bounded_wait, ring_full_because_the_service_thread_is_stuck) {
    o.request_wait_ms = 400;
    create();
    const int fd = open(lane{}, rt->ref(), "f0");
    ASSERT_EQ(read_byte(fd, 0), 1);
    disk.stall(call_find);
    std::vector<std::int64_t> results(24);
    std::vector<std::thread> threads;
    begin();
    for (std::size_t i = 0; i < results.size(); ++i)
        threads.emplace_back([&, i] {
            results[i] = open(lane{}, rt->ref(), ("absent" + std::to_string(i)).c_str());
        });
    for (std::thread& thread : threads) thread.join();
    expect_no_hang();
    std::size_t timed_out = 0, full = 0;
    for (const std::int64_t code : results)
        (code == -ETIMEDOUT ? timed_out : full) += code == -ETIMEDOUT || code == -EAGAIN;
    EXPECT_EQ(timed_out + full, results.size());
    EXPECT_GT(timed_out, 0u);
    EXPECT_GT(full, 0u) << "the ring has eight slots";
    EXPECT_EQ(read_byte(fd, 0), 1) << "a page in the cache needs no ring";
    disk.release();
    EXPECT_EQ(open(lane{}, rt->ref(), "absent"), -ENOENT);
    close(lane{}, rt->ref(), fd);
    EXPECT_EQ(what_is_lost(*rt), "");
}

TEST_F(bounded_wait, service_thread_dies_while_groups_wait) {
    o.request_wait_ms = 30000;
    hooks.rings_per_thread = 1;  // of 8 slots, so that some find it full
    create();
    const int fd = open(lane{}, rt->ref(), "big");
    touch_leaf(fd);
    disk.stall(call_read);
    std::atomic<int> shut{0};
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i < 12; ++i)
        threads.emplace_back([&, i] { shut += read_byte(fd, i * page) == -ESHUTDOWN ? 1 : 0; });
    await_stalled(8);
    begin();
    for (auto& service : rt->state().services) service->kill();
    disk.release();  // a dying thread waits for its reads, so let them come
    for (std::thread& thread : threads) thread.join();
    expect_no_hang();
    EXPECT_GE(shut, 4) << "those that found the ring full at least";
    EXPECT_EQ(rt->health().code, -ESHUTDOWN);
    begin();
    EXPECT_EQ(open(lane{}, rt->ref(), "f3"), -ESHUTDOWN);
    rt->resume();
    EXPECT_EQ(open(lane{}, rt->ref(), "f3"), -ESHUTDOWN) << "there is no way back";
    expect_no_hang();
}

TEST_F(bounded_wait, heartbeat_stops) {
    o.host_wait_ms = 300;
    o.request_wait_ms = 30000;
    hooks.beat_ns = 3'600'000'000'000;
    create();
    disk.stall(call_find);
    begin();
    EXPECT_EQ(open(lane{}, rt->ref(), "f0"), -ETIMEDOUT);
    expect_no_hang();
    disk.release();
    // The waits are over, but a host that answers at once is as good as one that beats.
    const int fd = open(lane{}, rt->ref(), "f0");
    EXPECT_GE(fd, 0);
    EXPECT_EQ(read_byte(fd, 0), 1);
}

// An open to write that is answered too late leaves no writer behind, which would be counted on to
// know what the file has: for ever, since no group closes it.
TEST_F(bounded_wait, open_to_write_that_is_answered_late_hides_no_change) {
    o.writable = true;
    hooks.rings_per_thread = 1;  // the opens below come by the ring slot of the one that was lost
    create();
    disk.stall(call_find);
    std::int64_t late = 0;
    std::thread opener([&] { late = open(lane{}, rt->ref(), "f0", open_read_write); });
    await_stalled(1);
    rt->interrupt();
    opener.join();
    EXPECT_EQ(late, -ECANCELED);
    rt->resume();
    disk.release();
    const auto first_byte = [&] {
        const int fd = open(lane{}, rt->ref(), "f0");
        std::uint8_t byte = 0;
        EXPECT_EQ(read(lane{}, rt->ref(), fd, &byte, 1, 0), 1);
        close(lane{}, rt->ref(), fd);
        return byte;
    };
    const std::uint8_t before = first_byte();
    for (int i = 0; i < 32; ++i)  // the ring slot of that open has its next owner
        EXPECT_EQ(open(lane{}, rt->ref(), "absent"), -ENOENT);
    const std::uint8_t after = static_cast<std::uint8_t>(before + 1);
    const int other = ::open((from.folder / "f0").c_str(), O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(::pwrite(other, &after, 1, 0), 1);
    ::close(other);
    EXPECT_EQ(first_byte(), after);
    EXPECT_EQ(what_is_lost(*rt), "");
}

TEST_F(bounded_wait, interrupt_during_a_slow_read) {
    create();
    const int fd = open(lane{}, rt->ref(), "big");
    touch_leaf(fd);
    disk.stall(call_read);
    std::vector<std::int64_t> results(6, 1);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < results.size(); ++i)
        threads.emplace_back([&, i] { results[i] = read_byte(fd, i / 2 * page); });
    await_stalled(3);
    begin();
    rt->interrupt();
    for (std::thread& thread : threads) thread.join();
    expect_no_hang();
    for (const std::int64_t code : results) EXPECT_EQ(code, -ECANCELED);
    disk.stall(call_read | call_find);  // an open that has to wait
    EXPECT_EQ(open(lane{}, rt->ref(), "f9"), -ECANCELED);
    disk.release();
    rt->resume();
    EXPECT_EQ(read_byte(fd, 0), 1);
    close(lane{}, rt->ref(), fd);
    EXPECT_EQ(what_is_lost(*rt), "");
}

TEST_F(bounded_wait, two_hundred_threads_hold_two_pages_each_of_sixty_four) {
    o.cache_bytes = 64 * page;
    o.frame_wait_ms = 400;
    hooks.ring_slots = 32;
    create();
    const int fd = open(lane{}, rt->ref(), "big");
    std::atomic<int> both{0}, refused{0};
    other_codes wrong;
    std::barrier all_threads(200);
    std::vector<std::thread> threads;
    begin();
    for (int i = 0; i < 200; ++i)
        threads.emplace_back([&, i] {
            const mapping a = map(lane{}, rt->ref(), fd, i * 2 * 4096, 1);
            all_threads.arrive_and_wait();  // 64 of them hold all frames now
            const mapping b = map(lane{}, rt->ref(), fd, (i * 2 + 1) * 4096, 1);
            for (const mapping& mapped : {a, b}) wrong.look_at(mapped.bytes);
            (a.bytes == 1 && b.bytes == 1 ? both : refused) += 1;
            unmap(lane{}, rt->ref(), a);
            unmap(lane{}, rt->ref(), b);
        });
    for (std::thread& thread : threads) thread.join();
    expect_no_hang();
    EXPECT_EQ(both + refused, 200);
    EXPECT_EQ(wrong.text(), "");
    close(lane{}, rt->ref(), fd);
    EXPECT_EQ(what_is_lost(*rt), "");
}

TEST_F(bounded_wait, ten_thousand_groups_hold_two_pages_each_of_sixty_four) {
    o.cache_bytes = 64 * page;
    o.frame_wait_ms = 100;
    o.worker_threads = 32;
    create();
    const shared_file big = rt->open_everywhere("big");
    ASSERT_EQ(big.code(), 0);
    std::atomic<int> done{0};
    other_codes wrong;
    launch(*rt, 10000, [&](const auto& g, const runtime_ref& fs, std::uint64_t i) {
        const int fd = big.of(fs);
        const mapping a = map(g, fs, fd, static_cast<std::int64_t>(mix64(i) % 8000 * page), 1);
        const mapping b =
            map(g, fs, fd, static_cast<std::int64_t>(mix64(i + 50000) % 8000 * page), 1);
        for (const mapping& mapped : {a, b}) wrong.look_at(mapped.bytes);
        unmap(g, fs, a);
        unmap(g, fs, b);
        ++done;
    });
    EXPECT_EQ(done, 10000);
    EXPECT_EQ(wrong.text(), "");
    rt->close(big);
    EXPECT_EQ(what_is_lost(*rt), "");
}

TEST_F(bounded_wait, interrupted_groups_end_before_the_runtime_is_destroyed) {
    o.frame_wait_ms = 60000;
    create();
    const int fd = open(lane{}, rt->ref(), "big");
    std::vector<mapping> held;
    for (int i = 0; i < 16; ++i) held.push_back(map(lane{}, rt->ref(), fd, i * 4096, 1));
    std::vector<std::thread> threads;
    std::atomic<int> cancelled{0};
    for (std::uint64_t i = 0; i < 8; ++i)
        threads.emplace_back(
            [&, i] { cancelled += read_byte(fd, (100 + i) * page) == -ECANCELED ? 1 : 0; });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    begin();
    rt->interrupt();
    for (std::thread& thread : threads) thread.join();
    rt.reset();
    expect_no_hang();
    EXPECT_EQ(cancelled, 8);
    EXPECT_EQ(disk.handles(), 0);
}

// Groups gave up on reads that are still under way: their memory must outlive them.
TEST_F(bounded_wait, destruction_waits_for_abandoned_reads) {
    o.request_wait_ms = 50;
    create();
    const int fd = open(lane{}, rt->ref(), "big");
    touch_leaf(fd);
    disk.stall(call_read);
    EXPECT_EQ(read_byte(fd, 0), -ETIMEDOUT);
    EXPECT_EQ(read_byte(fd, page), -ETIMEDOUT);
    await_stalled(2);
    std::thread end([&] { rt.reset(); });
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(disk.stalled(), 2) << "the reads were dropped";
    begin();
    disk.release();
    end.join();
    expect_no_hang();
    EXPECT_EQ(disk.handles(), 0);
}

// The host answered an open that no caller waited for any more: its file slot and table must not be
// lost.
TEST_F(bounded_wait, opens_that_were_given_up_lose_no_file_slots) {
    o.request_wait_ms = 30;
    create();
    const std::uint64_t room_for_names = rt->state().files->free_path_units();
    for (std::uint32_t i = 0; i < 20; ++i) {
        disk.stall(call_find);
        EXPECT_EQ(open(lane{}, rt->ref(), sample_folder::name(i).c_str()), -ETIMEDOUT);
        disk.release();
        while (disk.stalled() > 0) std::this_thread::yield();
    }
    for (std::uint32_t i = 0; i < rt->device_count(); ++i)
        rt->state(i).ref.view.request_wait_ns = 3'000'000'000;
    // The ring goes round once, and what its slots still held comes back.
    scenario healed(rt->ref());
    healed.run();
    EXPECT_EQ(healed.complaints(), "");
    EXPECT_EQ(what_is_lost(*rt), "");
    EXPECT_LE(rt->state().files->live_files(), 16u);
    // What is in use now belongs to names that can be found; the lost answers took one unit each as
    // well.
    std::uint64_t remembered = 0;
    const engine::cache_view& c = rt->ref().view;
    for (std::uint32_t i = 0; i < c.name_slots; ++i) remembered += (c.names[i].path_bytes + 7) / 8;
    EXPECT_EQ(rt->state().files->free_path_units() + remembered, room_for_names);
}

TEST_F(bounded_wait, nonsense_harms_no_other_caller) {
    o.worker_threads = 4;
    create();
    const shared_file file = rt->open_everywhere("f2");
    ASSERT_EQ(file.code(), 0);
    std::atomic<int> wrong{0}, accepted{0};
    launch(*rt, 4000, [&](const auto& g, const runtime_ref& fs, std::uint64_t i) {
        const std::uint64_t r = mix64(i);
        const int good = file.of(fs);
        std::uint8_t buffer[64];
        if (i % 2 == 0) {
            const std::uint64_t at = r % (sample_folder::size(2) - 64);
            wrong += read(g, fs, good, buffer, 64, static_cast<std::int64_t>(at)) != 64;
            for (std::uint64_t k = 0; k < 64; ++k) wrong += buffer[k] != pattern_byte(2, at + k);
            return;
        }
        // Any number but the one good descriptor.
        const int bad = static_cast<int>(r) == good ? -7 : static_cast<int>(r);
        const auto offset = static_cast<std::int64_t>(mix64(r));
        accepted += read(g, fs, bad, buffer, 64, offset) >= 0;
        accepted += close(g, fs, bad) >= 0;
        accepted += map(g, fs, bad, offset, 64).bytes > 0;
        accepted += unmap(g, fs,
                          {reinterpret_cast<const std::byte*>(buffer), 64, mix64(r + 1),
                           static_cast<std::uint32_t>(r)}) >= 0;
        accepted += open(g, fs, i % 4 == 1 ? "../../../../etc/passwd" : "\x01\xff/\xfe") >= 0;
        accepted += read(g, fs, good, buffer, -1, offset) >= 0;
        accepted += prefetch(g, fs, good, -1 - static_cast<std::int64_t>(r >> 2), 64) >= 0;
    });
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(accepted, 0);
    EXPECT_EQ(rt->close(file), 0);
    EXPECT_EQ(what_is_lost(*rt), "");
}

}  // namespace penstock::fault
