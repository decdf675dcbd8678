// Litmus tests: each promises one order of docs/protocol/consistency.md, among programs of a mount,
// by read and write or through mappings, and regions, while all run at once. In each round every
// word gets the round's number from one writer; what is forbidden is counted and must not have
// happened.
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <functional>
#include <thread>

#include "mount/mount.hpp"
#include "mount/program.hpp"
#include "hub/hub.hpp"
#include "penstock/buffer.hpp"
#include "region/support.hpp"

namespace penstock::test {

namespace {

constexpr std::uint64_t x = 24, y = 3 * 4096 + 8,
                        file_bytes = 8 * 4096;           // words in different pages
constexpr auto longest_wait = std::chrono::minutes(10);  // only ends what hangs
constexpr int tries_at_once = 1000;                      // then others get the processor

struct shape {
    backend where;
    bool mapped;
    bool buffered = false;
};

class litmus : public testing::TestWithParam<shape> {
protected:
    void SetUp() override {
        if (const status s = mount::can_mount(); !s) GTEST_SKIP() << s.message;
        if (GetParam().where == backend::gpu && !gpu_is_there())
            GTEST_SKIP() << "no GPU in this machine";
        for (const char* name : {"source", "point"})
            std::filesystem::create_directory(folder_ / name);
        write_file(folder_ / "source/f", std::vector<std::uint8_t>(file_bytes, 0));
        runtime_ = make_runtime(region_runtime(folder_, GetParam().where));
        const buffer_options small{.where = GetParam().where,
                                   .host_bytes = 24 << 13,
                                   .device_bytes = 8 << 13,
                                   .page_bytes = 1 << 13,
                                   .sessions = 4,
                                   .fixed_pages = 1};
        if (GetParam().buffered) {
            ASSERT_TRUE(buffer_pool::make(small, pool_).ok());
        }
        const status s = mount_directory(*runtime_, folder_ / "source", folder_ / "point",
                                         {.buffer = pool_.get()}, mount_);
        ASSERT_TRUE(s.ok()) << s.message;
        for (auto& region : regions_)
            region = map_whole(*runtime_, folder_ / "source/f", protection::read_write,
                               {.outside_writers = false});
        for (program* child : {&one_, &two_}) {
            ASSERT_GE(child->open(folder_ / "point/f"), 0);
            ASSERT_EQ(GetParam().mapped ? child->map(file_bytes) : 0, 0);
        }
    }
    void TearDown() override {
        for (auto& region : regions_) region.reset();
        if (mount_ == nullptr) return;
        EXPECT_EQ(one_.close_file(), 0);
        EXPECT_EQ(two_.close_file(), 0);
        EXPECT_EQ(mount_->unmount(), 0);
    }

    // What programs and kernels do.
    void put(program& p, std::uint64_t word, std::uint64_t value) const {
        EXPECT_GE(GetParam().mapped ? p.store(word, value) : p.write(word, value), 0);
    }
    std::uint64_t get(program& p, std::uint64_t word) const {
        const program::answer seen = GetParam().mapped ? p.load(word) : p.read(word);
        EXPECT_GE(seen.code, 0);
        return seen.value;
    }
    void put(int region, std::uint64_t word, std::uint64_t value) {
        std::vector<std::uint8_t> bytes(8);
        std::memcpy(bytes.data(), &value, 8);
        poke(*regions_[region], GetParam().where, word, bytes);
    }
    std::uint64_t get(int region, std::uint64_t word) {
        std::uint64_t out = 0;
        std::memcpy(&out, peek(*regions_[region], GetParam().where, word, 8).data(), 8);
        return out;
    }
    void acquire(int region) { EXPECT_GE(regions_[region]->acquire(), 0); }
    void release(int region) { EXPECT_GE(regions_[region]->release(), 0); }
    void put_and_release(int region, std::uint64_t word, std::uint64_t value) {
        put(region, word, value);
        release(region);
    }
    // Until the word has the value; that it never gets it is an error too.
    void wait_for(program& p, std::uint64_t word, std::uint64_t value) {
        wait_until([&] { return get(p, word) == value; });
    }
    void wait_for(int region, std::uint64_t word, std::uint64_t value) {
        wait_until([&] {
            if (get(region, word) == value) return true;
            acquire(region);
            return false;
        });
    }
    // The writer may have no processor for long, so it is time that ends the wait and not tries.
    template <typename Condition>
    static void wait_until(const Condition& there) {
        const auto until = std::chrono::steady_clock::now() + longest_wait;
        for (int tries = 1; !there(); ++tries) {
            if (tries < tries_at_once) continue;
            ASSERT_LT(std::chrono::steady_clock::now(), until);
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        }
    }

    using side = std::function<void(std::uint64_t)>;
    // side(round), each on a thread, which begin each round together.
    static void run(const std::vector<side>& sides) {
        const std::uint64_t rounds = GetParam().where == backend::gpu ? 100 : 200;
        std::barrier together(static_cast<std::ptrdiff_t>(sides.size()));
        std::vector<std::thread> all;
        all.reserve(sides.size());
        for (const side& body : sides)
            all.emplace_back([&] {
                for (std::uint64_t round = 1; round <= rounds; ++round) {
                    together.arrive_and_wait();
                    body(round);
                }
            });
        for (std::thread& thread : all) thread.join();
    }

    program one_, two_;  // before there are threads
    const temporary_folder folder_;
    std::unique_ptr<runtime> runtime_;
    std::unique_ptr<buffer_pool> pool_;  // null: the mount has no buffer
    std::unique_ptr<file_mount> mount_;
    std::array<std::unique_ptr<file_region>, 2> regions_;
    std::atomic<std::uint64_t> forbidden_{0};
};

}  // namespace

// Message passing: a reader that sees the second sees the first.
TEST_P(litmus, from_a_program_to_a_region) {
    run({[&](std::uint64_t n) { put(one_, x, n), put(one_, y, n); },
         [&](std::uint64_t n) {
             wait_for(0, y, n);
             acquire(0);  // what it brings may be from before the first; an acquire that begins
                          // after the second was seen has it
             forbidden_ += get(0, x) != n;
         }});
    EXPECT_EQ(forbidden_, 0u);
}

TEST_P(litmus, from_a_region_to_a_program) {
    run({[&](std::uint64_t n) { put_and_release(0, x, n), put_and_release(0, y, n); },
         [&](std::uint64_t n) {
             wait_for(one_, y, n);
             forbidden_ += get(one_, x) != n;
         }});
    EXPECT_EQ(forbidden_, 0u);
}

TEST_P(litmus, from_a_region_to_another) {
    run({[&](std::uint64_t n) { put_and_release(0, x, n), put_and_release(0, y, n); },
         [&](std::uint64_t n) {
             wait_for(1, y, n);
             acquire(1);
             forbidden_ += get(1, x) != n;
         }});
    EXPECT_EQ(forbidden_, 0u);
}

// Causes before effects, over three: a reader that sees the answer sees the value that was
// answered.
TEST_P(litmus, from_a_program_over_a_region_to_a_program) {
    run({[&](std::uint64_t n) { put(one_, x, n); },
         [&](std::uint64_t n) {
             wait_for(0, x, n);
             put_and_release(0, y, n);
         },
         [&](std::uint64_t n) {
             wait_for(two_, y, n);
             forbidden_ += get(two_, x) != n;
         }});
    EXPECT_EQ(forbidden_, 0u);
}

TEST_P(litmus, from_a_region_over_a_program_to_a_region) {
    run({[&](std::uint64_t n) { put_and_release(0, x, n); },
         [&](std::uint64_t n) {
             wait_for(one_, x, n);
             put(one_, y, n);
         },
         [&](std::uint64_t n) {
             wait_for(1, y, n);
             acquire(1);
             forbidden_ += get(1, x) != n;
         }});
    EXPECT_EQ(forbidden_, 0u);
}

// Store buffering: of two that write and then look at each other's, one sees it.
TEST_P(litmus, a_program_and_a_region_do_not_miss_each_other) {
    std::atomic<std::uint64_t> of_program{0}, of_region{0};
    std::barrier both(2);
    run({[&](std::uint64_t n) {
             put(one_, x, n);
             of_program = get(one_, y);
             both.arrive_and_wait();
             forbidden_ += of_program != n && of_region != n;
             both.arrive_and_wait();
         },
         [&](std::uint64_t n) {
             put_and_release(0, y, n);
             acquire(0);
             of_region = get(0, x);
             both.arrive_and_wait();
             both.arrive_and_wait();
         }});
    EXPECT_EQ(forbidden_, 0u);
}

TEST_P(litmus, two_regions_do_not_miss_each_other) {
    std::atomic<std::uint64_t> of[2]{};
    std::barrier both(2);
    const auto side = [&](int region, std::uint64_t own, std::uint64_t other) {
        return [&, region, own, other](std::uint64_t n) {
            put_and_release(region, own, n);
            acquire(region);
            of[region] = get(region, other);
            both.arrive_and_wait();
            if (region == 0) forbidden_ += of[0] != n && of[1] != n;
            both.arrive_and_wait();
        };
    };
    run({side(0, x, y), side(1, y, x)});
    EXPECT_EQ(forbidden_, 0u);
}

// One word: no reader sees it go back. A program's word by `read` may go back by the one write that
// is on its way: the kernel shows a write from its page before the mount has it, and drops the page
// when a release has changed the file's times, so that the next read may pass the write by.
TEST_P(litmus, a_word_never_goes_back) {
    const std::uint64_t on_its_way = GetParam().mapped ? 0 : 1;
    std::atomic<int> writers{2};
    run({[&](std::uint64_t n) {
             if (n != 1) return;
             for (std::uint64_t i = 1; i <= 300; ++i) put(one_, x, i);
             --writers;
         },
         [&](std::uint64_t n) {
             if (n != 1) return;
             for (std::uint64_t i = 1; i <= 300; ++i) put_and_release(0, y, i);
             --writers;
         },
         [&](std::uint64_t n) {
             for (std::uint64_t before[2]{}; n == 1 && writers != 0;)
                 for (const int i : {0, 1}) {
                     const std::uint64_t now = get(two_, i == 0 ? x : y);
                     forbidden_ += now + (i == 0 ? on_its_way : 0) < before[i];
                     before[i] = std::max(before[i], now);
                 }
         },
         [&](std::uint64_t n) {
             for (std::uint64_t before[2]{}; n == 1 && writers != 0;) {
                 acquire(1);
                 for (const int i : {0, 1}) {
                     const std::uint64_t now = get(1, i == 0 ? x : y);
                     forbidden_ += now < before[i];
                     before[i] = now;
                 }
             }
         }});
    EXPECT_EQ(forbidden_, 0u);
}

// The canary: a mount that takes nothing from the kernel lets programs see what was before.
TEST_P(litmus, a_mount_that_is_told_nothing_is_found_out) {
    if (!GetParam().mapped) GTEST_SKIP() << "by read the kernel itself looks at the file's times";
    EXPECT_EQ(get(one_, x), 0u);
    host::hub& shared = host::hub::of_process();
    for (const auto& views : shared.views()) shared.remove_views(*views);
    put_and_release(0, x, 1);
    EXPECT_EQ(get(one_, x), 0u);
}

INSTANTIATE_TEST_SUITE_P(on, litmus,
                         testing::Values(shape{backend::cpu, false}, shape{backend::cpu, true},
                                         shape{backend::cpu, false, true},
                                         shape{backend::cpu, true, true},
                                         shape{backend::gpu, false}, shape{backend::gpu, true}),
                         [](const testing::TestParamInfo<shape>& info) {
                             return std::string(info.param.where == backend::gpu ? "gpu" : "cpu") +
                                    (info.param.mapped ? "_by_mappings" : "_by_read_and_write") +
                                    (info.param.buffered ? "_buffered" : "");
                         });

}  // namespace penstock::test
