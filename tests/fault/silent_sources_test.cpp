// Sources of pages that never answer, a store between nodes and a buffer: kernels have the bytes
// from the file, and the runtime ends without them.
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>

#include "fault/scenario.hpp"
#include "hub/hub.hpp"
#include "os/file_kind.hpp"
#include "penstock/table.hpp"
#include "soon.hpp"

namespace penstock::fault {

namespace {

constexpr std::uint64_t size = 16 * page;

// What gets of a store wait at.
struct closed_door {
    std::mutex mutex;
    std::condition_variable opened;
    bool is_open = false;
    int waiting = 0;

    void open() {
        const std::lock_guard lock(mutex);
        is_open = true;
        opened.notify_all();
    }
    int now_waiting() {
        const std::lock_guard lock(mutex);
        return waiting;
    }
};

// It does not heed how long it may take.
class silent_store final : public host::block_store {
public:
    explicit silent_store(closed_door& door) : door_(door) {}
    std::int64_t get(const host::block_key&, std::span<std::byte>, std::uint64_t, bool) override {
        std::unique_lock lock(door_.mutex);
        ++door_.waiting;
        door_.opened.wait(lock, [&] { return door_.is_open; });
        --door_.waiting;
        return -ENOENT;
    }
    int put(const host::block_key&, std::span<const std::byte>, bool, std::uint64_t) override {
        return 0;
    }

private:
    closed_door& door_;
};

// A buffer that has begun a copy of each page, and never ends one.
class silent_buffer final : public host::frame_source {
public:
    std::uint64_t copy(const host::frame_wish&, std::byte*) override { return 0; }
    std::shared_ptr<host::frame_copy> begin(const host::frame_wish&) override {
        ++begun;
        return std::make_shared<endless_copy>();
    }
    std::atomic<int> begun{0};

private:
    struct endless_copy final : host::frame_copy {
        [[nodiscard]] bool has_ended() const override { return false; }
        std::uint64_t take(const host::frame_wish&, std::byte*) override { return 0; }
    };
};

class silent_sources : public testing::Test {
protected:
    silent_sources() {
        test::write_file(path, bytes);
        test::let_files_settle();
        o = test::small_options(folder, 1);
        o.window_bytes = 0;
        o.request_wait_ms = 600'000;
        disk.say_cached(0);
        hooks.env = &disk;
        hooks.shared = &shared;
    }
    void TearDown() override { door.open(); }
    void make_with_store(std::uint64_t wait_ns) {
        hooks.make_store = [this] { return std::make_unique<silent_store>(door); };
        hooks.set_blocks = [wait_ns](host::block_settings& s) {
            s.local_files = true;
            s.wait_ns = wait_ns;
        };
        rt = test::make_runtime(o, hooks);
    }
    void expect_page(int fd, std::uint64_t number) {
        std::vector<std::uint8_t> got(page);
        const auto at = static_cast<std::ptrdiff_t>(number * page);
        EXPECT_EQ(rt->read(fd, got.data(), page, at), static_cast<std::int64_t>(page));
        EXPECT_TRUE(std::equal(got.begin(), got.end(), bytes.begin() + at)) << number;
    }
    // Threads of this process that serve requests.
    static int service_threads() {
        int count = 0;
        std::error_code gone;  // a thread may end meanwhile
        for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", gone)) {
            std::ifstream in(task.path() / "comm");
            std::string name;
            count += std::getline(in, name) && name == "penstock-serve" ? 1 : 0;
        }
        return count;
    }
    // The end of the runtime; `after` comes when its service threads have gone.
    template <typename After>
    void end_runtime(const After& after) {
        ASSERT_GT(service_threads(), 0);
        auto ended = std::async(std::launch::async, [this] { rt.reset(); });
        EXPECT_TRUE(soon([] { return service_threads() == 0; })) << "they wait for the source";
        after();
        ended.get();
    }

    const temporary_folder folder;
    const std::string path = folder / "data";
    const std::vector<std::uint8_t> bytes = test::pattern(9, size);
    faulty_environment disk;
    host::hub shared;
    closed_door door;
    options o;
    host::runtime_hooks hooks;
    std::unique_ptr<runtime> rt;
};

}  // namespace

TEST_F(silent_sources, a_read_comes_from_the_file_when_the_store_has_had_its_time) {
    make_with_store(1'000'000);
    const int fd = rt->open("data");
    expect_page(fd, 3);
    EXPECT_GT(door.now_waiting(), 0);
    EXPECT_GT(rt->stats().file_reads, 0u);
}

TEST_F(silent_sources, a_load_of_the_tier_comes_from_the_file_when_the_store_has_had_its_time) {
    o.tier_bytes = 32 * page;
    o.window_bytes = 2 << 20;
    make_with_store(1'000'000);
    table_layout layout{.row_bytes = page};
    layout.pieces.push_back({path, 0, size / page});
    std::unique_ptr<table> rows;
    ASSERT_TRUE(table::make(*rt, layout, {}, rows).ok());
    const std::int32_t number = 5;
    ASSERT_EQ(rows->will_need(&number, 1), 0);
    EXPECT_TRUE(soon([&] { return door.now_waiting() > 0; }));
    const int fd = rt->open("data");
    expect_page(fd, 5);
    EXPECT_GT(door.now_waiting(), 0);
    EXPECT_EQ(rt->stats().tier_loads, 1u);
}

TEST_F(silent_sources, the_end_does_not_wait_for_a_store) {
    hooks.drain_ns = 400'000'000'000;  // longer than the test waits for the threads
    o.request_wait_ms = 300;
    make_with_store(600'000'000'000);
    const int fd = rt->open("data");
    std::uint8_t byte = 0;
    EXPECT_EQ(rt->read(fd, &byte, 1, 0), -ETIMEDOUT);
    EXPECT_TRUE(soon([&] { return door.now_waiting() > 0; }));
    end_runtime([&] { door.open(); });
}

TEST_F(silent_sources, the_end_does_not_wait_for_a_buffer) {
    hooks.drain_ns = 400'000'000'000;
    hooks.frame_copy_wait_ns = 600'000'000'000;
    o.request_wait_ms = 300;
    silent_buffer source;
    shared.frames.enter(source);
    host::file_facts facts;
    const int found = disk.find(-1, path);
    ASSERT_EQ(disk.facts(found, facts), 0);
    disk.close(found);
    shared.frames.known.add(host::key_of(facts.identity));
    rt = test::make_runtime(o, hooks);
    const int fd = rt->open("data");
    std::uint8_t byte = 0;
    EXPECT_EQ(rt->read(fd, &byte, 1, 0), -ETIMEDOUT);
    EXPECT_EQ(source.begun, 1);
    end_runtime([] {});
    shared.frames.leave(source);
}

}  // namespace penstock::fault
