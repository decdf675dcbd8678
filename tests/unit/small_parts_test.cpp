// Small things: hashes, counters, the doorbell, error texts, statistics as JSON, lines that are
// said late, architectures of GPUs.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "device/gpu_code.hpp"
#include "penstock/base/hash.hpp"
#include "penstock/engine/counters.hpp"
#include "penstock/error.hpp"
#include "penstock/group/doorbell.hpp"
#include "penstock/group/lane.hpp"
#include "penstock/statistics.hpp"
#include "runtime/late_line.hpp"
#include "unit/hand_cache.hpp"

namespace penstock::test {

TEST(hash, every_bit_of_a_name_counts) {
    const std::string name = "directory/file.bin";
    const auto hash = [](const std::string& s) {
        return hash_name(s.data(), static_cast<std::uint32_t>(s.size()));
    };
    std::set<std::uint64_t> seen{hash(name)};
    for (std::size_t i = 0; i < name.size(); ++i)
        for (int bit = 0; bit < 8; ++bit) {
            std::string other = name;
            other[i] = static_cast<char>(other[i] ^ (1 << bit));
            EXPECT_TRUE(seen.insert(hash(other)).second) << i << " " << bit;
        }
    for (std::size_t length = 0; length < name.size(); ++length)
        EXPECT_TRUE(seen.insert(hash(name.substr(0, length))).second);
    EXPECT_TRUE(seen.insert(hash(name + '\0')).second) << "the length counts too";
    EXPECT_EQ(seen.count(0), 0u);
}

TEST(hash, spreads_small_numbers_over_low_bits) {
    std::vector<int> buckets(64);
    for (std::uint64_t i = 0; i < 6400; ++i) ++buckets[mix64(i) % 64];
    for (const int n : buckets) {
        EXPECT_GT(n, 50);
        EXPECT_LT(n, 150);
    }
}

TEST(counters, latency_buckets_are_powers_of_two) {
    using engine::latency_bucket;
    EXPECT_EQ(latency_bucket(0), 0u);
    EXPECT_EQ(latency_bucket(1), 0u);
    for (std::uint32_t i = 1; i < 31; ++i) {
        EXPECT_EQ(latency_bucket(std::uint64_t{1} << i), i);
        EXPECT_EQ(latency_bucket((std::uint64_t{1} << i) - 1), i - 1);
    }
    EXPECT_EQ(latency_bucket(std::uint64_t{1} << 31), 31u);
    EXPECT_EQ(latency_bucket(~std::uint64_t{0}), 31u) << "the last holds the rest";
}

TEST(counters, add_up_from_many_threads) {
    hand_cache c;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i)
        threads.emplace_back([&] {
            for (int k = 0; k < 10000; ++k) engine::count(lane{}, c.view, engine::count_hits, 2);
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(c.counted(engine::count_hits), 80000u);
}

TEST(doorbell, a_sleeper_is_woken_before_its_time) {
    host_doorbell bell;
    bell.begin_sleep();
    std::thread ringer([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        bell.ring();
    });
    EXPECT_TRUE(bell.wait(600'000'000'000));
    ringer.join();
}

TEST(doorbell, sleeps_its_time_without_a_ring) {
    host_doorbell bell;
    bell.ring();  // no thread sleeps: not remembered
    bell.begin_sleep();
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(bell.wait(20'000'000));
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(19));
    bell.ring();  // before the wait, but after the sleeper announced itself: must not be lost
    EXPECT_TRUE(bell.wait(600'000'000'000));
}

TEST(error_text, names_the_code) {
    EXPECT_EQ(error_text(0), "no error");
    EXPECT_EQ(error_text(5), "no error") << "a count is no error";
    for (const int code : {ENOENT, ESTALE, ENOBUFS, ETIMEDOUT, ECANCELED, ESHUTDOWN, EOPNOTSUPP,
                           ENFILE, EUNATCH, EIO})
        EXPECT_NE(error_text(-code).find(strerrorname_np(code)), std::string::npos)
            << error_text(-code);
    EXPECT_NE(error_text(-99999).find("99999"), std::string::npos);
}

TEST(statistics, json_has_every_field_once_and_balances) {
    statistics s;
    s.hits = 1;
    s.misses = UINT64_MAX;
    s.batches = 19;
    s.batch_size[15] = 7;
    s.latency_ns[31] = 8;
    const std::string json = s.to_json();
    EXPECT_EQ(json.front(), '{');
    EXPECT_EQ(json.back(), '}');
    for (const char* key : {"hits",
                            "misses",
                            "load_waits",
                            "evictions",
                            "clock_steps",
                            "frame_waits",
                            "ring_waits",
                            "copy_retries",
                            "requests",
                            "opens",
                            "open_requests",
                            "errors",
                            "bytes_loaded",
                            "bytes_read",
                            "file_reads",
                            "file_read_bytes",
                            "file_read_errors",
                            "direct_reads",
                            "registered_reads",
                            "bad_requests",
                            "batches",
                            "batch_size",
                            "latency_ns"}) {
        const std::string quoted = "\"" + std::string(key) + "\":";
        const std::size_t at = json.find(quoted);
        EXPECT_NE(at, std::string::npos) << key;
        EXPECT_EQ(json.find(quoted, at + 1), std::string::npos) << key;
    }
    EXPECT_NE(json.find("\"hits\":1,"), std::string::npos);
    EXPECT_NE(json.find("\"misses\":18446744073709551615,"), std::string::npos);
    EXPECT_NE(json.find("\"batch_size\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,7]"), std::string::npos);
    EXPECT_NE(json.find(",8]}"), std::string::npos);
    EXPECT_EQ(json.find(",,"), std::string::npos);
    EXPECT_EQ(json.find("[,"), std::string::npos);
}

using host::late_line;

TEST(late_line, a_long_wait_is_said_once) {
    std::promise<std::string> said;
    const late_line waiting("the driver translates", std::chrono::milliseconds(0),
                            [&](const std::string& line) { said.set_value(line); });
    EXPECT_EQ(said.get_future().get(), "the driver translates");
}

TEST(late_line, a_short_wait_is_not_said) {
    bool said = false;
    // Its end does not wait for the hour.
    {
        const late_line waiting("a line", std::chrono::hours(1),
                                [&](const std::string&) { said = true; });
    }
    EXPECT_FALSE(said);
}

TEST(late_line, an_empty_line_is_not_said) {
    bool said = false;
    {
        const late_line none("", std::chrono::milliseconds(0),
                             [&](const std::string&) { said = true; });
    }
    EXPECT_FALSE(said);
}

// For which GPUs a build has code, by the list of architectures that it was made for.
using host::code_for;
using host::gpu_code;

TEST(gpu_code, machine_code_runs_within_its_major_number) {
    EXPECT_EQ(code_for("80-real", 80), gpu_code::machine);
    EXPECT_EQ(code_for("80-real", 86), gpu_code::machine);
    EXPECT_EQ(code_for("86-real", 80), gpu_code::none);
    EXPECT_EQ(code_for("80-real", 90), gpu_code::none);
    EXPECT_EQ(code_for("100-real", 103), gpu_code::machine);
    EXPECT_EQ(code_for("100-real", 120), gpu_code::none);
}

TEST(gpu_code, intermediate_code_serves_all_later_gpus) {
    EXPECT_EQ(code_for("75-virtual,90-real", 75), gpu_code::intermediate);
    EXPECT_EQ(code_for("75-virtual,90-real", 89), gpu_code::intermediate);
    EXPECT_EQ(code_for("75-virtual,90-real", 90), gpu_code::machine);
    EXPECT_EQ(code_for("90-real,75-virtual", 120), gpu_code::intermediate);
    EXPECT_EQ(code_for("75-virtual,90-real", 61), gpu_code::none);
}

TEST(gpu_code, an_entry_of_no_kind_has_both) {
    EXPECT_EQ(code_for("80", 86), gpu_code::machine);
    EXPECT_EQ(code_for("80", 90), gpu_code::intermediate);
    EXPECT_EQ(code_for("80", 75), gpu_code::none);
}

TEST(gpu_code, suffixes_narrow_it) {
    EXPECT_EQ(code_for("90a", 90), gpu_code::machine);
    EXPECT_EQ(code_for("90a-virtual", 100), gpu_code::none);
    EXPECT_EQ(code_for("100a-real", 103), gpu_code::none);
    EXPECT_EQ(code_for("100f-real", 103), gpu_code::machine);
    EXPECT_EQ(code_for("100f-virtual", 103), gpu_code::intermediate);
    EXPECT_EQ(code_for("100f-virtual", 120), gpu_code::none);
}

TEST(gpu_code, lists_that_name_no_architecture_are_unknown) {
    for (const char* const list :
         {"", "native", "all-major", "OFF", "90-real,all", "90-reel", "90x"})
        EXPECT_EQ(code_for(list, 80), gpu_code::unknown) << list;
}

}  // namespace penstock::test
