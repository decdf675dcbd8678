// The runtime and the file calls on the cpu back end, one behaviour a test.
#include <atomic>
#include <thread>

#include "fault/faulty_environment.hpp"
#include "soon.hpp"
#include "unit/support.hpp"

namespace penstock::test {

TEST(runtime, reads_what_the_file_holds) {
    const temporary_folder folder;
    const auto bytes = pattern(1, 300001);
    write_file(folder / "data", bytes);
    const auto rt = make_runtime(small_options(folder));
    const int fd = open(lane{}, rt->ref(), "data");
    ASSERT_GE(fd, 0) << error_text(fd);
    std::vector<std::uint8_t> got(bytes.size() + 100);
    EXPECT_EQ(read(lane{}, rt->ref(), fd, got.data(), static_cast<std::int64_t>(got.size()), 0),
              300001);
    got.resize(bytes.size());
    EXPECT_EQ(got, bytes);
    EXPECT_EQ(read(lane{}, rt->ref(), fd, got.data(), 10, 300001), 0);
    EXPECT_EQ(close(lane{}, rt->ref(), fd), 0);
    EXPECT_EQ(close(lane{}, rt->ref(), fd), -EBADF);
}

TEST(runtime, closed_file_keeps_its_pages) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(2, 20 * 4096));
    let_files_settle();
    const auto rt = make_runtime(small_options(folder));
    std::vector<std::uint8_t> buffer(20 * 4096);
    for (int round = 0; round < 3; ++round) {
        const int fd = open(lane{}, rt->ref(), "data");
        ASSERT_GE(fd, 0);
        EXPECT_EQ(read(lane{}, rt->ref(), fd, buffer.data(), 20 * 4096, 0), 20 * 4096);
        EXPECT_EQ(close(lane{}, rt->ref(), fd), 0);
    }
    EXPECT_EQ(rt->stats().misses, 20u);
    EXPECT_EQ(rt->stats().file_reads, 20u);
}

TEST(runtime, a_change_on_the_host_is_seen_after_reopen) {
    const temporary_folder folder;
    const auto rt = make_runtime(small_options(folder));
    for (std::uint64_t seed = 1; seed < 20; ++seed) {
        const auto bytes = pattern(seed, 5000 + 4096 * (seed % 3));
        write_file(folder / "data", bytes);
        const int fd = open(lane{}, rt->ref(), "data");
        ASSERT_GE(fd, 0) << error_text(fd);
        std::vector<std::uint8_t> got(bytes.size());
        EXPECT_EQ(read(lane{}, rt->ref(), fd, got.data(), static_cast<std::int64_t>(got.size()), 0),
                  static_cast<std::int64_t>(got.size()));
        EXPECT_EQ(got, bytes) << "seed " << seed;
        EXPECT_EQ(close(lane{}, rt->ref(), fd), 0);
    }
}

TEST(runtime, many_opens_of_one_name_ask_the_host_once) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(3, 100));
    options o = small_options(folder, 1);
    o.worker_threads = 4;
    const auto rt = make_runtime(o);
    const int held = open(lane{}, rt->ref(), "data");
    std::atomic<int> wrong{0};
    launch(*rt, 100000, [&](const auto& g, const runtime_ref& fs, std::uint64_t) {
        const int fd = open(g, fs, "data");
        if (fd < 0 || fd == held || close(g, fs, fd) != 0) ++wrong;
    });
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(rt->stats().open_requests, 1u);
    EXPECT_EQ(close(lane{}, rt->ref(), held), 0);
}

TEST(runtime, map_pins_and_unmap_releases) {
    const temporary_folder folder;
    const auto bytes = pattern(4, 200 * 4096);
    write_file(folder / "data", bytes);
    options o = small_options(folder);
    o.frame_wait_ms = 100;
    const auto rt = make_runtime(o);
    const int fd = open(lane{}, rt->ref(), "data");
    std::vector<mapping> held;
    for (int i = 0; i < 64; ++i) held.push_back(map(lane{}, rt->ref(), fd, i * 4096 + 5, 1 << 20));
    for (int i = 0; i < 64; ++i) {
        ASSERT_EQ(held[i].bytes, 4096 - 5);
        EXPECT_EQ(std::memcmp(held[i].data, &bytes[i * 4096 + 5], 4091), 0);
    }
    const mapping refused = map(lane{}, rt->ref(), fd, 100 * 4096, 1);
    EXPECT_EQ(refused.bytes, -ENOBUFS);
    EXPECT_EQ(unmap(lane{}, rt->ref(), held[7]), 0);
    EXPECT_EQ(unmap(lane{}, rt->ref(), held[7]), -EINVAL);
    const mapping granted = map(lane{}, rt->ref(), fd, 100 * 4096, 1);
    EXPECT_EQ(granted.bytes, 1);
    EXPECT_EQ(unmap(lane{}, rt->ref(), granted), 0);
    for (int i = 0; i < 64; ++i) {
        if (i == 7) continue;
        EXPECT_EQ(unmap(lane{}, rt->ref(), held[i]), 0);
    }
    EXPECT_EQ(close(lane{}, rt->ref(), fd), 0);
}

TEST(runtime, wrong_arguments_are_refused) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(5, 100));
    std::filesystem::create_directory(folder / "directory");
    const auto rt = make_runtime(small_options(folder));
    const runtime_ref fs = rt->ref();
    const lane g;
    char buffer[8];
    EXPECT_EQ(open(g, fs, nullptr), -EFAULT);
    EXPECT_EQ(open(g, fs, ""), -ENOENT);
    EXPECT_EQ(open(g, fs, "absent"), -ENOENT);
    EXPECT_EQ(open(g, fs, "directory"), -EISDIR);
    EXPECT_EQ(open(g, fs, "data", 4), -EINVAL);
    EXPECT_EQ(open(g, fs, "data", open_write), -EROFS);
    EXPECT_EQ(open(g, fs, std::string(5000, 'a').c_str()), -ENAMETOOLONG);
    EXPECT_EQ(open(g, fs, "/etc/hostname"), -EACCES);
    EXPECT_EQ(open(g, fs, "../../etc/hostname"), -EACCES);
    const int fd = open(g, fs, "data");
    ASSERT_GE(fd, 0);
    for (const int bad : {-1, fd + 1, 0x7fffffff, fd ^ (1 << 21)}) {
        EXPECT_EQ(read(g, fs, bad, buffer, 1, 0), -EBADF) << bad;
        EXPECT_EQ(map(g, fs, bad, 0, 1).bytes, -EBADF) << bad;
        EXPECT_EQ(prefetch(g, fs, bad, 0, 1), -EBADF) << bad;
        EXPECT_EQ(close(g, fs, bad), -EBADF) << bad;
    }
    EXPECT_EQ(read(g, fs, fd, buffer, -1, 0), -EINVAL);
    EXPECT_EQ(read(g, fs, fd, buffer, 1, -1), -EINVAL);
    EXPECT_EQ(read(g, fs, fd, buffer, INT64_MAX, 1), -EINVAL);
    EXPECT_EQ(read(g, fs, fd, nullptr, 1, 0), -EINVAL);
    EXPECT_EQ(read(g, fs, fd, buffer, 0, 0), 0);
    EXPECT_EQ(read(g, fs, fd, buffer, 8, INT64_MAX - 8), 0);
    EXPECT_EQ(close(g, fs, fd), 0);
}

TEST(runtime, an_interrupt_releases_waiting_groups) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(6, 200 * 4096));
    options o = small_options(folder);
    o.frame_wait_ms = 600000;
    const auto rt = make_runtime(o);
    const int fd = open(lane{}, rt->ref(), "data");
    std::vector<mapping> held;
    for (int i = 0; i < 64; ++i) held.push_back(map(lane{}, rt->ref(), fd, i * 4096, 4096));
    std::atomic<std::int64_t> result{0};
    std::thread waiter([&] { result = map(lane{}, rt->ref(), fd, 100 * 4096, 1).bytes; });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto start = std::chrono::steady_clock::now();
    rt->interrupt();
    waiter.join();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(5))
        << "waited to the end";
    EXPECT_EQ(result, -ECANCELED);
    rt->resume();
    for (const mapping& m : held) EXPECT_EQ(unmap(lane{}, rt->ref(), m), 0);
    EXPECT_EQ(map(lane{}, rt->ref(), fd, 100 * 4096, 1).bytes, 1);
}

// What broke it first is the reason of all that follows, and the last write-back waits for nothing.
TEST(runtime, keeps_the_first_thing_that_broke_it) {
    const temporary_folder folder;
    std::atomic<int> lines{0};
    options o = small_options(folder, 1);
    o.log = [&](const std::string& line) {
        if (line == "first" || line == "second") ++lines;
    };
    const auto rt = make_runtime(o);
    host::runtime_state& state = rt->state();
    EXPECT_TRUE(state.break_with(-EIO, "first"));
    EXPECT_FALSE(state.break_with(-ENODEV, "second"));
    EXPECT_EQ(rt->health().code, -EIO);
    EXPECT_EQ(rt->health().message, "first");
    EXPECT_EQ(lines, 1);
    const auto code_of_waits = [&] {
        return atomic_load<order::relaxed, scope::system>(&state.control->abort_code);
    };
    EXPECT_EQ(code_of_waits(), -EIO);
    state.begin_last_write_back();
    EXPECT_EQ(code_of_waits(), -EIO);
}

TEST(runtime, has_its_monitor_look_at_once) {
    const temporary_folder folder;
    host::runtime_hooks hooks;
    hooks.beat_ns = 3'600'000'000'000;
    const auto rt = make_runtime(small_options(folder, 1), hooks);
    const auto heartbeat = [&] {
        return atomic_load<order::relaxed, scope::system>(&rt->state().control->heartbeat);
    };
    for (int i = 0; i < 3; ++i) {
        const std::uint64_t before = heartbeat();
        rt->state().call_monitor();
        EXPECT_TRUE(soon([&] { return heartbeat() > before; })) << i;
    }
}

// The slot of the file may be another one's by now.
TEST(runtime, names_no_file_for_an_error_of_an_earlier_life_of_its_slot) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(1, 2 * page));
    const auto rt = make_runtime(small_options(folder, 1));
    const int fd = rt->open("data");
    const engine::cache_view& c = rt->ref().view;
    const std::uint32_t generation = engine::descriptor_generation(fd);
    for (const std::uint32_t of : {generation, generation + 1}) {
        *c.fault = {.claimed = 1,
                    .slot = engine::descriptor_slot(c, fd),
                    .generation = of,
                    .offset = page,
                    .code = -EIO,
                    .row = 0,
                    .is_row = 0};
        const status s = rt->view_status();
        EXPECT_EQ(s.code, -EIO);
        EXPECT_EQ(s.message.find("data") != std::string::npos, of == generation) << s.message;
        rt->clear_view_status();
    }
}

// Each close that wrote everything ends what the log knows of the file.
TEST(runtime, says_anew_what_could_not_be_written_after_a_close_that_could) {
    const temporary_folder folder;
    fault::faulty_environment env;
    host::runtime_hooks hooks;
    hooks.env = &env;
    std::atomic<int> lines{0};
    options o = small_options(folder, 1);
    o.writable = true;
    o.log = [&](const std::string& line) {
        if (line.find("data") != std::string::npos) ++lines;
    };
    const auto rt = make_runtime(o, hooks);
    const auto bytes = pattern(1, page);
    for (int round = 1; round < 4; ++round) {
        const int fd = rt->open("data", open_read_write | open_create);
        for (int i = 0; i < 3; ++i) {
            ASSERT_EQ(rt->write(fd, bytes.data(), page, 0), static_cast<std::int64_t>(page));
            env.set({.calls = fault::call_write, .nth = 1, .error = -EIO});
            EXPECT_EQ(rt->msync(fd, 0, page), -EIO);
            env.clear();
        }
        EXPECT_EQ(lines, round) << "one for each time that it was open";
        rt->close(fd);  // which tells of the errors again
    }
}

TEST(runtime, counts_what_was_synced_and_what_could_not_be_written) {
    const temporary_folder folder;
    fault::faulty_environment env;
    host::runtime_hooks hooks;
    hooks.env = &env;
    options o = small_options(folder, 1);
    o.writable = true;
    const auto rt = make_runtime(o, hooks);
    const int fd = rt->open("data", open_read_write | open_create);
    const auto bytes = pattern(1, 100 * page);
    ASSERT_EQ(rt->write(fd, bytes.data(), page, 0), static_cast<std::int64_t>(page));
    EXPECT_EQ(rt->fsync(fd), 0);
    EXPECT_EQ(rt->stats().file_syncs, 1u);
    EXPECT_EQ(rt->stats().file_write_errors, 0u);
    ASSERT_EQ(rt->write(fd, bytes.data(), page, 0), static_cast<std::int64_t>(page));
    env.set({.calls = fault::call_write, .nth = 1, .error = -EIO});
    EXPECT_EQ(rt->fsync(fd), -EIO);
    env.clear();
    EXPECT_EQ(rt->stats().file_write_errors, 1u);
    const auto all = static_cast<std::int64_t>(bytes.size());
    ASSERT_EQ(rt->write(fd, bytes.data(), all, 0), all);
    EXPECT_EQ(rt->stats().resident_pages, rt->ref().view.frame_count) << "no more than there are";
    EXPECT_EQ(rt->close(fd), 0);
}

TEST(runtime, more_files_than_slots) {
    const temporary_folder folder;
    for (int i = 0; i < 200; ++i) write_file(folder / ("f" + std::to_string(i)), pattern(i, 5000));
    const auto rt = make_runtime(small_options(folder));
    std::atomic<int> wrong{0};
    launch(*rt, 2000, [&](const auto& g, const runtime_ref& fs, std::uint64_t index) {
        const std::uint64_t which = mix64(index) % 200;
        const int fd = open(g, fs, ("f" + std::to_string(which)).c_str());
        std::vector<std::uint8_t> got(5000);
        if (fd < 0 || read(g, fs, fd, got.data(), 5000, 0) != 5000 || got != pattern(which, 5000))
            ++wrong;
        if (fd >= 0 && close(g, fs, fd) != 0) ++wrong;
    });
    EXPECT_EQ(wrong, 0);
    std::vector<int> open_files;
    int code = 0;
    for (int i = 0; i < 200 && code >= 0; ++i) {
        code = open(lane{}, rt->ref(), ("f" + std::to_string(i)).c_str());
        if (code >= 0) open_files.push_back(code);
    }
    EXPECT_EQ(code, -ENFILE);
    EXPECT_EQ(open_files.size(), 64u);
}

// There is no room for the name, so each open asks the host. None may take a place to itself.
TEST(runtime, a_name_without_room_can_be_opened_any_number_of_times) {
    const temporary_folder folder;
    std::string directory;
    for (int i = 0; i < 14; ++i) directory += std::string(200, 'y') + "/";
    std::filesystem::create_directories(folder / directory);
    options o = small_options(folder);
    o.max_files = 16;
    o.frame_wait_ms = 20;
    const std::string name = directory + "f";
    write_file(folder / name, pattern(1, 100));
    const auto rt = make_runtime(o);
    for (int i = 0; i < 200; ++i) {
        const int fd = open(lane{}, rt->ref(), name.c_str());
        ASSERT_GE(fd, 0) << i << ": " << error_text(fd);
    }
}

// A slot on its way from one file to the next is not a slot that is missing.
TEST(runtime, as_many_slots_as_files_open_at_a_time) {
    const temporary_folder folder;
    for (int i = 0; i < 40; ++i) write_file(folder / ("f" + std::to_string(i)), pattern(i, 100));
    options o = small_options(folder);
    o.max_files = 16;
    o.worker_threads = 16;
    const auto rt = make_runtime(o);
    std::atomic<int> refused{0};
    launch(*rt, 20000, [&](const auto& g, const runtime_ref& fs, std::uint64_t index) {
        const int fd = open(g, fs, ("f" + std::to_string(mix64(index) % 40)).c_str());
        if (fd < 0 || close(g, fs, fd) != 0) ++refused;
    });
    EXPECT_EQ(refused, 0);
}

// Read by their sizes, files of /proc would be empty and those of /sys end in an error.
TEST(runtime, a_file_with_a_false_size_is_refused_by_name) {
    const temporary_folder folder;
    std::string log;
    options o = small_options(folder);
    o.writable = true;
    o.roots.emplace_back("/proc/self");
    o.log = [&log](const std::string& line) { log += line + "\n"; };
    const auto rt = make_runtime(o);
    std::vector<std::string> liars{"/proc/cpuinfo", "/proc/self/status"};
    if (std::filesystem::exists("/sys/kernel/mm/transparent_hugepage/enabled"))
        liars.emplace_back("/sys/kernel/mm/transparent_hugepage/enabled");
    for (const std::string& path : liars) {
        log.clear();
        EXPECT_EQ(rt->open(path), -EOPNOTSUPP) << path;
        const std::string real = std::filesystem::canonical(path).string();
        EXPECT_NE(log.find(real + ": "), std::string::npos) << log;
        EXPECT_NE(log.find("copy it to another folder"), std::string::npos) << log;
        EXPECT_EQ(rt->allow(path), -EOPNOTSUPP) << path;
        std::unique_ptr<file_region> region;
        const status refused = map_region(*rt, path, 0, 0, protection::read, {}, region);
        EXPECT_EQ(refused.code, -EOPNOTSUPP) << refused.message;
        EXPECT_NE(refused.message.find(path), std::string::npos) << refused.message;
        EXPECT_NE(refused.message.find("copy it to another folder"), std::string::npos)
            << refused.message;
    }
    EXPECT_EQ(rt->open("/proc/self/comm", open_read_write), -EOPNOTSUPP);
    log.clear();
    EXPECT_EQ(open(lane{}, rt->ref(), ("/proc/" + std::to_string(::getpid()) + "/status").c_str()),
              -EOPNOTSUPP);
    EXPECT_NE(log.find("/status: "), std::string::npos) << log;
    // What is small or sparse is no liar.
    write_file(folder / "small", {1});
    write_file(folder / "empty", {});
    std::filesystem::resize_file(folder / "empty", 0);
    write_file(folder / "sparse", {});
    std::filesystem::resize_file(folder / "sparse", 1 << 20);
    for (const char* const name : {"small", "empty", "sparse"}) {
        const int fd = rt->open(name);
        ASSERT_GE(fd, 0) << name;
        EXPECT_EQ(rt->close(fd), 0);
    }
}

}  // namespace penstock::test
