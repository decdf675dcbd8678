// Disks that are slow, deliver a few bytes at a time, or answer in any order: the bytes are right
// all the same.
#include <thread>

#include "fault/scenario.hpp"

namespace penstock::fault {

namespace {

// Several threads do the reference sequence at once.
void run_with(const fault_plan& plan, io_method io, int threads) {
    const sample_folder from;
    faulty_environment disk;
    disk.set(plan);
    options o = tiny_options(from, io);
    o.max_files = 64;  // each thread has up to six files open
    o.request_wait_ms = 20000;
    const auto rt = test::make_runtime(o, tiny_hooks(disk));
    std::vector<std::string> complaints(static_cast<std::size_t>(threads));
    std::vector<std::thread> running;
    for (auto& text : complaints)
        running.emplace_back([&] {
            scenario sequence(rt->ref());
            sequence.run();
            text = sequence.complaints();
        });
    for (std::thread& thread : running) thread.join();
    for (const std::string& text : complaints) EXPECT_EQ(text, "");
    EXPECT_EQ(engine::check_invariants(rt->ref().view).rule, nullptr);
}

}  // namespace

TEST(slow_disk, one_byte_at_a_time) {
    const sample_folder from;
    faulty_environment disk;
    fault_plan plan;
    plan.longest_read = 1;
    disk.set(plan);
    const auto rt = test::make_runtime(tiny_options(from, io_method::automatic), tiny_hooks(disk));
    const int fd = open(lane{}, rt->ref(), "f3");
    std::vector<std::uint8_t> got(sample_folder::size(3));
    EXPECT_EQ(read(lane{}, rt->ref(), fd, got.data(), static_cast<std::int64_t>(got.size()), 0),
              static_cast<std::int64_t>(got.size()));
    EXPECT_EQ(got, test::pattern(3, got.size()));
    EXPECT_EQ(rt->stats().file_reads, got.size());
}

TEST(slow_disk, odd_pieces) {
    for (const std::uint32_t piece : {511u, 1000u, 4095u}) {
        fault_plan plan;
        plan.longest_read = piece;
        run_with(plan, io_method::automatic, 4);
        run_with(plan, io_method::pread, 4);
    }
}

TEST(slow_disk, answers_in_any_order) {
    fault_plan plan;
    plan.shuffle = true;
    plan.longest_read = 1500;
    run_with(plan, io_method::automatic, 6);
    run_with(plan, io_method::pread, 6);
}

TEST(slow_disk, late_answers_in_any_order) {
    fault_plan plan;
    plan.shuffle = true;
    plan.read_delay_ns = 2'000'000;
    run_with(plan, io_method::automatic, 6);
}

TEST(slow_disk, a_piece_that_ends_early_is_stale_and_nothing_else_suffers) {
    const sample_folder from;
    faulty_environment disk;
    const auto rt = test::make_runtime(tiny_options(from, io_method::automatic), tiny_hooks(disk));
    const int fd = open(lane{}, rt->ref(), "f1");
    fault_plan plan;
    plan.calls = call_read;
    plan.longest_read = 1000;
    plan.nth = 2;  // the second piece of the first page
    plan.error = 0;
    disk.set(plan);
    std::uint8_t byte = 0;
    EXPECT_EQ(read(lane{}, rt->ref(), fd, &byte, 1, 0), -ESTALE);
    EXPECT_EQ(read(lane{}, rt->ref(), fd, &byte, 1, 0), 1);
    EXPECT_EQ(byte, pattern_byte(1, 0));
    EXPECT_EQ(close(lane{}, rt->ref(), fd), 0);
    EXPECT_EQ(what_is_lost(*rt), "");
}

}  // namespace penstock::fault
