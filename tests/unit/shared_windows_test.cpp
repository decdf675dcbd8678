// Windows of a runtime of several devices: the memory behind them is mapped and exposed once.
#include "fault/faulty_environment.hpp"
#include "penstock/engine/window.hpp"
#include "service/window_runs.hpp"
#include "unit/parts_in_memory.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t chunk = engine::window_chunk_bytes, windowed_bytes = 5 * chunk / 2;

class shared_windows : public testing::Test {
protected:
    void make(bool with_leases = true) {
        write_file(path, bytes);
        in_memory.bring_in(path);
        if (with_leases) env.allow_leases();
        hooks.env = &env;
        hooks.windows_on_cpu = true;
        rt = make_runtime(o, hooks);
        file = rt->open_everywhere(path);
        ASSERT_EQ(file.code(), 0);
        env.set({.calls = fault::call_map});
    }
    // Where a device finds the chunk; null: it has no window there.
    [[nodiscard]] const std::byte* place_of(std::uint32_t device, std::uint64_t number) const {
        const engine::cache_view& c = rt->ref(device).view;
        const std::uint64_t word =
            engine::load_relaxed(&c.windows[engine::descriptor_slot(c, file.of(device))]);
        return word == 0 ? nullptr : engine::address_in_window(c, word, number * chunk);
    }
    void expect_right(std::uint32_t device) const {
        std::vector<std::uint8_t> got(bytes.size());
        EXPECT_EQ(read(lane{}, rt->ref(device), file.of(device), got.data(),
                       static_cast<std::int64_t>(got.size()), 0),
                  static_cast<std::int64_t>(got.size()));
        EXPECT_EQ(got, bytes) << device;
    }

    const temporary_folder folder;
    const std::string path = folder / "data";
    parts_in_memory in_memory;
    std::vector<std::uint8_t> bytes = pattern(13, windowed_bytes);
    options o = small_options(folder, 3);
    fault::faulty_environment env;
    host::runtime_hooks hooks;
    std::unique_ptr<runtime> rt;
    shared_file file{};
};

}  // namespace

TEST_F(shared_windows, are_mapped_once_for_all) {
    o.window_bytes = 3 * chunk;  // for all devices together
    make();
    ASSERT_EQ(rt->open_windows(file), static_cast<std::int64_t>(windowed_bytes));
    if (rt->state(0).windows->open_files() == 1 && place_of(0, 0) != place_of(1, 0))
        GTEST_SKIP() << "no leases on this file system";
    EXPECT_EQ(env.calls(), 2u) << "one mapping, and one look at what is in memory";
    for (std::uint64_t number = 0; number < 3; ++number)
        for (std::uint32_t i = 1; i < 3; ++i) EXPECT_EQ(place_of(i, number), place_of(0, number));
    for (std::uint32_t i = 0; i < 3; ++i) {
        expect_right(i);
        EXPECT_EQ(rt->stats(i).file_reads, 0u);
        EXPECT_EQ(rt->stats(i).window_bytes, windowed_bytes);
    }
}

TEST_F(shared_windows, stay_for_the_others_when_one_closes_them) {
    make();
    ASSERT_EQ(rt->open_windows(file), static_cast<std::int64_t>(windowed_bytes));
    rt->state(0).windows->close_all();
    EXPECT_EQ(place_of(0, 0), nullptr);
    expect_right(1);
    expect_right(2);
    EXPECT_EQ(rt->stats(1).file_reads + rt->stats(2).file_reads, 0u);
    EXPECT_EQ(rt->open_windows(file), static_cast<std::int64_t>(windowed_bytes));
    expect_right(0);
}

TEST_F(shared_windows, a_part_that_one_has_is_taken_and_the_rest_is_mapped) {
    make();
    host::runtime_state& last = rt->state(2);
    ASSERT_EQ(last.open_windows(*last.windows, file.of(2), chunk, chunk, nullptr),
              static_cast<std::int64_t>(chunk));
    ASSERT_EQ(rt->open_windows(file.of(0)), static_cast<std::int64_t>(windowed_bytes));
    if (place_of(0, 1) != place_of(2, 1)) GTEST_SKIP() << "no leases on this file system";
    EXPECT_NE(place_of(0, 0), nullptr);
    EXPECT_NE(place_of(0, 2), nullptr);
    EXPECT_EQ(place_of(2, 0), nullptr);
    expect_right(0);
}

TEST_F(shared_windows, of_a_file_that_is_cut_go_for_all) {
    make();
    ASSERT_EQ(rt->open_windows(file), static_cast<std::int64_t>(windowed_bytes));
    if (place_of(0, 0) != place_of(1, 0)) GTEST_SKIP() << "no leases on this file system";
    // The writer waits until no device has a window on the file. The new file has the same size,
    // so that only what it is tells it from the old one.
    bytes = pattern(14, windowed_bytes);
    write_file(path, bytes);
    in_memory.bring_in(path);
    for (std::uint32_t i = 0; i < 3; ++i) EXPECT_EQ(place_of(i, 0), nullptr) << i;
    EXPECT_EQ(rt->close(file), 0);
    file = rt->open_everywhere(path);
    ASSERT_EQ(file.code(), 0);
    ASSERT_EQ(rt->open_windows(file), static_cast<std::int64_t>(windowed_bytes));
    for (std::uint32_t i = 0; i < 3; ++i) expect_right(i);
}

TEST_F(shared_windows, without_a_lease_each_maps_for_itself) {
    make(false);
    ASSERT_EQ(rt->open_windows(file), static_cast<std::int64_t>(windowed_bytes));
    EXPECT_EQ(env.calls(), 6u);
    EXPECT_NE(place_of(0, 0), place_of(1, 0));
    for (std::uint32_t i = 0; i < 3; ++i) expect_right(i);
}

TEST_F(shared_windows, of_all_devices_stay_within_the_budget) {
    o.window_bytes = 2 * chunk;
    make(false);
    // Each maps for itself, so the first takes all.
    EXPECT_EQ(rt->open_windows(file), -ENOSPC);
    EXPECT_NE(place_of(0, 1), nullptr);
    EXPECT_EQ(place_of(0, 2), nullptr);
    EXPECT_EQ(place_of(1, 0), nullptr);
    rt->close_windows();
    EXPECT_EQ(rt->open_windows(file.of(0)), static_cast<std::int64_t>(2 * chunk))
        << "what was closed is given back";
}

TEST(window_runs, are_found_while_they_are_offered_and_live) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(15, 3 * chunk));
    fault::faulty_environment env;
    const auto device = host::make_cpu_device();
    host::window_runs runs(env, *device, 2, 2 * chunk);
    const int found = env.find(-1, folder / "data"), fd = env.open_found(found);
    ASSERT_GE(fd, 0);
    void* address = nullptr;
    ASSERT_EQ(env.map_file(fd, chunk, 2 * chunk, address), 0);
    auto run = std::make_shared<host::exposed_run>(runs, address, 2 * chunk, 1);
    std::string why;
    ASSERT_TRUE(run->expose(2, chunk, why));
    EXPECT_EQ(run->address_of(2), reinterpret_cast<std::uintptr_t>(address) + chunk);
    for (const std::uint64_t other : {0, 1, 3}) EXPECT_EQ(run->address_of(other), 0u);
    EXPECT_EQ(runs.room(), chunk);

    host::file_identity file{.device = 1, .inode = 2, .size_bytes = 3 * chunk};
    EXPECT_EQ(runs.find(file, 2), nullptr) << "not offered yet";
    runs.offer(file, run);
    EXPECT_EQ(runs.find(file, 2), run);
    EXPECT_EQ(runs.find(file, 1), nullptr);
    host::file_identity changed = file;
    changed.changed_ns = 1;
    EXPECT_EQ(runs.find(changed, 2), nullptr) << "another version of the file";
    runs.withdraw(*run);
    EXPECT_EQ(runs.find(file, 2), nullptr);
    runs.withdraw(*run);
    runs.offer(file, run);
    run.reset();
    EXPECT_EQ(runs.find(file, 2), nullptr) << "it has ended";
    EXPECT_EQ(runs.room(), 2 * chunk);
    env.close(fd);
    env.close(found);
}

// Of all lengths, and across the blocks that they are kept by.
TEST(window_runs, are_found_by_each_of_their_chunks) {
    constexpr std::uint64_t most = host::most_run_chunks;
    const temporary_folder folder;
    fault::faulty_environment env;
    const auto device = host::make_cpu_device();
    host::window_runs runs(env, *device, 2, 4 * most * chunk);
    const std::string path = folder / "data";
    write_file(path, {1});
    std::filesystem::resize_file(path, 3 * most * chunk);  // a hole
    const int found = env.find(-1, path), fd = env.open_found(found);
    ASSERT_GE(fd, 0);
    const host::file_identity file{.device = 1, .inode = 2, .size_bytes = 3 * most * chunk};
    std::vector<std::shared_ptr<host::exposed_run>> made;
    const auto offer = [&](std::uint64_t first, std::uint64_t chunks) {
        void* address = nullptr;
        ASSERT_EQ(env.map_file(fd, first * chunk, chunks * chunk, address), 0);
        made.push_back(std::make_shared<host::exposed_run>(runs, address, chunks * chunk, first));
        std::string why;
        ASSERT_TRUE(made.back()->expose(first, chunks * chunk, why));
        runs.offer(file, made.back());
    };
    offer(0, 1), offer(2, 3), offer(most - 1, most), offer(2 * most + 1, 1);
    for (std::uint64_t at = 0; at < 3 * most; ++at) {
        const host::exposed_run* const expected = at == 0             ? made[0].get()
                                                  : at >= 2 && at < 5 ? made[1].get()
                                                  : at >= most - 1 && at < 2 * most - 1
                                                      ? made[2].get()
                                                  : at == 2 * most + 1 ? made[3].get()
                                                                       : nullptr;
        ASSERT_EQ(runs.find(file, at).get(), expected) << at;
    }
    runs.withdraw(*made[2]);
    EXPECT_EQ(runs.find(file, most), nullptr);
    EXPECT_EQ(runs.find(file, 3), made[1]);
    made.clear();
    env.close(fd);
    env.close(found);
}

}  // namespace penstock::test
