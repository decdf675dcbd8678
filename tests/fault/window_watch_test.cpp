// Windows of files that have no lease: which files may have one at all, and a server that does not
// say how large a file is holds up no heartbeat.
#include <sys/resource.h>

#include <cerrno>
#include <new>
#include <thread>

#include "fault/scenario.hpp"
#include "soon.hpp"
#include "penstock/engine/window.hpp"
#include "service/windows.hpp"
#include "unit/parts_in_memory.hpp"

namespace penstock::fault {

namespace {

constexpr std::uint64_t chunk = engine::window_chunk_bytes, size = chunk + 5000;

// One file whose pages are in memory.
class windowed_file : public testing::Test {
protected:
    windowed_file() {
        test::write_file(path, test::pattern(3, size));
        in_memory.bring_in(path);
    }

    const temporary_folder folder;
    const std::string path = folder / "data";
    test::parts_in_memory in_memory;
};

// A set of its own, in which the same file may have many windows.
class window_sets : public windowed_file {
protected:
    static constexpr std::uint32_t slots = 64;

    window_sets() {
        view.windows = words.data();
        view.window_chunks = chunks.data();
        env.allow_leases();
        const int found = env.find(-1, path);
        fd = env.open_found(found);
        env.close(found);
    }
    ~window_sets() override { env.close(fd); }
    void make(std::size_t sets = 1) {
        set = std::make_unique<host::window_set>(
            env, *device, view, chunks.size(),
            host::window_rules{
                .runs = std::make_shared<host::window_runs>(env, *device, 1, slots * size),
                .sets = sets});
    }
    std::int64_t open_in(std::uint32_t slot) {
        return set->open({slot, 1, fd, size}, 0, size, note);
    }
    std::uint32_t windows_until_refused() {
        for (std::uint32_t slot = 0; slot < slots; ++slot)
            if (open_in(slot) != static_cast<std::int64_t>(size)) return slot;
        return slots;
    }

    faulty_environment env;
    const std::unique_ptr<host::cache_device> device = host::make_cpu_device();
    std::array<std::uint64_t, slots> words{};
    std::array<std::uint64_t, 4 * slots> chunks{};
    engine::cache_view view{};
    int fd = -1;
    std::string note;
    std::unique_ptr<host::window_set> set;
};

class limit_on_handles {
public:
    explicit limit_on_handles(rlim_t handles) {
        EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
        const rlimit less{handles, before_.rlim_max};
        EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &less), 0);
    }
    ~limit_on_handles() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
    limit_on_handles(const limit_on_handles&) = delete;
    limit_on_handles& operator=(const limit_on_handles&) = delete;

private:
    rlimit before_{};
};

// The files lie on a server, which says how large they are only as long as it answers.
class silent_server final : public faulty_environment {
public:
    silent_server() { say_changes_elsewhere(); }
    std::int64_t size_bytes(int handle) override {
        std::unique_lock lock(mutex_);
        ++asking_;
        changed_.wait(lock, [this] { return !silent_; });
        --asking_;
        return faulty_environment::size_bytes(handle);
    }
    int take_lease(int) override { return -EINVAL; }
    int resident(void* address, std::uint64_t bytes, std::uint64_t piece_bytes,
                 std::vector<bool>& out) override {
        if (has_no_memory) throw std::bad_alloc();
        return faulty_environment::resident(address, bytes, piece_bytes, out);
    }
    bool has_no_memory = false;
    void set_silent(bool silent) {
        const std::lock_guard lock(mutex_);
        silent_ = silent;
        changed_.notify_all();
    }
    [[nodiscard]] int asking() {
        const std::lock_guard lock(mutex_);
        return silent_ ? asking_ : 0;
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool silent_ = false;
    int asking_ = 0;
};

class windows_of_a_server : public windowed_file {
protected:
    void make() {
        options o = test::small_options(folder, 1);
        o.window_bytes = 64u << 20;
        o.request_wait_ms = 600000;
        hooks.env = &env;
        hooks.windows_on_cpu = true;
        rt = test::make_runtime(o, hooks);
    }
    [[nodiscard]] std::uint64_t heartbeat() const {
        return atomic_load<order::relaxed, scope::system>(&rt->state().control->heartbeat);
    }
    bool beats() {
        const std::uint64_t before = heartbeat();
        return soon([&] { return heartbeat() > before + 2; });
    }
    void TearDown() override { env.set_silent(false); }

    silent_server env;
    host::runtime_hooks hooks;
    std::unique_ptr<runtime> rt;
};

}  // namespace

// Else a kernel would go on with old bytes after a cut that no look finds.
TEST_F(window_sets, a_file_that_cannot_be_watched_has_no_window) {
    make();
    env.set({.calls = call_open_found, .nth = 1, .for_ever = true, .error = -EMFILE});
    EXPECT_EQ(open_in(5), -EMFILE);
    EXPECT_NE(note.find("ulimit -n"), std::string::npos) << note;
    EXPECT_EQ(words[5], 0u);
    ASSERT_EQ(::truncate(path.c_str(), size / 2), 0);
    set->watch();
    EXPECT_EQ(set->open_files(), 0u);
    env.clear();
    ASSERT_EQ(::truncate(path.c_str(), size), 0);
    in_memory.bring_in(path);
    EXPECT_EQ(open_in(5), static_cast<std::int64_t>(size));
}

TEST_F(window_sets, of_more_files_than_have_handles_there_are_none) {
    const limit_on_handles limit(256);
    make();
    EXPECT_EQ(windows_until_refused(), 256u / 8);
    EXPECT_EQ(set->open_files(), 256u / 8);
    EXPECT_EQ(open_in(0), static_cast<std::int64_t>(size)) << "it has its handle";
    set->close_all();
    EXPECT_EQ(open_in(40), static_cast<std::int64_t>(size)) << "handles were given back";
}

TEST_F(window_sets, of_several_devices_share_the_handles) {
    const limit_on_handles limit(256);
    make(4);
    EXPECT_EQ(windows_until_refused(), 256u / 8 / 4);
}

// Each would take an eighth of the limit, until the program itself could open nothing.
TEST_F(windowed_file, of_several_runtimes_share_the_handles) {
    constexpr std::size_t limit = 256, files = 40;
    for (std::size_t i = 0; i < files; ++i) {
        test::write_file(folder / std::to_string(i), test::pattern(i, 5000));
        in_memory.bring_in(folder / std::to_string(i));
    }
    const limit_on_handles less(limit);
    faulty_environment env;
    env.allow_leases();
    host::hub shared;
    options o = test::small_options(folder, 1);
    o.window_bytes = 64u << 20;
    host::runtime_hooks hooks;
    hooks.env = &env;
    hooks.shared = &shared;
    hooks.windows_on_cpu = true;
    std::vector<std::unique_ptr<runtime>> all;
    const auto windows_of = [&](runtime& rt) {
        std::size_t count = 0;
        for (std::size_t i = 0; i < files; ++i) {
            const int fd = rt.open(std::to_string(i));
            const std::int64_t got = rt.open_windows(fd);
            EXPECT_TRUE(got == 5000 || got == -EMFILE) << got;
            count += got == 5000 ? 1 : 0;
            EXPECT_EQ(rt.close(fd), 0);
        }
        return count;
    };
    std::size_t count = 0;
    for (int i = 0; i < 3; ++i) {
        all.push_back(test::make_runtime(o, hooks));
        count += windows_of(*all.back());
    }
    EXPECT_EQ(count, limit / 8);
    for (const auto& each : all) each->close_windows();
    EXPECT_GT(windows_of(*all.back()), 0u) << "handles were given back";
}

TEST_F(windows_of_a_server, no_beat_waits_for_the_server) {
    make();
    const int fd = rt->open("data");
    ASSERT_EQ(rt->open_windows(fd), static_cast<std::int64_t>(size));
    ASSERT_EQ(rt->state().windows->open_files(), 1u);
    env.set_silent(true);
    ASSERT_TRUE(soon([&] { return env.asking() > 0; })) << "its size is not looked at";
    EXPECT_TRUE(beats());
    env.set_silent(false);
    ASSERT_EQ(::truncate(path.c_str(), size / 2), 0);
    EXPECT_TRUE(soon([&] { return rt->state().windows->open_files() == 0; }));
    EXPECT_EQ(rt->close(fd), 0);
}

TEST_F(windows_of_a_server, stay_while_the_file_is_as_long_as_it_was) {
    make();
    const int fd = rt->open("data");
    ASSERT_EQ(rt->open_windows(fd), static_cast<std::int64_t>(size));
    env.set({.calls = call_facts});
    EXPECT_TRUE(soon([&] { return env.calls() >= 3; })) << "its size is not looked at";
    EXPECT_TRUE(beats());
    EXPECT_EQ(rt->state().windows->open_files(), 1u);
    EXPECT_EQ(rt->close(fd), 0);
}

TEST_F(windows_of_a_server, no_beat_waits_for_a_window_that_is_being_opened) {
    make();
    const int fd = rt->open("data");
    env.set_silent(true);
    std::thread opener([&] { rt->open_windows(fd); });
    EXPECT_TRUE(soon([&] { return env.asking() > 0; }));
    EXPECT_TRUE(beats());
    env.set_silent(false);
    opener.join();
    EXPECT_EQ(rt->close(fd), 0);
}

TEST_F(windows_of_a_server, an_exception_leaves_no_file_open) {
    make();
    const int fd = rt->open("data");
    env.has_no_memory = true;
    EXPECT_EQ(rt->open_windows(fd), -ENOMEM);
    env.has_no_memory = false;
    EXPECT_EQ(rt->open_windows(fd), static_cast<std::int64_t>(size));
    rt->close_windows();
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(engine::check_invariants(rt->ref().view, {}).rule, nullptr) << "a reference is left";
}

TEST_F(windows_of_a_server, every_handle_is_closed) {
    make();
    const int fd = rt->open("data");
    const int before = env.handles();
    for (int round = 0; round < 3; ++round) {
        ASSERT_EQ(rt->open_windows(fd), static_cast<std::int64_t>(size));
        EXPECT_GT(env.handles(), before);
        rt->close_windows();
        EXPECT_TRUE(soon([&] { return env.handles() == before; })) << env.handles();
    }
    ASSERT_EQ(rt->open_windows(fd), static_cast<std::int64_t>(size));
    EXPECT_EQ(rt->close(fd), 0);
    rt.reset();
    EXPECT_EQ(env.handles(), 0);
}

}  // namespace penstock::fault
