// A batch whose handler throws ends as others do: its requests fail, and those that come are done.
#include "buffer/pool/combiner.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <vector>

namespace penstock::test {

namespace {

struct counted_request {
    int code = 0;
    bool done = false;  // the combiner's
};

// Outlives the test that owns it where a thread waits in it for ever.
struct scarce_combiner {
    using combiner = buffer::combiner<counted_request>;

    int throws_left = 0;  // handlers that throw, of those to come
    std::size_t handled = 0;
    combiner all{8, 8, std::chrono::microseconds(0), [this](const combiner::batch& batch) {
                     if (throws_left > 0) {
                         --throws_left;
                         throw std::bad_alloc();
                     }
                     for (counted_request* const each : batch) each->code = 0;
                     handled += batch.size();
                 }};
};

// What a submit in another thread gives; nothing where it has not returned after a minute.
std::optional<int> submitted(const std::shared_ptr<scarce_combiner>& shared) {
    const auto asked = std::make_shared<counted_request>();
    std::promise<void> ended;
    std::future<void> has_ended = ended.get_future();
    std::thread([shared, asked, ended = std::move(ended)]() mutable {
        shared->all.submit(*asked);
        ended.set_value();
    }).detach();
    if (has_ended.wait_for(std::chrono::minutes(1)) != std::future_status::ready) return {};
    return asked->code;
}

}  // namespace

TEST(combiner, a_handler_that_throws_fails_its_batch_alone) {
    const auto shared = std::make_shared<scarce_combiner>();
    shared->throws_left = 1;
    counted_request posted, asked;
    shared->all.post(posted);
    EXPECT_NO_THROW(shared->all.submit(asked));
    EXPECT_EQ(asked.code, -ENOMEM);
    EXPECT_EQ(posted.code, -ENOMEM);
    EXPECT_TRUE(posted.done);
    EXPECT_TRUE(shared->all.is_idle());
    EXPECT_EQ(submitted(shared), std::optional<int>(0));
    EXPECT_EQ(shared->handled, 1u);
}

TEST(combiner, a_posted_request_fails_where_another_thread_helps) {
    const auto shared = std::make_shared<scarce_combiner>();
    shared->throws_left = 1;
    counted_request posted;
    shared->all.post(posted);
    EXPECT_NO_THROW(shared->all.help());
    shared->all.finish(posted);
    EXPECT_EQ(posted.code, -ENOMEM);
    EXPECT_FALSE(shared->all.has_posted());
    EXPECT_EQ(submitted(shared), std::optional<int>(0));
}

// What did not fit into a batch waits for the next thread that helps.
TEST(combiner, tells_of_posted_requests_until_all_are_taken) {
    std::size_t handled = 0;
    buffer::combiner<counted_request> all{8, 2, std::chrono::microseconds(0),
                                          [&](const auto& batch) { handled += batch.size(); }};
    std::vector<counted_request> many(5);
    for (counted_request& each : many) all.post(each);
    for (const std::size_t done : {2u, 4u, 5u}) {
        EXPECT_TRUE(all.has_posted()) << done;
        all.help();
        EXPECT_EQ(handled, done);
    }
    EXPECT_FALSE(all.has_posted());
    for (const counted_request& each : many) EXPECT_TRUE(each.done);
}

// More than it was made for come, as those of threads that have no session.
TEST(combiner, does_as_many_as_come) {
    const auto shared = std::make_shared<scarce_combiner>();
    std::vector<counted_request> many(20);
    std::vector<counted_request*> asked;
    for (counted_request& each : many) asked.push_back(&each);
    shared->all.submit(asked.data(), asked.size());
    EXPECT_EQ(shared->handled, many.size());
}

}  // namespace penstock::test
