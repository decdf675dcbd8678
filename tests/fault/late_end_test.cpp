// The end of a runtime whose storage does not answer: its threads wait side by side, and the log
// says what for.
#include <atomic>
#include <mutex>
#include <optional>
#include <thread>

#include "fault/scenario.hpp"
#include "soon.hpp"
#include "unit/parts_in_memory.hpp"

namespace penstock::fault {

namespace {

// A reader whose requests go to one service thread.
class reader {
public:
    reader(runtime& rt, int fd) : rt_(rt), fd_(fd) {
        thread_ = std::thread([this] {
            for (std::uint64_t count = 0;; done_ = ++count) {
                wanted_.wait(count);
                if (wanted_ == UINT64_MAX) return;
                std::uint8_t byte = 0;
                const std::uint64_t at = next_page++ * page;
                read(lane{}, rt_.ref(), fd_, &byte, 1, static_cast<std::int64_t>(at));
            }
        });
    }
    ~reader() { end(); }
    void begin() {
        ++wanted_;
        wanted_.notify_one();
    }
    void finish() {
        begin();
        EXPECT_TRUE(soon([&] { return done_ == wanted_; }));
    }
    void end() {
        if (!thread_.joinable()) return;
        EXPECT_TRUE(soon([&] { return done_ == wanted_; }));
        wanted_ = UINT64_MAX;
        wanted_.notify_one();
        thread_.join();
    }

private:
    static inline std::atomic<std::uint64_t> next_page{0};  // none is read twice
    runtime& rt_;
    const int fd_;
    std::atomic<std::uint64_t> wanted_{0}, done_{0};
    std::thread thread_;
};

// A writer that wants the file back comes when the monitor has looked at the leases for the last
// time.
class late_break final : public faulty_environment {
public:
    int take_lease(int fd) override {
        leased_ = fd;
        return 0;
    }
    bool is_lease_awaited(int) override { return false; }
    void end_lease(int fd) override {
        if (fd == leased_) is_back_ = true;
    }
    int open_writing(int handle) override {
        is_awaited_ = true;
        was_given_back_ = soon([&] { return is_back_.load(); });
        return faulty_environment::open_writing(handle);
    }
    [[nodiscard]] bool is_awaited() const { return is_awaited_; }
    [[nodiscard]] bool was_given_back() const { return was_given_back_; }

private:
    std::atomic<int> leased_{-1};
    std::atomic<bool> is_back_{false}, is_awaited_{false}, was_given_back_{false};
};

std::uint64_t reads_of(const host::service& one) {
    return one.counters().file_reads.load(std::memory_order_relaxed);
}

}  // namespace

// Only the first thread has a read under way. The others end meanwhile.
TEST(late_end, of_one_service_thread_holds_up_no_other) {
    const sample_folder from;
    faulty_environment disk;
    std::mutex mutex;
    std::string log;
    options o = tiny_options(from, io_method::automatic);
    o.service_threads = o.most_service_threads = 3;
    o.request_wait_ms = 600000;
    o.log = [&](const std::string& line) {
        const std::lock_guard lock(mutex);
        log += line + "\n";
    };
    host::runtime_hooks hooks = tiny_hooks(disk);
    hooks.rings_per_thread = 1;
    std::unique_ptr<runtime> rt = test::make_runtime(o, hooks);
    const int fd = open(lane{}, rt->ref(), "big");
    ASSERT_GE(fd, 0);
    std::vector<const host::service*> services;
    for (const auto& each : rt->state(0).services) services.push_back(each.get());
    // Readers that have ended give their place to the next ones.
    std::vector<std::unique_ptr<reader>> readers;
    for (std::uint64_t before = reads_of(*services[0]); reads_of(*services[0]) == before;) {
        ASSERT_LT(readers.size(), 500u);
        readers.push_back(std::make_unique<reader>(*rt, fd));
        readers.back()->finish();
    }
    disk.stall(call_read);
    readers.back()->begin();
    ASSERT_TRUE(soon([&] { return disk.stalled() == 1; }));
    std::thread ending([&] {
        // Every wait ends with the runtime; the reader is gone before the memory is.
        rt->state(0).set_abort(-ECANCELED);
        readers.clear();
        rt.reset();
    });
    EXPECT_TRUE(soon([&] { return !services[1]->alive() && !services[2]->alive(); }));
    EXPECT_TRUE(services[0]->alive());
    EXPECT_TRUE(soon([&] {
        const std::lock_guard lock(mutex);
        return log.find("storage has not answered") != std::string::npos;
    })) << log;
    disk.release();
    ending.join();
}

// A drain that ends without the read.
TEST(late_end, has_a_limit) {
    const sample_folder from;
    faulty_environment disk;
    options o = tiny_options(from, io_method::pread);
    host::runtime_hooks hooks = tiny_hooks(disk);
    hooks.drain_ns = 50'000'000;
    std::unique_ptr<runtime> rt = test::make_runtime(o, hooks);
    const int fd = open(lane{}, rt->ref(), "f0");
    disk.stall(call_read);
    std::thread waiting([&] {
        std::uint8_t byte = 0;
        EXPECT_LT(read(lane{}, rt->ref(), fd, &byte, 1, 0), 0);
    });
    EXPECT_TRUE(soon([&] { return disk.stalled() == 1; }));
    rt->state(0).set_abort(-ECANCELED);
    waiting.join();
    rt.reset();
    EXPECT_EQ(disk.stalled(), 0) << "its queue went with its thread";
}

// The kernel would take each lease by itself after 45 s, one after the other.
TEST(late_end, gives_leases_back_to_opens_of_its_own_threads) {
    const sample_folder from;
    test::parts_in_memory in_memory;
    in_memory.bring_in(from.folder / "f0");
    late_break system;
    options o = tiny_options(from, io_method::pread);
    o.window_bytes = 64u << 20;
    o.writable = true;
    o.devices.clear();
    o.request_wait_ms = 600000;
    host::runtime_hooks hooks = tiny_hooks(system);
    hooks.windows_on_cpu = true;
    std::unique_ptr<runtime> rt = test::make_runtime(o, hooks);
    const int fd = rt->open("f0");
    ASSERT_EQ(rt->open_windows(fd), static_cast<std::int64_t>(sample_folder::size(0)));
    EXPECT_EQ(rt->close(fd), 0);
    std::thread group([&] { EXPECT_LT(open(lane{}, rt->ref(), "f0", open_read_write), 0); });
    EXPECT_TRUE(soon([&] { return system.is_awaited(); }));
    rt->state(0).set_abort(-ECANCELED);
    group.join();
    rt.reset();
    EXPECT_TRUE(system.was_given_back());
    EXPECT_EQ(system.handles(), 0);
}

}  // namespace penstock::fault
