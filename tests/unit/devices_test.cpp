// A runtime of several devices: on cpu each of them is a cache in ordinary memory.
#include <mutex>
#include <thread>

#include "fault/faulty_environment.hpp"
#include "penstock/engine/invariants.hpp"
#include "soon.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

options two_caches(const temporary_folder& folder) {
    options o = small_options(folder);
    o.devices = {4, 7};
    return o;
}

// A store between nodes that has nothing, and takes what it gets.
class empty_store final : public host::block_store {
public:
    std::int64_t get(const host::block_key&, std::span<std::byte>, std::uint64_t, bool) override {
        return -ENOENT;
    }
    int put(const host::block_key&, std::span<const std::byte>, bool, std::uint64_t) override {
        return 0;
    }
};

// As a kernel of that device does it.
std::vector<std::uint8_t> read_whole(const runtime_ref& fs, const char* name, std::size_t bytes) {
    std::vector<std::uint8_t> got(bytes);
    const int fd = open(lane{}, fs, name);
    EXPECT_GE(fd, 0) << error_text(fd);
    EXPECT_EQ(read(lane{}, fs, fd, got.data(), static_cast<std::int64_t>(bytes), 0),
              static_cast<std::int64_t>(bytes));
    EXPECT_EQ(close(lane{}, fs, fd), 0);
    return got;
}

}  // namespace

TEST(devices, one_is_the_default) {
    const temporary_folder folder;
    const auto rt = make_runtime(small_options(folder, 1));
    EXPECT_EQ(rt->device_count(), 1u);
    EXPECT_EQ(rt->ref().device, 0u);
    EXPECT_TRUE(rt->settings().devices.empty());
}

TEST(devices, each_has_a_cache_of_its_own) {
    const temporary_folder folder;
    const auto bytes = pattern(1, 20 * page);
    write_file(folder / "data", bytes);
    write_file(folder / "other", bytes);  // which no neighbour has
    const auto rt = make_runtime(two_caches(folder));
    ASSERT_EQ(rt->device_count(), 2u);
    for (std::uint32_t i = 0; i < 2; ++i) {
        EXPECT_EQ(rt->ref(i).device, i);
        EXPECT_EQ(*rt->settings(i).cache_bytes, 64 * page) << "for each, not divided";
    }
    EXPECT_EQ(rt->settings(0).device, 4);
    EXPECT_EQ(rt->settings(1).device, 7);
    EXPECT_NE(rt->ref(0).view.frames, rt->ref(1).view.frames);
    EXPECT_EQ(rt->ref().view.frames, rt->ref(0).view.frames);

    EXPECT_EQ(read_whole(rt->ref(1), "data", bytes.size()), bytes);
    EXPECT_EQ(rt->stats(0).misses, 0u);
    EXPECT_EQ(rt->stats(1).misses, 20u);
    EXPECT_EQ(read_whole(rt->ref(0), "other", bytes.size()), bytes);
    EXPECT_EQ(rt->stats(0).misses, 20u);
    EXPECT_EQ(rt->stats().misses, rt->stats(0).misses + rt->stats(1).misses);
    EXPECT_EQ(rt->stats().device_bytes, rt->stats(0).device_bytes + rt->stats(1).device_bytes);
    std::uint64_t requests = 0;
    for (const std::uint64_t bucket : rt->stats().latency_ns) requests += bucket;
    EXPECT_EQ(requests, rt->stats().requests) << "the histograms are summed too";
}

TEST(devices, calls_of_the_host_use_the_first) {
    const temporary_folder folder, elsewhere;
    const auto bytes = pattern(2, 3 * page);
    write_file(elsewhere / "data", bytes);
    options o = two_caches(folder);
    o.writable = true;
    const auto rt = make_runtime(o);
    const std::string path = elsewhere / "data";
    EXPECT_EQ(open(lane{}, rt->ref(1), path.c_str()), -EACCES);
    const int fd = rt->open(path);
    ASSERT_GE(fd, 0);
    std::vector<std::uint8_t> got(bytes.size());
    EXPECT_EQ(rt->read(fd, got.data(), static_cast<std::int64_t>(got.size()), 0),
              static_cast<std::int64_t>(got.size()));
    EXPECT_EQ(got, bytes);
    EXPECT_EQ(rt->stats(1).bytes_read, 0u);
    EXPECT_EQ(read_whole(rt->ref(1), path.c_str(), bytes.size()), bytes)
        << "open allows the file for kernels of every device";
    EXPECT_EQ(rt->close(fd), 0);
}

TEST(devices, a_name_that_is_taken_away_is_so_for_all) {
    const temporary_folder folder;
    const std::string name = folder / "data";
    write_file(name, pattern(3, page));
    write_file(folder / "other", pattern(4, page));
    options o = two_caches(folder);
    o.writable = true;
    const auto rt = make_runtime(o);
    // Held open, so that a cache knows the name without asking its host.
    const int held = open(lane{}, rt->ref(1), name.c_str());
    ASSERT_GE(held, 0);
    EXPECT_EQ(rt->unlink(name), 0);
    EXPECT_EQ(open(lane{}, rt->ref(1), name.c_str()), -ENOENT);
    EXPECT_EQ(close(lane{}, rt->ref(1), held), 0);
    EXPECT_EQ(rt->rename(folder / "other", name), 0);
    EXPECT_EQ(read_whole(rt->ref(1), name.c_str(), page), pattern(4, page));
}

TEST(devices, allowed_for_one_is_allowed_for_all) {
    const temporary_folder folder, elsewhere;
    write_file(elsewhere / "data", pattern(5, page));
    const std::string path = elsewhere / "data";
    options o = two_caches(folder);
    o.writable = true;
    const auto rt = make_runtime(o);
    EXPECT_EQ(rt->allow(path), 0);
    for (std::uint32_t i = 0; i < 2; ++i)
        EXPECT_EQ(read_whole(rt->ref(i), path.c_str(), page), pattern(5, page));
    EXPECT_EQ(rt->unlink(path), 0);
    write_file(path, pattern(6, page));
    for (std::uint32_t i = 0; i < 2; ++i)
        EXPECT_EQ(open(lane{}, rt->ref(i), path.c_str()), -EACCES) << i;
}

TEST(devices, an_interrupt_ends_kernels_of_all) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(6, page));
    const auto rt = make_runtime(two_caches(folder));
    rt->interrupt();
    for (std::uint32_t i = 0; i < 2; ++i)
        EXPECT_EQ(open(lane{}, rt->ref(i), "data"), -ECANCELED) << i;
    rt->resume();
    for (std::uint32_t i = 0; i < 2; ++i)
        EXPECT_EQ(read_whole(rt->ref(i), "data", page), pattern(6, page));
}

TEST(devices, health_names_the_device) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(7, page));
    std::mutex mutex;
    std::vector<std::string> log;
    options o = two_caches(folder);
    o.log = [&](const std::string& line) {
        const std::lock_guard lock(mutex);
        log.push_back(line);
    };
    const auto rt = make_runtime(o);
    EXPECT_TRUE(rt->health().ok());
    for (auto& service : rt->state(1).services) service->kill();
    EXPECT_TRUE(soon([&] { return !rt->health().ok(); }));
    EXPECT_EQ(rt->health().code, -ESHUTDOWN);
    EXPECT_EQ(rt->health().message.rfind("cache 1: ", 0), 0u) << rt->health().message;
    EXPECT_EQ(read_whole(rt->ref(0), "data", page), pattern(7, page)) << "the other one goes on";
    const std::lock_guard lock(mutex);
    ASSERT_FALSE(log.empty());
    EXPECT_EQ(log.front().rfind("cache 1: ", 0), 0u) << log.front();
}

TEST(devices, a_file_that_one_cannot_open_stays_open_on_none) {
    const temporary_folder folder;
    fault::faulty_environment env;
    host::runtime_hooks hooks;
    hooks.env = &env;
    const auto rt = make_runtime(two_caches(folder), hooks);
    int failures = 0;
    for (std::uint64_t nth = 1; nth < 12; ++nth) {
        const std::string name = folder / std::to_string(nth);
        write_file(name, pattern(nth, 100));
        env.set({.nth = nth, .for_ever = true, .error = -EIO});
        const shared_file file = rt->open_everywhere(name);
        env.clear();
        if (file.code() != 0) ++failures;
        else EXPECT_EQ(rt->close(file), 0);
        for (std::uint32_t i = 0; i < 2; ++i)
            EXPECT_EQ(engine::check_invariants(rt->ref(i).view, {}).rule, nullptr)
                << "a reference is left on " << i << " after call " << nth;
    }
    EXPECT_GT(failures, 2) << "of either device";
}

// The last of them could.
TEST(devices, a_close_that_could_not_write_on_one_is_an_error) {
    const temporary_folder folder;
    fault::faulty_environment env;
    host::runtime_hooks hooks;
    hooks.env = &env;
    options o = two_caches(folder);
    o.writable = true;
    const auto rt = make_runtime(o, hooks);
    const shared_file file = rt->open_everywhere("data", open_read_write | open_create);
    ASSERT_EQ(file.code(), 0);
    const auto bytes = pattern(5, page);
    const runtime_ref fs = rt->ref(0);
    ASSERT_EQ(write(lane{}, fs, file.of(fs), bytes.data(), page, 0),
              static_cast<std::int64_t>(page));
    env.set({.calls = fault::call_write, .nth = 1, .for_ever = true, .error = -ENOSPC});
    EXPECT_EQ(rt->close(file), -ENOSPC);
    env.clear();
}

// The first of them has the threads and the blocks of all.
TEST(devices, of_a_store_are_counted_once) {
    const temporary_folder folder;
    const auto bytes = pattern(3, 4 * page);
    write_file(folder / "data", bytes);
    let_files_settle();
    fault::faulty_environment env;
    env.say_cached(0);
    host::runtime_hooks hooks;
    hooks.env = &env;
    hooks.make_store = [] { return std::make_unique<empty_store>(); };
    hooks.set_blocks = [](host::block_settings& s) { s.local_files = true; };
    const auto rt = make_runtime(two_caches(folder), hooks);
    EXPECT_EQ(read_whole(rt->ref(1), "data", bytes.size()), bytes);
    EXPECT_TRUE(soon([&] { return rt->stats().store_puts != 0; }));
    EXPECT_EQ(rt->stats().store_puts, 1u);
    EXPECT_EQ(rt->stats().store_misses, 1u);
}

TEST(devices, view_status_is_of_all) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(8, page));
    const auto rt = make_runtime(two_caches(folder));
    const runtime_ref fs = rt->ref(1);
    const int fd = open(lane{}, fs, "data");
    const view<std::uint8_t> bytes(fs, fd);
    EXPECT_EQ(bytes[page + 5], 0);
    EXPECT_EQ(rt->view_status().code, -ERANGE);
    EXPECT_EQ(rt->view_status().message.rfind("cache 1: ", 0), 0u) << rt->view_status().message;
    EXPECT_NE(rt->view_status().message.find("data"), std::string::npos);
    rt->clear_view_status();
    EXPECT_TRUE(rt->view_status().ok());
    EXPECT_EQ(close(lane{}, fs, fd), 0);
}

TEST(devices, what_was_made_goes_if_one_cannot_be_made) {
    const temporary_folder folder;
    fault::faulty_environment env;
    host::runtime_hooks hooks;
    hooks.env = &env;
    env.set({.calls = fault::every_call});
    make_runtime(two_caches(folder), hooks);
    const std::uint64_t calls = env.calls();
    ASSERT_GE(calls, 2u);
    EXPECT_EQ(env.handles(), 0);
    for (std::uint64_t nth = 1; nth <= calls; ++nth) {
        env.set({.calls = fault::every_call, .nth = nth, .error = -EMFILE});
        std::unique_ptr<runtime> rt;
        const status s = runtime::make(two_caches(folder), hooks, rt);
        EXPECT_EQ(s.code, -EMFILE);
        EXPECT_EQ(rt, nullptr);
        EXPECT_EQ(s.message.rfind(nth <= calls / 2 ? "cache 0: " : "cache 1: ", 0), 0u)
            << s.message;
        EXPECT_EQ(env.handles(), 0) << "after call " << nth;
    }
}

TEST(devices, caches_of_a_process_reach_each_other) {
    const temporary_folder folder;
    const auto rt = make_runtime(two_caches(folder));
    host::cache_device& from = *rt->state(0).device;
    const host::device_link link = from.link_to(*rt->state(1).device);
    EXPECT_EQ(link.kind, host::link_kind::same_memory);
    EXPECT_FALSE(link.reason.empty());
    std::string why;
    EXPECT_TRUE(from.reach(*rt->state(1).device, why)) << why;
    EXPECT_TRUE(from.reach(*rt->state(1).device, why)) << "again is no error";
}

TEST(devices, a_gpu_that_is_named_twice_is_refused) {
    const temporary_folder folder;
    options o = small_options(folder);
    o.where = backend::gpu;
    o.devices = {0, 0};
    std::unique_ptr<runtime> rt;
    const status s = runtime::make(o, rt);
    EXPECT_EQ(s.code, -EINVAL);
    EXPECT_EQ(s.message, "devices: GPU 0 is named twice; name each GPU once");
}

}  // namespace penstock::test
