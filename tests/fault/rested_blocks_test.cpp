// Blocks between nodes, put by processes that did not wait for a file's rest, because another
// process of their machine had seen it before: each read is what the last writer wrote. Each canary
// breaks a part of the rule, puts a block of a state that left no trace, and reads it.
#include <map>
#include <random>
#include <utility>

#include "fault/network_files.hpp"
#include "fault/scenario.hpp"
#include "os/file_kind.hpp"
#include "store/agent_store.hpp"
#include "unit/test_agent.hpp"

namespace penstock::fault {

namespace {

constexpr std::int64_t one_second = 1'000'000'000;

enum class rule {
    as_it_is,
    of_any_version,   // a file has rested since any facts of it were known
    of_any_question,  // and also before it was known at all
};

// The process of a machine that lives longer than the others, as an agent does.
class long_lived final : public host::rest_memory {
public:
    long_lived(const network_files& files, rule r) : files_(files), rule_(r) {}

    std::int64_t known_since_ns(const host::file_identity& facts) noexcept override {
        const std::int64_t now = files_.now_ns();
        const auto [known, is_new] = known_.try_emplace(facts.inode, facts, now);
        if (rule_ == rule::of_any_question) return 0;
        if (!is_new && rule_ == rule::as_it_is && !(known->second.first == facts))
            known->second = {facts, now};
        return known->second.second;
    }

private:
    const network_files& files_;
    const rule rule_;
    std::map<std::uint64_t, std::pair<host::file_identity, std::int64_t>> known_;
};

// A file of a network file system, a store, and processes that read it and end, one after the
// other.
class short_jobs {
public:
    short_jobs(const network_shape& shape, rule r)
        : files_(shape),
          agent_(folder_ / "agent"),
          other_(std::make_shared<long_lived>(files_, r)) {
        test::write_file(path(), test::pattern(0, page));
        files_.changed_elsewhere(path());
    }

    void write() {
        test::write_file(path(), test::pattern(++version_, page));
        files_.changed_elsewhere(path());
    }
    void wait(std::int64_t ns) { files_.wait(ns); }
    void read() {
        files_.begin_anew(other_);
        host::runtime_hooks hooks;
        hooks.env = &files_;
        options o = test::small_options(folder_, 1);
        o.block_store = folder_ / "agent";
        o.block_store_wait_ms = 60000;
        const auto rt = test::make_runtime(o, hooks);
        const int fd = rt->open("data");
        std::vector<std::uint8_t> got(page);
        EXPECT_EQ(rt->read(fd, got.data(), page, 0), static_cast<std::int64_t>(page));
        EXPECT_EQ(rt->close(fd), 0);
        if (got != test::pattern(version_, page)) ++stale_;
        hits_ += rt->stats().store_hits;
    }
    void do_at_random(std::uint64_t seed, int steps) {
        std::mt19937_64 random(seed);
        for (int i = 0; i < steps; ++i) {
            switch (random() % 6) {
                case 0: write(); break;
                case 1: wait(static_cast<std::int64_t>(random() % 3'000'000'000)); break;
                case 2: wait(host::server_grain_ns); break;
                case 3: wait(static_cast<std::int64_t>(random() % 10'000'000)); break;
                default: read(); break;
            }
        }
    }
    [[nodiscard]] std::uint64_t stale() const { return stale_; }
    [[nodiscard]] std::uint64_t hits() const { return hits_; }
    [[nodiscard]] std::size_t put() { return agent_.objects(); }

private:
    [[nodiscard]] std::string path() const { return folder_ / "data"; }

    const temporary_folder folder_;
    network_files files_;
    test::test_agent agent_;
    const std::shared_ptr<long_lived> other_;
    std::uint64_t version_ = 0, stale_ = 0, hits_ = 0;
};

}  // namespace

TEST(rested_blocks, what_an_older_process_has_seen_rest_is_put_and_never_old) {
    std::uint64_t seed = 1;
    for (const std::int64_t ahead : {-2 * one_second, 1'000'000 * one_second})
        for (const std::int64_t grain : {std::int64_t{10'000'000}, 2 * one_second}) {
            short_jobs jobs({.grain_ns = grain, .server_ahead_ns = ahead}, rule::as_it_is);
            jobs.do_at_random(++seed, 120);
            EXPECT_EQ(jobs.stale(), 0u) << "server ahead " << ahead << ", grain " << grain;
            EXPECT_GT(jobs.hits(), 0u);
        }
}

TEST(rested_blocks, a_process_that_begins_after_the_rest_puts_at_once) {
    short_jobs jobs({.server_ahead_ns = -2 * one_second}, rule::as_it_is);
    jobs.read();
    EXPECT_EQ(jobs.put(), 0u);  // seen for the first time
    jobs.wait(host::server_grain_ns - 1);
    jobs.read();
    EXPECT_EQ(jobs.put(), 0u);
    jobs.wait(1);
    jobs.read();
    EXPECT_EQ(jobs.put(), 1u);
    jobs.write();
    jobs.read();
    EXPECT_EQ(jobs.put(), 1u);
    EXPECT_EQ(jobs.stale(), 0u);
}

TEST(rested_blocks, canary_a_rest_under_other_facts_puts_old_blocks) {
    short_jobs jobs({.grain_ns = 2 * one_second}, rule::of_any_version);
    jobs.do_at_random(1, 400);
    EXPECT_GT(jobs.stale(), 0u);
}

TEST(rested_blocks, canary_a_rest_before_the_first_answer_puts_old_blocks) {
    short_jobs jobs({.grain_ns = 2 * one_second}, rule::of_any_question);
    jobs.do_at_random(1, 400);
    EXPECT_GT(jobs.stale(), 0u);
}

TEST(agent_rests, a_length_of_time_counts_back_from_its_answer) {
    const temporary_folder folder;
    test::test_agent agent(folder / "agent");
    host::agent_rests rests(folder / "agent", 60 * one_second);
    const auto now = [] { return static_cast<std::int64_t>(penstock::detail::host_now_ns()); };
    for (const std::int64_t known : {std::int64_t{0}, 7 * one_second}) {
        agent.say_known_for(known);
        const std::int64_t before = now(), since = rests.known_since_ns({1, 2, 3, 4, 5});
        EXPECT_GE(since, before - known);
        EXPECT_LE(since, now() - known);
    }
    agent.behave(test::manner::fails);
    EXPECT_EQ(rests.known_since_ns({1, 2, 3, 4, 5}), host::rest_memory::not_known);
    host::agent_rests nothing_there(folder / "no", one_second);
    EXPECT_EQ(nothing_there.known_since_ns({1, 2, 3, 4, 5}), host::rest_memory::not_known);
}

TEST(agent_rests, a_key_has_the_file_before_its_facts) {
    const host::file_identity facts{1, 2, 3, 4, 5};
    const host::block_key key = host::key_of_facts(facts);
    const auto half = [](const host::block_key& of, bool second_half) {
        return std::vector<std::uint8_t>(of.begin() + (second_half ? 16 : 0),
                                         of.begin() + (second_half ? 32 : 16));
    };
    for (int part = 0; part < 5; ++part) {
        host::file_identity other = facts;
        if (part == 0) ++other.device;
        if (part == 1) ++other.inode;
        if (part == 2) ++other.size_bytes;
        if (part == 3) ++other.modified_ns;
        if (part == 4) ++other.changed_ns;
        const host::block_key changed = host::key_of_facts(other);
        EXPECT_EQ(half(changed, false) == half(key, false), part >= 2) << part;
        EXPECT_EQ(half(changed, true) == half(key, true), part < 2) << part;
    }
}

}  // namespace penstock::fault
