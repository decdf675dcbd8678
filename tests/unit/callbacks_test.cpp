// What a program hands to the library is called by its rules: functions of a launch that throw,
// logs that throw, take long or use the library themselves, and signals.
#include <csignal>
#include <sys/resource.h>

#include <atomic>
#include <stdexcept>

#include "unit/support.hpp"

namespace penstock::test {

namespace {

// Each of its groups counts itself; one throws, when so many have begun.
struct throws_once {
    std::atomic<std::uint64_t>* begun;
    std::uint64_t at;
    template <typename Group>
    void operator()(const Group&, const runtime_ref&, std::uint64_t) const {
        if (++*begun == at) throw std::runtime_error("of a group");
    }
};

// Names of /proc cost a line of the log, each time.
constexpr const char* said_in_the_log = "/proc/self/maps";

std::unique_ptr<runtime> with_log(const temporary_folder& folder,
                                  std::function<void(const std::string&)> log) {
    options o = small_options(folder);
    o.log = std::move(log);
    std::unique_ptr<runtime> rt;
    EXPECT_TRUE(runtime::make(o, rt).ok());
    return rt;
}

}  // namespace

TEST(launch_of_a_function_that_throws, gives_the_caller_the_exception) {
    const temporary_folder folder;
    std::unique_ptr<runtime> rt;
    ASSERT_TRUE(runtime::make(small_options(folder), rt).ok());
    constexpr std::uint64_t groups = std::uint64_t{1} << 50;  // more than anything runs to the end
    std::atomic<std::uint64_t> begun{0};
    EXPECT_THROW(launch(*rt, groups, throws_once{&begun, 5}), std::runtime_error);
    EXPECT_GE(begun, 5u);
    begun = 0;
    EXPECT_THROW(launch_on(*rt, 0, groups, throws_once{&begun, 1}), std::runtime_error);
    EXPECT_GE(begun, 1u);
    begun = 0;
    EXPECT_EQ(launch(*rt, 100, throws_once{&begun, 101}), 0) << "none throws";
    EXPECT_EQ(begun, 100u);
}

TEST(launch_of_a_function_that_throws, lets_the_other_workers_end) {
    const temporary_folder folder;
    options o = small_options(folder);
    o.worker_threads = 3;
    std::unique_ptr<runtime> rt;
    ASSERT_TRUE(runtime::make(o, rt).ok());
    std::atomic<std::uint32_t> ended{0};
    const auto body = [&](std::uint32_t worker, std::uint32_t) {
        if (worker == 1) throw std::runtime_error("of a worker");
        ++ended;
    };
    EXPECT_THROW(rt->run_on_workers(body), std::runtime_error);
    EXPECT_EQ(ended, 2u);
}

TEST(body_of_a_device, that_throws_has_failed) {
    const temporary_folder folder;
    std::unique_ptr<runtime> rt;
    ASSERT_TRUE(runtime::make(small_options(folder, 3), rt).ok());
    std::atomic<std::uint32_t> ended{0};
    const auto throws_at = [&](std::uint32_t wanted) {
        return rt->run_on_devices([&, wanted](std::uint32_t device) -> int {
            if (device == wanted) throw std::runtime_error("of a device");
            ++ended;
            return 0;
        });
    };
    for (std::uint32_t device = 0; device < 3; ++device) EXPECT_EQ(throws_at(device), -EIO);
    EXPECT_EQ(ended, 6u);
}

TEST(log_of_a_program, may_throw) {
    const temporary_folder folder;
    const auto rt = with_log(folder, [](const std::string&) { throw std::runtime_error("full"); });
    testing::internal::CaptureStderr();
    EXPECT_EQ(rt->open(said_in_the_log), -EOPNOTSUPP);
    EXPECT_NE(testing::internal::GetCapturedStderr().find("another size"), std::string::npos)
        << "the line is not lost";
}

TEST(log_of_a_program_DeathTest, may_have_the_library_say_more) {
    const auto opens_in_log = [] {
        const temporary_folder folder;
        runtime* inside = nullptr;
        std::atomic<int> lines{0};
        const auto rt = with_log(folder, [&](const std::string&) {
            ++lines;
            if (inside != nullptr) inside->open(said_in_the_log);
        });
        inside = rt.get();
        const int before = lines;
        return rt->open(said_in_the_log) == -EOPNOTSUPP && lines == before + 1;
    };
    const auto ends = [&] {
        ::alarm(60);  // a log that waits for itself is ended by this
        std::_Exit(opens_in_log() ? 0 : 1);
    };
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_EXIT(ends(), testing::ExitedWithCode(0), "another size");
}

// A region has lines of its own, and threads that say them.
TEST(log_of_a_program, has_one_line_at_a_time_of_all_parts) {
    const temporary_folder folder;
    write_file(folder / "data", pattern(3, 4 * page));
    std::atomic<int> inside{0}, most{0}, lines{0};
    const auto rt = with_log(folder, [&](const std::string&) {
        most = std::max<int>(most, ++inside);
        ++lines;
        // The other line has time to come, if nothing keeps it.
        const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
        while (most < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
        --inside;
    });
    const int before = lines;
    std::unique_ptr<file_region> mapped;
    std::thread of_a_region([&] {
        region_options automatic;
        automatic.placement = region_placement::automatic;
        EXPECT_TRUE(
            map_region(*rt, folder / "data", 0, 0, protection::read, automatic, mapped).ok());
    });
    EXPECT_EQ(rt->open(said_in_the_log), -EOPNOTSUPP);
    of_a_region.join();
    EXPECT_EQ(lines, before + 2);
    EXPECT_EQ(most, 1);
}

// A program that has been asked to end by Ctrl-C can be ended by kill.
TEST(signals_DeathTest, the_second_has_its_usual_effect_whichever_it_is) {
    const auto after = [](int first, int second) {
        interrupt_on_signals();
        std::raise(first);
        if (!was_interrupted()) std::_Exit(1);
        std::raise(second);
        std::_Exit(2);
    };
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    for (const int first : {SIGINT, SIGTERM})
        for (const int second : {SIGINT, SIGTERM})
            EXPECT_EXIT(after(first, second), testing::KilledBySignal(second), "");
}

TEST(creation, names_the_limit_on_open_files) {
    const temporary_folder folder;
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
    const rlimit none{0, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    std::unique_ptr<runtime> rt;
    const status s = runtime::make(small_options(folder), rt);
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
    EXPECT_EQ(s.code, -EMFILE);
    EXPECT_NE(s.message.find("ulimit -n"), std::string::npos) << s.message;
}

}  // namespace penstock::test
