// Files that change under the buffer while several threads use it.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <random>
#include <thread>

#include "buffered_file.hpp"
#include "soon.hpp"

namespace penstock::test::manager_files_threads {

namespace {

using buffer::fixed_page;
using buffer::manager_settings;
using buffer::order_kind;
using buffer::use_kind;

constexpr std::uint64_t page_bytes = 512;

// Three threads add to numbers in pages that stay, one cuts off what is behind them, grows it again
// and looks that it is zero, and one reads everything and ahead. The disk may fail.
class growing_and_shrinking {
public:
    growing_and_shrinking(buffer_kind where, bool failing)
        : f_(shape(), bytes(most * page_bytes, 0), where), failing_(failing) {}

    void run() {
        {
            std::vector<std::jthread> running;
            for (std::uint64_t t = 0; t < adders; ++t) running.emplace_back([this, t] { add(t); });
            running.emplace_back([this] { read_everything(); });
            cut_and_grow();
        }
        f_.env.clear();
        f_.expect_right();
        EXPECT_EQ(f_.all->open_session()->flush(0), 0);
        const bytes now = f_.on_disk();
        for (std::uint64_t t = 0; t < adders; ++t)
            for (std::uint64_t page = 0; page < kept; ++page) {
                std::uint64_t last = 0;
                std::memcpy(&last, now.data() + page * page_bytes + 8 * t, 8);
                EXPECT_EQ(last, added_[t][page]);
            }
    }

private:
    static constexpr std::uint64_t adders = 3, kept = 10, most = 30, steps = 3000;

    static manager_settings shape() {
        manager_settings settings = small(16, 8, order_kind::lru);
        settings.sessions = 5;
        return settings;
    }
    void add(std::uint64_t t) {
        auto session = f_.all->open_session();
        std::mt19937_64 random(t);
        for (std::uint64_t i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
            const std::uint64_t page = random() % kept;
            fixed_page fixed;
            const int code = session->fix({page, 0}, use_kind::write, fixed);
            EXPECT_TRUE(failing_ || code == 0) << code;
            if (code == 0) {
                auto* const words = reinterpret_cast<std::uint64_t*>(fixed.data);
                EXPECT_EQ(words[t], added_[t][page]);
                words[t] = ++added_[t][page];
                session->unfix(fixed, true);
            }
            if (random() % 200 == 0) session->flush(0);
        }
        --adding_;
    }
    void read_everything() {
        auto session = f_.all->open_session();
        std::mt19937_64 random(7);
        bytes all(most * page_bytes);
        while (adding_ != 0) {
            if (random() % 2 == 0) session->prefetch(0, random() % most, 4);
            const std::uint64_t at = random() % all.size();
            static_cast<void>(session->read(0, at, begin_of(all), all.size() - at));
            if (failing_)
                f_.env.set({.calls = random() % 2 == 0 ? fault::call_write : fault::call_read,
                            .nth = random() % 20 + 1});
        }
    }
    template <typename Call>
    void until_done(const Call& call) const {
        int code = call();
        for (int tries = 0; code != 0 && failing_ && tries < 10'000; ++tries) code = call();
        EXPECT_EQ(code, 0);
    }
    void cut_and_grow() {
        auto session = f_.all->open_session();
        std::mt19937_64 random(9);
        bytes some(most * page_bytes), ones(most * page_bytes, 1);
        while (adding_ != 0 && !testing::Test::HasFailure()) {
            const std::uint64_t end = kept * page_bytes + random() % ((most - kept) * page_bytes),
                                tail = most * page_bytes - end;
            until_done([&] { return session->resize(0, end); });
            ASSERT_EQ(::ftruncate(f_.fd, static_cast<off_t>(end)), 0);
            ASSERT_EQ(::ftruncate(f_.fd, most * page_bytes), 0);
            until_done([&] { return session->resize(0, most * page_bytes); });
            until_done([&] {
                return session->read(0, end, begin_of(some), tail) ==
                               static_cast<std::int64_t>(tail)
                           ? 0
                           : -EIO;
            });
            EXPECT_TRUE(std::all_of(some.begin(), some.begin() + static_cast<std::ptrdiff_t>(tail),
                                    [](std::uint8_t byte) { return byte == 0; }));
            until_done([&] {
                return session->write(0, end, begin_of(ones), tail) ==
                               static_cast<std::int64_t>(tail)
                           ? 0
                           : -EIO;
            });
        }
    }

    buffered_file f_;
    const bool failing_;
    std::atomic<int> adding_{adders};
    std::vector<std::vector<std::uint64_t>> added_{adders, std::vector<std::uint64_t>(kept)};
};

using shared_files = on_backends;

}  // namespace

// One thread changes the file below and has it forgotten; the others must not be given what was
// before.
TEST_P(shared_files, are_never_older_than_what_was_forgotten) {
    constexpr std::uint64_t pages = 12, versions = rounds(std::uint64_t{1500});
    for (const auto& [host, device] : {std::pair{13u, 0u}, {13u, 4u}}) {
        manager_settings settings = small(host, device, order_kind::lru);
        settings.sessions = 6;
        buffered_file f(settings, bytes(pages * page_bytes, 0), GetParam());
        std::atomic<std::uint64_t> told{0};
        std::vector<std::jthread> running;
        for (std::uint64_t t = 0; t < 4; ++t)
            running.emplace_back([&, t] {
                auto session = f.all->open_session();
                std::mt19937_64 random(t);
                while (told < versions && !testing::Test::HasFailure()) {
                    const std::uint64_t page = random() % pages, least = told;
                    if (random() % 8 == 0) session->prefetch(0, page, 3);
                    std::uint64_t words[page_bytes / 4];
                    // Two pages are read at once.
                    const std::uint64_t count = random() % 2 == 0 ? 8 : 2 * page_bytes;
                    const std::int64_t got = session->read(
                        0, page * page_bytes, reinterpret_cast<std::byte*>(words), count);
                    ASSERT_GE(got, 8);
                    for (std::int64_t at = 0; at < got / 8; ++at) ASSERT_GE(words[at], least);
                }
            });
        auto session = f.all->open_session();
        std::vector<std::uint64_t> words(pages * page_bytes / 8);
        for (std::uint64_t version = 1; version <= versions && !testing::Test::HasFailure();
             ++version) {
            std::fill(words.begin(), words.end(), version);
            ASSERT_EQ(::pwrite(f.fd, words.data(), pages * page_bytes, 0),
                      static_cast<ssize_t>(pages * page_bytes));
            ASSERT_EQ(session->forget(0, 0, version % 2 == 0 ? pages : 1000), 0);
            told = version;
        }
        told = versions;
        running.clear();
        f.expect_right();
    }
}

// A page that is on its way to its file when it is forgotten is waited for; and if that write
// fails, what comes back of it goes too. Nothing near it is in the buffer.
TEST_P(shared_files, forget_what_is_being_written) {
    constexpr std::uint64_t apart = 1500;
    for (const bool failing : {false, true}) {
        bytes content = pattern(9, (apart + 1) * page_bytes);  // no page equals another
        content[apart * page_bytes] = 1;
        buffered_file f(small(5, 0, order_kind::lru), content, GetParam());
        auto session = f.all->open_session();
        const std::byte nine{9};
        ASSERT_EQ(session->write(0, apart * page_bytes, &nine, 1), 1);
        f.env.stall(fault::call_write);
        f.env.set({.calls = fault::call_write, .nth = failing ? 1u : 0u});
        std::jthread driver([&] {
            auto other = f.all->open_session();
            std::byte byte{};
            std::int64_t got = 1;
            for (std::uint64_t page = 1; page < 7 && got == 1; ++page)
                got = other->read(0, page * page_bytes, &byte, 1);
        });
        while (f.env.stalled() == 0) std::this_thread::yield();
        std::atomic<bool> forgotten{false};
        std::jthread forgetter([&] {
            EXPECT_EQ(session->forget(0, apart, 1), 0);
            forgotten = true;
        });
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        EXPECT_FALSE(forgotten);
        f.env.release();
        forgetter.join();
        driver.join();
        ASSERT_EQ(session->flush(0), 0);
        EXPECT_EQ(f.on_disk()[apart * page_bytes], failing ? 1 : 9);
        f.expect_right();
    }
}

// It waits for a page that another session has, and the cut waits for that session too.
TEST_P(shared_files, let_no_thread_wait_for_a_page_behind_their_new_end) {
    manager_settings settings = small(16, 8, order_kind::lru);
    settings.sessions = 4;
    settings.wait_ms = 3'600'000;
    buffered_file f(settings, bytes(10 * page_bytes, 1), GetParam());
    auto holder = f.all->open_session();
    fixed_page held;
    ASSERT_EQ(holder->fix({5, 0}, use_kind::write, held), 0);
    std::atomic<int> code_of_waiter{1};
    std::jthread waiter([&] {
        fixed_page wanted;
        const auto session = f.all->open_session();
        const int code = session->fix({5, 0}, use_kind::write, wanted);
        if (code == 0) session->unfix(wanted, false);
        code_of_waiter = code;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(code_of_waiter, 1);
    std::jthread cutter([&] { EXPECT_EQ(f.all->open_session()->resize(0, 2 * page_bytes), 0); });
    EXPECT_TRUE(soon([&] { return code_of_waiter != 1; }));
    EXPECT_EQ(code_of_waiter, -EINVAL);
    holder->unfix(held, false);
    cutter.join();
    waiter.join();
    f.expect_right();
}

TEST_P(shared_files, lose_nothing_while_they_grow_and_shrink) {
    growing_and_shrinking(GetParam(), false).run();
}

TEST_P(shared_files, lose_nothing_while_they_grow_and_shrink_and_the_disk_fails) {
    growing_and_shrinking(GetParam(), true).run();
}

INSTANTIATE_TEST_SUITE_P(on, shared_files,
                         testing::Values(buffer_kind(backend::cpu), buffer_kind(backend::gpu),
                                         buffer_kind(backend::cpu, buffer::policy_kind::dedu),
                                         buffer_kind(backend::gpu, buffer::policy_kind::dedu)),
                         name_of);

}  // namespace penstock::test::manager_files_threads
