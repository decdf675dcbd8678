// A mapped file that another program cuts: how the handler of SIGBUS (apps/common/process.cpp) ends
// a program of which several threads meet the cut at once.
#include <atomic>
#include <barrier>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include "common/files.hpp"
#include "common/process.hpp"
#include "unit/support.hpp"

namespace penstock {
namespace {

// Returns only if nothing ended the process.
void read_behind_a_cut(const std::string& file, const std::string& left_over) {
    apps::run_process("reader", "use a smaller file", [&] {
        const auto page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
        apps::mapped_file mapped;
        if (!mapped.open(file, 2 * page)) return 1;
        apps::leftover noted;
        noted.file(left_over);
        if (::truncate(file.c_str(), static_cast<off_t>(page)) != 0) return 1;
        constexpr int readers = 8;
        std::barrier start(readers);
        std::atomic<int> sum{0};
        std::vector<std::jthread> threads;
        for (int i = 0; i < readers; ++i)
            threads.emplace_back([&] {
                start.arrive_and_wait();
                sum += mapped.data()[page];
            });
        threads.clear();
        return sum.load();
    });
}

TEST(bus_error, of_several_threads_is_one_whole_line) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer has a handler of its own";
#endif
    const test::temporary_folder folder;
    const std::string file = folder.path() + "/file", left_over = folder.path() + "/left";
    for (int round = 0; round < 30; ++round) {
        std::ofstream(file) << std::string(1u << 18, 'x');
        std::ofstream(left_over) << "x";
        EXPECT_EXIT(
            read_behind_a_cut(file, left_over), testing::KilledBySignal(SIGBUS),
            "^reader: a file that this program reads [^\n]* \\(SIGBUS\\); run again when no "
            "program changes it\n$");
        EXPECT_FALSE(std::filesystem::exists(left_over)) << "it was not taken away";
    }
}

}  // namespace
}  // namespace penstock
