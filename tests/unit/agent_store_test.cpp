// What the two ends of a connection to an agent make of each other: an agent that was there
// earlier, one that lies, and what it says of files that rest.
#include <algorithm>
#include <cerrno>
#include <chrono>

#include "fault/faulty_environment.hpp"
#include "store/agent_store.hpp"
#include "store/warm.hpp"
#include "unit/support.hpp"
#include "unit/test_agent.hpp"

namespace penstock::test {

namespace {

using host::agent_store;
using host::block_key;

constexpr std::uint64_t wait_ns = 600'000'000'000;

class agent_stores : public testing::Test {
protected:
    agent_stores() { key.fill(7); }
    int put() { return store.put(key, object, false, wait_ns); }
    std::int64_t get() {
        std::fill(there.begin(), there.end(), std::byte{0});
        return store.get(key, there, wait_ns, false);
    }

    const temporary_folder folder;
    test_agent agent{folder / "agent"};
    agent_store store{folder / "agent"};
    block_key key;
    const std::vector<std::byte> object = std::vector<std::byte>(1000, std::byte{3});
    std::vector<std::byte> there = std::vector<std::byte>(1000);
};

// A store of the test's own, which does something else when it is asked.
struct busy_store final : host::block_store {
    std::int64_t get(const block_key&, std::span<std::byte> to, std::uint64_t, bool) override {
        if (meanwhile) std::exchange(meanwhile, nullptr)();
        if (bad_bytes == 0) return -ENOENT;
        std::fill_n(to.begin(), bad_bytes, std::byte{1});
        return static_cast<std::int64_t>(bad_bytes);
    }
    int put(const block_key&, std::span<const std::byte>, bool replaces, std::uint64_t) override {
        ++puts;
        replaced += replaces ? 1 : 0;
        return 0;
    }

    std::function<void()> meanwhile;
    std::uint64_t bad_bytes = 0;
    int puts = 0, replaced = 0;
};

}  // namespace

TEST_F(agent_stores, a_connection_to_an_agent_of_earlier_costs_no_failure) {
    ASSERT_EQ(put(), 0);
    agent.kill();
    agent.start();
    EXPECT_EQ(get(), 1000);
    EXPECT_EQ(there, object);
    agent.kill();
    EXPECT_EQ(get(), -ECONNREFUSED) << "but for one that is not there";
}

TEST_F(agent_stores, an_answer_to_another_request_is_none) {
    ASSERT_EQ(put(), 0);
    agent.behave(manner::misnumbers);
    EXPECT_EQ(get(), -EPROTO);
    agent.behave(manner::honest);
    EXPECT_EQ(get(), 1000) << "over another connection";
}

TEST_F(agent_stores, an_object_that_is_larger_than_the_room_is_none) {
    ASSERT_EQ(put(), 0);
    there.resize(999);
    EXPECT_EQ(get(), -EPROTO);
    there.resize(1000);
    EXPECT_EQ(get(), 1000);
}

TEST_F(agent_stores, of_files_that_rest_tell_since_when) {
    constexpr std::int64_t rest_ns = 5'000'000'000;
    host::agent_rests rests(folder / "agent", wait_ns);
    agent.say_known_for(rest_ns);
    const auto now_ns = [] { return static_cast<std::int64_t>(detail::host_now_ns()); };
    const std::int64_t before = now_ns(), since = rests.known_since_ns({1, 2, 3, 4, 5});
    EXPECT_GE(since, before - rest_ns);
    EXPECT_LE(since, now_ns() - rest_ns);
}

TEST_F(agent_stores, of_files_that_rest_leave_an_agent_alone_that_failed) {
    using clock = std::chrono::steady_clock;
    constexpr auto pause = std::chrono::seconds(10);
    host::agent_rests rests(folder / "agent", wait_ns);
    agent.behave(manner::fails);
    const auto failed = clock::now();
    EXPECT_EQ(rests.known_since_ns({1, 2, 3, 4, 5}), host::rest_memory::not_known);
    agent.behave(manner::honest);
    const std::int64_t again = rests.known_since_ns({1, 2, 3, 4, 5});
    if (clock::now() > failed + pause) GTEST_SKIP() << "the machine was too busy";
    EXPECT_EQ(again, host::rest_memory::not_known);
}

TEST_F(agent_stores, a_block_of_a_file_that_changes_while_it_is_warmed_is_not_put) {
    const std::string path = folder / "data";
    write_file(path, pattern(1, 5000));
    let_files_settle();
    fault::faulty_environment env;
    busy_store busy;
    busy.meanwhile = [&] { write_file(path, pattern(2, 5000)); };
    host::warm_counts counts;
    EXPECT_EQ(host::warm_blocks(env, path, {"", wait_ns}, {0, 1, 1}, busy, counts).code, -EAGAIN);
    EXPECT_EQ(busy.puts, 0);
}

TEST_F(agent_stores, a_bad_block_is_replaced_where_a_file_is_warmed) {
    const std::string path = folder / "data";
    write_file(path, pattern(1, 5000));
    let_files_settle();
    fault::faulty_environment env;
    busy_store busy;
    for (const bool is_bad : {false, true}) {
        busy.bad_bytes = is_bad ? 5000 : 0;
        host::warm_counts counts;
        EXPECT_TRUE(host::warm_blocks(env, path, {"", wait_ns}, {0, 1, 1}, busy, counts).ok());
        EXPECT_EQ(counts.put, 1u);
        EXPECT_EQ(busy.replaced, is_bad ? 1 : 0);
    }
}

}  // namespace penstock::test
