// Threads and objects that outlive what a program has once: its first thread, and what ends before
// an object of a global variable does.
#include <fcntl.h>
#include <malloc.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "os/file_system.hpp"
#include "soon.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

// Ends after everything that a function made at its first call.
std::unique_ptr<runtime> ends_with_the_program;
std::unique_ptr<file_region> region_of_the_program;

// So many in each page that all of the page is written.
void change_every_page(std::uint64_t pages, std::uint8_t byte) {
    auto* const data = static_cast<std::uint8_t*>(region_of_the_program->data());
    for (std::uint64_t at = 0; at < pages * page; at += 100) data[at] = byte;
}

std::string first_line_of(const std::string& path) {
    std::ifstream in(path);
    std::string line;
    std::getline(in, line);
    return line;
}

// What does not work in a process whose first thread has ended; empty: all does.
std::string what_fails(const temporary_folder& folder) {
    host::environment& env = host::linux_environment();
    const int found = env.find(-1, folder / "data"), fd = env.open_found(found);
    std::string path;
    if (env.real_path(found, path) != 0) return "real_path";
    if (fd < 0) return "open_found";
    if (env.open_writing(fd) < 0) return "open_writing";
    const int watch = env.open_watch();
    if (watch < 0 || env.watch_file(watch, fd) < 0) return "watch_file";
    host::file_facts facts;
    if (env.facts(fd, facts) != 0) return "facts";
    if (host::place_in_file_system(folder / "data").path.empty()) return "place_in_file_system";
    options o = small_options(folder, 1);
    o.writable = true;
    const auto rt = make_runtime(o);
    if (rt == nullptr) return "make";
    for (const char* name : {"data", "link"})
        for (const unsigned flags : {open_read, open_read_write})
            if (const int opened = rt->open(name, flags); opened < 0)
                return std::string("open of ") + name + ": " + std::to_string(opened);
    std::unique_ptr<file_region> region;
    if (const status s = map_region(*rt, folder / "data", 0, 0, protection::read, {}, region); !s)
        return s.message;
    return "";
}

}  // namespace

// As after pthread_exit in main().
TEST(program_end, files_are_opened_after_the_end_of_the_first_thread) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(8, 10000));
    std::filesystem::create_symlink("data", folder / "link");
    std::fflush(nullptr);
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        std::thread([&] {
            const std::string stat = "/proc/" + std::to_string(::getpid()) + "/stat";
            bool ended =
                soon([&] { return first_line_of(stat).find(") Z ") != std::string::npos; });
            const std::string failed = ended ? what_fails(folder) : "the first thread goes on";
            if (!failed.empty()) std::fprintf(stderr, "%s\n", failed.c_str());
            ::_exit(failed.empty() ? 0 : 1);
        }).detach();
        ::syscall(SYS_exit, 0);
    }
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    EXPECT_EQ(state, 0);
}

TEST(program_end, a_runtime_may_be_in_a_global_variable) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(9, 10000));
    EXPECT_EXIT(
        {
            options o = small_options(folder, 1);
            o.writable = true;
            ends_with_the_program = make_runtime(o);
            const int fd = ends_with_the_program->open("data", open_read_write);
            const std::uint8_t byte = 5;
            ends_with_the_program->write(fd, &byte, 1, 7000);
            std::exit(testing::Test::HasFailure() ? 1 : 0);
        },
        testing::ExitedWithCode(0), "");
    EXPECT_EQ(bytes_on_disk(folder / "data")[7000], 5);
}

TEST(program_end, a_region_may_be_in_a_global_variable) {
    constexpr std::uint64_t pages = 64;
    const temporary_folder folder;
    write_file(folder / "data", pattern(10, pages * page));
    EXPECT_EXIT(
        {
            ::mallopt(M_MMAP_THRESHOLD, 65536);  // what is freed is gone
            options o = small_options(folder, 1);
            o.writable = true;
            ends_with_the_program = make_runtime(o);
            region_options of_region;
            of_region.outside_writers = false;
            const status s = map_region(*ends_with_the_program, folder / "data", 0, 0,
                                        protection::read_write, of_region, region_of_the_program);
            EXPECT_TRUE(s.ok()) << s.message;
            change_every_page(pages, 1);
            EXPECT_GE(region_of_the_program->release(), 0);
            change_every_page(pages, 2);
            std::exit(testing::Test::HasFailure() ? 1 : 0);
        },
        testing::ExitedWithCode(0), "");
    const std::vector<std::uint8_t> now = bytes_on_disk(folder / "data");
    for (std::uint64_t at = 0; at < pages * page; ++at)
        ASSERT_EQ(now[at], at % 100 == 0 ? 2 : pattern_byte(10, at)) << at;
}

}  // namespace penstock::test
