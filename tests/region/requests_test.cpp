// Parts of regions, and requests that go on by themselves, on CPU threads and on the GPU. What they
// do on streams: tests/device/region_requests_test.cu.
#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include "region/request_thread.hpp"
#include "region/support.hpp"
#include "soon.hpp"

namespace penstock::test {

namespace {

using bytes = std::vector<std::uint8_t>;

constexpr std::uint64_t each = 4096, count = 1000, whole = count * each;
constexpr region_options no_others{.outside_writers = false};

class region_requests : public testing::TestWithParam<backend> {
protected:
    void SetUp() override {
        if (GetParam() == backend::gpu && !gpu_is_there()) GTEST_SKIP() << "no GPU in this machine";
        write_file(path_, content_);
        let_files_settle();
        runtime_ = make_runtime(region_runtime(folder_, GetParam()));
        writer_ = map_whole(*runtime_, path_, protection::read_write, no_others);
        reader_ = map_whole(*runtime_, path_, protection::read, no_others);
    }
    void change(std::uint64_t number, std::uint8_t value) {
        poke(*writer_, GetParam(), number * each + 5, {value});
    }
    std::uint8_t seen(std::uint64_t number) {
        return peek(*reader_, GetParam(), number * each + 5, 1).front();
    }
    [[nodiscard]] std::uint8_t in_file(std::uint64_t number) const {
        return read_file(path_)[number * each + 5];
    }
    [[nodiscard]] std::uint8_t before(std::uint64_t number) const {
        return content_[number * each + 5];
    }

    const temporary_folder folder_;
    const std::string path_ = folder_ / "f";
    const bytes content_ = pattern(7, whole);
    std::unique_ptr<runtime> runtime_;
    std::unique_ptr<file_region> writer_, reader_;
};

}  // namespace

TEST_P(region_requests, a_release_of_a_part_brings_its_pages_and_no_others) {
    for (const std::uint64_t number : {9, 10, 19, 20}) change(number, before(number) ^ 1);
    // Bytes of pages 10 to 19, not all of the first and the last.
    EXPECT_EQ(writer_->release(region_part{10 * each + 100, 9 * each}), 2);
    EXPECT_EQ(in_file(9), before(9));
    EXPECT_EQ(in_file(10), before(10) ^ 1);
    EXPECT_EQ(in_file(19), before(19) ^ 1);
    EXPECT_EQ(in_file(20), before(20));
    EXPECT_EQ(writer_->release(), 2);
    EXPECT_EQ(in_file(9), before(9) ^ 1);
    EXPECT_EQ(in_file(20), before(20) ^ 1);
}

TEST_P(region_requests, an_acquire_of_a_part_brings_its_pages_and_no_others) {
    for (const std::uint64_t number : {9, 10, 19, 20}) change(number, before(number) ^ 1);
    EXPECT_EQ(writer_->release(), 4);
    EXPECT_EQ(reader_->acquire(region_part{10 * each + 100, 9 * each}), 2);
    EXPECT_EQ(seen(9), before(9));
    EXPECT_EQ(seen(10), before(10) ^ 1);
    EXPECT_EQ(seen(19), before(19) ^ 1);
    EXPECT_EQ(seen(20), before(20));
    EXPECT_EQ(reader_->acquire(region_part{11 * each, 0}), 0) << "no byte, no page";
    EXPECT_EQ(reader_->acquire(region_part{10 * each}), 1) << "up to the end";
    EXPECT_EQ(seen(20), before(20) ^ 1);
    EXPECT_EQ(reader_->acquire(), 1);
    EXPECT_EQ(seen(9), before(9) ^ 1);
}

TEST_P(region_requests, a_part_that_is_not_there_is_refused) {
    for (const region_part& part :
         {region_part{whole + 1}, region_part{0, whole + 1}, region_part{whole, 1},
          region_part{each, UINT64_MAX}, region_part{UINT64_MAX, 1}}) {
        EXPECT_EQ(reader_->acquire(part), -EINVAL);
        EXPECT_EQ(writer_->release(part), -EINVAL);
        EXPECT_EQ(reader_->acquire_async(part).wait(), -EINVAL);
        EXPECT_EQ(writer_->release_async(part).wait(), -EINVAL);
    }
    EXPECT_EQ(reader_->acquire(region_part{whole}), 0) << "nothing, at the end";
}

TEST_P(region_requests, requests_end_in_order_with_the_results_of_the_calls) {
    for (int round = 0; round < 50; ++round) {
        const auto value = static_cast<std::uint8_t>(round + 1);
        const std::uint64_t first = 7 * static_cast<std::uint64_t>(round), last = first + 11;
        for (const std::uint64_t number : {first, last}) change(number, before(number) ^ value);
        const region_request out = writer_->release_async(region_part{first * each, 12 * each}),
                             none = writer_->release_async();
        EXPECT_EQ(none.wait(), 0);
        EXPECT_TRUE(out.is_done());
        EXPECT_EQ(out.wait(), 2);
        const region_request in = reader_->acquire_async();
        EXPECT_EQ(in.wait(), 2);
        for (const std::uint64_t number : {first, last})
            EXPECT_EQ(seen(number), before(number) ^ value);
    }
    EXPECT_EQ(writer_->traffic().pages_released, 100u);
    EXPECT_EQ(reader_->traffic().pages_fetched, count + 100);
}

TEST_P(region_requests, other_calls_wait_for_requests) {
    for (std::uint64_t number = 0; number < count; ++number) change(number, before(number) ^ 3);
    const region_request out = writer_->release_async();
    EXPECT_EQ(writer_->sync(), 0);
    EXPECT_TRUE(out.is_done());
    const region_request in = reader_->acquire_async();
    EXPECT_EQ(reader_->acquire(), 0) << "the request has brought all";
    EXPECT_TRUE(in.is_done());
    EXPECT_EQ(in.wait(), static_cast<std::int64_t>(count));
}

TEST_P(region_requests, a_close_serves_what_was_asked_for_and_refuses_more) {
    change(1, before(1) ^ 1);
    const region_request out = writer_->release_async();
    EXPECT_EQ(writer_->close(), 0);
    EXPECT_EQ(out.wait(), 1);
    EXPECT_EQ(writer_->release_async().wait(), -EBADF);
    EXPECT_EQ(writer_->acquire_async().wait(), -EBADF);
    EXPECT_EQ(writer_->close(), -EBADF);
    const region_request in = reader_->acquire_async();
    reader_.reset();
    EXPECT_EQ(in.wait(), 1) << "the request outlives the region";
    EXPECT_EQ(in_file(1), before(1) ^ 1);
}

TEST_P(region_requests, a_file_that_got_shorter_is_told) {
    ASSERT_EQ(::truncate(path_.c_str(), whole / 2), 0);
    EXPECT_EQ(reader_->acquire_async().wait(), -ESTALE);
    EXPECT_EQ(writer_->release_async().wait(), -ESTALE);
    ASSERT_EQ(::truncate(path_.c_str(), whole), 0);
    EXPECT_GE(reader_->acquire_async().wait(), 0) << "the next request tries again";
}

TEST_P(region_requests, a_child_of_fork_is_refused) {
    if (GetParam() == backend::gpu) GTEST_SKIP() << "in the child gtest would meet the device";
    EXPECT_EQ(reader_->acquire_async().wait(), 0);
    const pid_t child = ::fork();
    if (child == 0)
        ::_exit(reader_->acquire_async().wait() == -ECHILD &&
                        writer_->release(region_part{}) == -ECHILD
                    ? 0
                    : 1);
    int state = 0;
    ASSERT_EQ(::waitpid(child, &state, 0), child);
    EXPECT_TRUE(WIFEXITED(state) && WEXITSTATUS(state) == 0);
}

INSTANTIATE_TEST_SUITE_P(on, region_requests, testing::Values(backend::cpu, backend::gpu),
                         [](const auto& info) {
                             return std::string(info.param == backend::gpu ? "gpu" : "cpu");
                         });

// A stream that comes to its turns when the test says so.
namespace {

struct slow_turns final : region::stream_turns {
    struct facts {
        std::mutex mutex;
        std::condition_variable changed;
        std::uint32_t begun = 0, may_reach = 0, ended = 0;
        int refusal = 0, failure = 0;
        std::function<void()> before_begin = [] {};
    };
    explicit slow_turns(facts& of) : facts_(of) {}
    int begin(std::uint32_t number, void*) override {
        facts_.before_begin();
        const std::lock_guard lock(facts_.mutex);
        if (facts_.refusal != 0) return facts_.refusal;
        facts_.begun = number;
        return 0;
    }
    int reached(std::uint32_t number) override {
        std::unique_lock lock(facts_.mutex);
        facts_.changed.wait(lock, [&] { return facts_.may_reach >= number; });
        return facts_.failure;
    }
    bool has_come(std::uint32_t number) {
        const std::lock_guard lock(facts_.mutex);
        return facts_.may_reach >= number;
    }
    void end(std::uint32_t number) override {
        const std::lock_guard lock(facts_.mutex);
        EXPECT_GT(number, facts_.ended) << "a stream that went on would wait again";
        facts_.ended = number;
    }
    facts& facts_;
};

struct request_order : testing::Test {
    void let_reach(std::uint32_t number) {
        {
            const std::lock_guard lock(facts.mutex);
            facts.may_reach = number;
        }
        facts.changed.notify_all();
    }
    slow_turns::facts facts;
    std::atomic<int> late{0};
    region::request_thread requests{[this](int&) { return std::make_unique<slow_turns>(facts); },
                                    std::chrono::hours(1), [this] { ++late; }};
};

}  // namespace

TEST_F(request_order, work_begins_when_the_stream_has_come_to_it) {
    std::atomic<int> done{0};
    const auto first = requests.add(nullptr, [&] { return ++done; }),
               second = requests.add(nullptr, [&] { return ++done; });
    EXPECT_EQ(facts.begun, 2u);
    let_reach(1);
    EXPECT_EQ(first->wait(), 1);
    EXPECT_EQ(done, 1);
    EXPECT_FALSE(second->is_done());
    let_reach(2);
    EXPECT_EQ(second->wait(), 2);
    requests.drain();
    EXPECT_EQ(facts.ended, 2u);
}

TEST_F(request_order, a_turn_that_is_refused_leaves_no_request) {
    facts.refusal = -EBUSY;
    int done = 0;
    EXPECT_EQ(requests.add(nullptr, [&] { return ++done; })->wait(), -EBUSY);
    facts.refusal = 0;
    let_reach(1);
    EXPECT_EQ(requests.add(nullptr, [&] { return ++done; })->wait(), 1)
        << "it has the number that was refused";
}

// It waits for the request that is refused, if it comes in between.
TEST_F(request_order, a_turn_that_is_refused_keeps_no_thread_waiting) {
    facts.refusal = -EBUSY;
    std::atomic<bool> drained{false};
    std::thread waiter;
    facts.before_begin = [&] {
        waiter = std::thread([&] {
            requests.drain();
            drained = true;
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        EXPECT_FALSE(drained);
    };
    EXPECT_EQ(requests.add(nullptr, [] { return 1; })->wait(), -EBUSY);
    const bool has_ended = soon([&] { return drained.load(); });
    EXPECT_TRUE(has_ended);
    if (has_ended) waiter.join();
    else waiter.detach();
}

TEST_F(request_order, a_request_that_was_in_time_is_not_late_afterwards) {
    let_reach(1);
    std::atomic<int> told{0};
    constexpr std::chrono::milliseconds longest{200};
    region::request_thread hurried([this](int&) { return std::make_unique<slow_turns>(facts); },
                                   longest, [&] { ++told; });
    const std::int64_t result = hurried.add(nullptr, [] { return 5; })->wait();
    std::this_thread::sleep_for(2 * longest);
    if (result == 5) EXPECT_EQ(told, 0);
}

TEST_F(request_order, a_stream_that_fails_ends_its_request_without_work_and_goes_on) {
    facts.failure = -EIO;
    let_reach(9);
    int done = 0;
    EXPECT_EQ(requests.add(nullptr, [&] { return ++done; })->wait(), -EIO);
    requests.drain();
    EXPECT_EQ(done, 0);
    EXPECT_EQ(facts.ended, 1u);
}

namespace {

// Its requests are late after a millisecond.
struct late_requests : request_order {
    [[nodiscard]] std::uint32_t ended() {
        const std::lock_guard lock(facts.mutex);
        return facts.ended;
    }
    std::atomic<int> told{0};
    region::request_thread hurried{[this](int&) { return std::make_unique<slow_turns>(facts); },
                                   std::chrono::milliseconds(1), [this] { ++told; }};
};

}  // namespace

TEST_F(late_requests, a_stream_goes_on_without_a_request_that_takes_too_long) {
    let_reach(1);
    std::atomic<bool> go_on{false};
    const auto slow = hurried.add(nullptr, [&] {
        while (!go_on) std::this_thread::yield();
        return 5;
    });
    const auto next = hurried.add(nullptr, [] { return 6; });
    EXPECT_EQ(slow->wait(), -ETIMEDOUT);
    EXPECT_EQ(ended(), 1u);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(next->is_done()) << "its stream has not come to it";
    go_on = true;
    let_reach(2);
    const std::int64_t of_next = next->wait();
    EXPECT_TRUE(of_next == 6 || of_next == -ETIMEDOUT) << of_next;  // on a busy machine
    EXPECT_EQ(slow->wait(), -ETIMEDOUT);
    hurried.refuse();
    EXPECT_GE(told, 1);
    EXPECT_EQ(ended(), 2u);
}

// The driver may hold up the work of the first until the stream is past all of them. The words of
// the streams may be those of other requests by the time that the later ones are served.
TEST_F(late_requests, a_stream_goes_on_without_those_behind_a_late_one) {
    let_reach(1);
    std::atomic<bool> give_up{false};
    std::atomic<int> served{0};
    const auto first = hurried.add(nullptr, [&] {
        while (ended() < 3 && !give_up) std::this_thread::yield();
        return 1;
    });
    const auto second = hurried.add(nullptr, [&] { return ++served; }),
               third = hurried.add(nullptr, [&] { return ++served; });
    EXPECT_EQ(first->wait(), -ETIMEDOUT);
    for (const std::uint32_t number : {2, 3}) {
        let_reach(number);
        EXPECT_TRUE(soon([&] { return ended() == number || give_up; })) << number;
        if (ended() != number) give_up = true;
    }
    if (!give_up) let_reach(0);
    EXPECT_EQ(second->wait(), -ETIMEDOUT);
    EXPECT_EQ(third->wait(), -ETIMEDOUT);
    let_reach(9);
    hurried.drain();
    EXPECT_EQ(served, 2) << "they go on beside the stream";
    EXPECT_EQ(ended(), 3u);
    EXPECT_TRUE(soon([&] { return told == 3; }));
    EXPECT_NE(hurried.add(nullptr, [] { return 7; })->wait(), 0) << "and the next is served";
    EXPECT_EQ(ended(), 4u);
}

TEST_F(request_order, what_is_refused_is_taken_again_after_allow) {
    let_reach(9);
    requests.refuse();
    EXPECT_EQ(requests.add(nullptr, [] { return 1; })->wait(), -EBADF);
    requests.allow();
    EXPECT_EQ(requests.add(nullptr, [] { return 1; })->wait(), 1);
}

}  // namespace penstock::test
