// What a runtime writes back when it ends, on a disk that takes its time, while the program is
// asked to end by a signal.
#include <csignal>
#include <mutex>

#include "fault/write_scenario.hpp"

namespace penstock::fault {

namespace {

// Lines of a runtime's log.
struct said_lines {
    std::mutex mutex;
    std::string all;

    void add(const std::string& line) {
        const std::lock_guard lock(mutex);
        all += line + '\n';
    }
};

// The monitor has looked for signals since the call.
void await_look(const engine::control_block& control) {
    const auto beats = [&] {
        return atomic_load<order::relaxed, scope::system>(&control.heartbeat);
    };
    for (const std::uint64_t before = beats(); beats() < before + 2;) std::this_thread::yield();
}

// Empty, or what went wrong.
std::string end_with_signal_while_writing_back() {
    const temporary_folder folder;
    const std::string path = folder / "file";
    const std::vector<std::uint8_t> bytes = test::pattern(7, 48 * page);
    faulty_environment disk;
    host::runtime_hooks hooks;
    hooks.env = &disk;
    said_lines said;
    options o = test::small_options(folder);
    o.writable = true;
    o.write_behind_bytes = o.cache_bytes;
    o.log = [&](const std::string& line) { said.add(line); };
    if (interrupt_on_signals() != 0) return "no signals";
    std::unique_ptr<runtime> rt = test::make_runtime(o, hooks);
    const int fd = rt->open(path, open_read_write | open_create);
    if (rt->write(fd, bytes.data(), static_cast<std::int64_t>(bytes.size()), 0) !=
        static_cast<std::int64_t>(bytes.size()))
        return "the file could not be written";
    const engine::control_block& control = *rt->ref().view.control;
    disk.stall(call_write);
    std::thread ending([&] { rt.reset(); });
    while (disk.stalled() == 0) std::this_thread::yield();
    std::raise(SIGINT);
    await_look(control);
    const std::int64_t abort_code = atomic_load<order::relaxed, scope::system>(&control.abort_code);
    disk.release();
    ending.join();
    std::string wrong;
    if (!was_interrupted()) wrong += "the signal did not come\n";
    if (abort_code != 0)
        wrong += "the waits of the write-back end: " + error_text(abort_code) + '\n';
    if (bytes_on_disk(path) != bytes) wrong += "the file has not what was written\n";
    return wrong + said.all;
}

}  // namespace

// Of open files, while the runtime is used on: the end of it that keeps its files asks for this.
TEST(write_back_of_open_files, says_which_file_could_not_be_written) {
    const temporary_folder folder;
    faulty_environment disk;
    host::runtime_hooks hooks;
    hooks.env = &disk;
    options o = test::small_options(folder);
    o.writable = true;
    const auto rt = test::make_runtime(o, hooks);
    const auto bytes = test::pattern(5, 2 * page);
    const int full = rt->open("full", open_read_write | open_create);
    ASSERT_EQ(rt->write(full, bytes.data(), 2 * page, 0), static_cast<std::int64_t>(2 * page));
    disk.set({.calls = call_write, .nth = 1, .for_ever = true, .error = -ENOSPC});
    std::vector<std::string> left;
    const status s = rt->state().write_back_open_files(left);
    EXPECT_EQ(s.code, -ENOSPC);
    EXPECT_NE(s.message.find(folder / "full"), std::string::npos) << s.message;
    disk.clear();
    EXPECT_TRUE(rt->state().write_back_open_files(left).ok());
    EXPECT_TRUE(left.empty());
    EXPECT_EQ(bytes_on_disk(folder / "full"), bytes);
    rt->close(full);  // which may tell of the error again
}

// A page that a kernel maps to change it is not taken from it, also not at the end.
TEST(last_write_back, says_what_stays_because_it_is_mapped) {
    const temporary_folder folder;
    said_lines said;
    options o = test::small_options(folder, 1);
    o.writable = true;
    o.log = [&](const std::string& line) { said.add(line); };
    auto rt = test::make_runtime(o);
    const int fd = rt->open("file", open_read_write | open_create);
    ASSERT_EQ(rt->write(fd, "written", 7, 0), 7);
    ASSERT_EQ(map_write(lane{}, rt->ref(), fd, 0, page).bytes, static_cast<std::int64_t>(page));
    rt.reset();
    EXPECT_NE(said.all.find("could not be written back"), std::string::npos) << said.all;
    EXPECT_NE(said.all.find(folder / "file"), std::string::npos) << said.all;
}

// The calls have returned before the first Ctrl-C, which asks for no more than that the program
// ends: what they wrote goes to the file.
TEST(last_write_back_DeathTest, goes_on_after_a_signal) {
    const auto ends = [] {
        ::alarm(60);
        const std::string wrong = end_with_signal_while_writing_back();
        std::fputs(wrong.c_str(), stderr);
        std::_Exit(wrong.empty() ? 0 : 1);
    };
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(ends(), testing::ExitedWithCode(0), "");
}

}  // namespace penstock::fault
