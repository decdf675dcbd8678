// Helpers of the service threads: a disk that keeps a thread stops no other file's requests, as far
// as there are threads; and thousands of requesters on two processors.
#include <sched.h>

#include <atomic>
#include <thread>

#include "fault/scenario.hpp"
#include "soon.hpp"

namespace penstock::fault {

namespace {

options crew_options(const sample_folder& from, io_method io, std::uint32_t most) {
    options o = tiny_options(from, io);
    o.cache_bytes = 64 * page;
    o.service_threads = 1;
    o.most_service_threads = most;
    o.request_wait_ms = 600000;
    return o;
}

// The page of a file that is open already.
void expect_page(runtime& rt, int fd, std::uint32_t file, std::uint64_t number) {
    std::uint8_t byte = 0;
    const std::uint64_t at = number * page + 17;
    EXPECT_EQ(read(lane{}, rt.ref(), fd, &byte, 1, static_cast<std::int64_t>(at)), 1);
    EXPECT_EQ(byte, pattern_byte(file, at));
}

// Opens that wait for the disk, each in a thread of its own.
class stuck_opens {
public:
    stuck_opens(runtime& rt, faulty_environment& disk) : rt_(rt), disk_(disk) {}
    ~stuck_opens() {
        disk_.release();
        for (std::thread& each : threads_) each.join();
        EXPECT_EQ(opened_.load(), threads_.size());
    }
    // False: no service thread took it.
    bool add(std::uint32_t file) {
        const int before = disk_.stalled();
        threads_.emplace_back([this, file] {
            const int fd = open(lane{}, rt_.ref(), sample_folder::name(file).c_str());
            if (close(lane{}, rt_.ref(), fd) == 0) ++opened_;
        });
        return soon([&] { return disk_.stalled() > before; });
    }

private:
    runtime& rt_;
    faulty_environment& disk_;
    std::vector<std::thread> threads_;
    std::atomic<std::size_t> opened_{0};
};

}  // namespace

// Each open takes a thread for as long as the disk likes, and a helper comes for the requests
// behind it. The disk answers only after all the reads.
TEST(service_crew, opens_that_wait_stop_no_other_file) {
    for (const io_method io : {io_method::automatic, io_method::pread}) {
        const sample_folder from;
        faulty_environment disk;
        const auto rt = test::make_runtime(crew_options(from, io, 4), tiny_hooks(disk));
        const int fd = open(lane{}, rt->ref(), "f0"), other = open(lane{}, rt->ref(), "f1");
        {
            stuck_opens opens(*rt, disk);
            disk.stall(call_find);
            for (std::uint32_t stuck = 0; stuck < 3; ++stuck) {
                ASSERT_TRUE(opens.add(5 + stuck)) << stuck;
                expect_page(*rt, fd, 0, stuck);
                expect_page(*rt, other, 1, stuck);
                EXPECT_EQ(disk.stalled(), static_cast<int>(stuck) + 1);
            }
        }
        // Of two caches one was asked. The monitor counts a helper after it has started it.
        EXPECT_TRUE(soon([&] {
            const statistics now = rt->stats();
            return now.service_threads >= 4 && now.helpers_for_stalls >= 3;
        }));
        EXPECT_LE(rt->stats(0).service_threads, 4u);
        for (const int each : {fd, other}) EXPECT_EQ(close(lane{}, rt->ref(), each), 0);
        EXPECT_EQ(what_is_lost(*rt), "");
    }
}

// The same without helpers: the request behind the open is not answered. So the test above can
// fail.
TEST(service_crew, a_number_of_threads_is_exact) {
    const sample_folder from;
    faulty_environment disk;
    options o = crew_options(from, io_method::automatic, 1);
    o.most_service_threads.reset();
    o.request_wait_ms = 500;
    const auto rt = test::make_runtime(o, tiny_hooks(disk));
    EXPECT_EQ(rt->settings().most_service_threads, 1u);
    // Where the machine is busy a call may end before its thread has come to it.
    int fd = -ETIMEDOUT;
    ASSERT_TRUE(soon([&] { return (fd = open(lane{}, rt->ref(), "f0")) >= 0; }));
    disk.stall(call_find);
    std::atomic<bool> is_stuck{false};
    std::thread opener([&] {
        do open(lane{}, rt->ref(), "f5");
        while (!is_stuck);
    });
    EXPECT_TRUE(soon([&] { return disk.stalled() == 1; }));
    is_stuck = true;
    std::uint8_t byte = 0;
    EXPECT_EQ(read(lane{}, rt->ref(), fd, &byte, 1, 0), -ETIMEDOUT);
    EXPECT_EQ(rt->stats(0).service_threads, 1u);
    EXPECT_EQ(rt->stats().helpers_for_stalls, 0u);
    disk.release();
    opener.join();
    EXPECT_TRUE(soon([&] { return read(lane{}, rt->ref(), fd, &byte, 1, 0) == 1; }));
    EXPECT_EQ(byte, pattern_byte(0, 0));
}

// Reads by pread: a thread waits in each. Those that it had not begun are read by helpers.
TEST(service_crew, a_read_that_waits_holds_up_no_open) {
    const sample_folder from;
    faulty_environment disk;
    const auto rt = test::make_runtime(crew_options(from, io_method::pread, 4), tiny_hooks(disk));
    const int fd = open(lane{}, rt->ref(), "f0");
    disk.stall(call_held_read);
    std::vector<std::thread> readers;
    for (std::uint64_t i = 0; i < 3; ++i)
        readers.emplace_back([&, i] { expect_page(*rt, fd, 0, i); });
    ASSERT_TRUE(soon([&] { return disk.stalled() == 3; }));
    for (std::uint32_t i = 6; i < 12; ++i) {
        const int opened = open(lane{}, rt->ref(), sample_folder::name(i).c_str());
        EXPECT_GE(opened, 0);
        EXPECT_EQ(close(lane{}, rt->ref(), opened), 0);
    }
    EXPECT_EQ(disk.stalled(), 3);
    disk.release();
    for (std::thread& each : readers) each.join();
    EXPECT_EQ(close(lane{}, rt->ref(), fd), 0);
    EXPECT_EQ(what_is_lost(*rt), "");
}

// Helpers go to sleep, and come again without being made.
TEST(service_crew, helpers_are_made_once_and_sleep) {
    const sample_folder from;
    faulty_environment disk;
    const auto rt =
        test::make_runtime(crew_options(from, io_method::automatic, 2), tiny_hooks(disk));
    const int fd = open(lane{}, rt->ref(), "f0");
    for (std::uint32_t round = 0; round < 3; ++round) {
        stuck_opens opens(*rt, disk);
        disk.stall(call_find);
        ASSERT_TRUE(opens.add(5 + round));
        expect_page(*rt, fd, 0, round);
        disk.release();
        ASSERT_TRUE(soon([&] {
            bool asleep = true;
            rt->state().for_each_thread(
                [&](const host::service& each, bool) { asleep = asleep && each.is_asleep(); });
            return asleep;
        }));
    }
    EXPECT_TRUE(soon([&] { return rt->stats(0).service_threads == 2; })) << "it was not counted";
}

// One call for all that are to be made, and none once they are there: a sleeper is woken then.
TEST(service_crew, a_backlog_calls_the_monitor_once) {
    std::uint32_t calls = 0;
    host::service_crew crew(3, 2, [&] { ++calls; });
    EXPECT_FALSE(crew.take_wish_for_more());
    for (int i = 0; i < 5; ++i) crew.ask_for_backlog();
    EXPECT_EQ(calls, 1u);
    EXPECT_TRUE(crew.take_wish_for_more());
    EXPECT_FALSE(crew.take_wish_for_more());
    for (; crew.lacks_for_backlog(); crew.count_made(false)) ASSERT_NE(crew.next_bell(), nullptr);
    EXPECT_EQ(crew.made(), 2u);  // the third is for stalls
    crew.ask_for_backlog();
    EXPECT_EQ(calls, 1u);
    EXPECT_EQ(crew.for_backlog(), 2u);
}

// Awake for a backlog are no more than there is room for.
TEST(service_crew, a_backlog_wakes_no_more_than_there_is_room_for) {
    std::uint32_t calls = 0;
    host::service_crew crew(3, 2, [&] { ++calls; });
    crew.count_awake(2);
    crew.ask_for_backlog();
    EXPECT_EQ(calls, 0u);
    EXPECT_FALSE(crew.take_wish_for_more());
    crew.count_awake(-1);
    crew.ask_for_backlog();
    EXPECT_EQ(calls, 1u);
}

// The default number of threads, on two processors of whatever the machine has.
TEST(service_crew, two_thousand_requesters_on_two_processors) {
    cpu_set_t before, two;
    ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&two);
    for (int cpu = 0, taken = 0; cpu < CPU_SETSIZE && taken < 2; ++cpu)
        if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &two), ++taken;
    constexpr std::uint64_t most = 2000, pages = 4096;
    const temporary_folder folder;
    test::write_file(folder / "data", test::pattern(3, pages * page));
    test::let_files_settle();
    ASSERT_EQ(::sched_setaffinity(0, sizeof two, &two), 0);
    options o = test::small_options(folder, 1);
    o.cache_bytes = pages * page;
    o.request_wait_ms = 600000;
    o.service_threads.reset();
    const auto rt = test::make_runtime(o);
    const int fd = open(lane{}, rt->ref(), "data");
    std::atomic<std::uint64_t> right{0}, wrong{0};
    std::atomic<bool> begins{false};
    std::vector<std::thread> all;
    try {
        for (std::uint64_t i = 0; i < most; ++i)
            all.emplace_back([&, i] {
                begins.wait(false);
                for (std::uint64_t k = 0; k < 2; ++k) {
                    const std::uint64_t at = (i * 2 + k) % pages * page + i;
                    std::uint8_t byte = 0;
                    const std::int64_t got =
                        read(lane{}, rt->ref(), fd, &byte, 1, static_cast<std::int64_t>(at));
                    ++(got == 1 && byte == pattern_byte(3, at) ? right : wrong);
                }
            });
    } catch (const std::exception&) {  // the machine has no more threads
    }
    begins = true;
    begins.notify_all();
    for (std::thread& each : all) each.join();
    EXPECT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
    EXPECT_EQ(right, all.size() * 2);
    EXPECT_EQ(wrong, 0u);
    EXPECT_EQ(close(lane{}, rt->ref(), fd), 0);
    EXPECT_EQ(engine::check_invariants(rt->ref().view).rule, nullptr);
    if (all.size() < most)
        GTEST_SKIP() << "only " << all.size() << " threads could be made; raise RLIMIT_NPROC";
}

namespace {

// Gives io_uring to the first threads alone, as a kernel does whose user has no locked memory left.
struct few_rings : faulty_environment {
    std::atomic<int> left{0};

    std::unique_ptr<host::io_engine> make_io_engine(bool want_uring, std::uint32_t depth,
                                                    std::string& why) override {
        if (want_uring && left.fetch_sub(1) <= 0) {
            why = "no memory for the rings";
            return nullptr;
        }
        return faulty_environment::make_io_engine(want_uring, depth, why);
    }
};

}  // namespace

// One for each device with such a thread; of the first thread alone it was told before.
TEST(service_crew, one_line_tells_of_threads_that_read_without_io_uring) {
    for (const int rings : {0, 1, 3, 4}) {
        few_rings disk;
        disk.left = rings;
        const sample_folder sample;
        options o = crew_options(sample, io_method::automatic, 4);
        o.service_threads = 4;
        int told = 0;
        o.log = [&](const std::string& line) { told += line.ends_with("no memory for the rings"); };
        host::runtime_hooks hooks;
        hooks.env = &disk;
        const auto rt = test::make_runtime(o, hooks);
        const int threads = 4 * static_cast<int>(rt->device_count());
        EXPECT_EQ(told, (threads - rings + 3) / 4) << rings;
        const int fd = open(lane{}, rt->ref(), sample_folder::name(2).c_str());
        expect_page(*rt, fd, 2, 1);
        EXPECT_EQ(close(lane{}, rt->ref(), fd), 0);
    }
}

}  // namespace penstock::fault
