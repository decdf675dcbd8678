// Kernels that miss pages which lie in frames of a buffer of the process: what is lent, what is
// not, and what races with it. Kernels are threads of the cpu back end here, and the buffer's
// device is ordinary memory; tests/device/lent_frames_test.cu has both on a GPU.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "buffer/buffered_file.hpp"
#include "buffer/pool/manager.hpp"
#include "hub/hub.hpp"
#include "os/file_kind.hpp"
#include "region/support.hpp"
#include "rounds.hpp"
#include "soon.hpp"

namespace penstock::test::lending {

namespace {

using buffer::file_access;
using buffer::policy_kind;
using content = std::vector<std::uint8_t>;

constexpr std::uint64_t page = 4096, pages = 64, size = pages * page;
constexpr std::uint64_t every_page = ~std::uint64_t{0};

// A pool of a file, and a runtime whose kernels read it.
class lent_pool : public testing::TestWithParam<policy_kind> {
protected:
    void SetUp() override {
        write_file(path_, content_);
        let_files_settle();
        options_ = small_options(folder_, 1);
        options_.window_bytes = 0;
        options_.cache_bytes = 2 * size;
        runtime_ = make_runtime(options_);
    }
    // In the host or, beyond that, in the device, there is room for all of the file.
    void make_pool(std::uint64_t host_pages, file_access access = file_access::read,
                   bool unchecked = false) {
        buffer_options wanted{.policy = GetParam(),
                              .where = backend::cpu,
                              .host_bytes = host_pages * page,
                              .device_bytes = 2 * size,
                              .page_bytes = page,
                              .sessions = 4,
                              .fixed_pages = 1};
        buffer::manager_settings tuning;
        tuning.stands_back = false;
        tuning.lends_unchecked = unchecked;
        const status s = buffer::make_pool(wanted, tuning, pool_);
        ASSERT_TRUE(s.ok()) << s.message;
        ASSERT_TRUE(pool_->open_file(path_, access, number_).ok());
        session_ = pool_->open_session();
    }
    void TearDown() override { session_.reset(); }

    void read_in_session() {
        content there(size);
        ASSERT_EQ(session_->read(number_, 0, reinterpret_cast<std::byte*>(there.data()), size),
                  static_cast<std::int64_t>(size));
        EXPECT_TRUE(there == content_);
    }
    content read_in_kernel(std::uint64_t offset = 0, std::uint64_t count = size) {
        content there(count);
        const int file = runtime_->open(path_);
        EXPECT_GE(file, 0);
        EXPECT_EQ(runtime_->read(file, there.data(), static_cast<std::int64_t>(count),
                                 static_cast<std::int64_t>(offset)),
                  static_cast<std::int64_t>(count));
        EXPECT_EQ(runtime_->close(file), 0);
        return there;
    }
    void change_file(std::uint64_t at, std::uint8_t value) {
        patch_file(path_, at, content(8, value));
        std::fill_n(content_.begin() + static_cast<std::ptrdiff_t>(at), 8, value);
        let_files_settle();
    }

    const temporary_folder folder_;
    const std::string path_ = folder_ / "f";
    content content_ = pattern(11, size);
    options options_;
    std::unique_ptr<runtime> runtime_;
    std::unique_ptr<buffer_pool> pool_;
    std::uint32_t number_ = 0;
    std::unique_ptr<buffer::session> session_;
};

}  // namespace

TEST_P(lent_pool, gives_kernels_what_lies_in_its_host_frames) {
    make_pool(2 * pages);
    read_in_session();
    EXPECT_TRUE(read_in_kernel() == content_);
    EXPECT_EQ(runtime_->stats().buffer_loads, pages);
    EXPECT_EQ(runtime_->stats().file_reads, 0u);
    EXPECT_EQ(runtime_->stats().buffer_device_loads, 0u);
}

TEST_P(lent_pool, gives_larger_pages_as_far_as_it_has_them) {
    for (const std::uint64_t large : {std::uint64_t{512}, 4 * page, 16 * page}) {
        options_.page_bytes = large;
        options_.cache_bytes = 4 * size;
        runtime_ = make_runtime(options_);
        make_pool(2 * pages);
        content there(10 * page);
        ASSERT_EQ(
            session_->read(number_, 0, reinterpret_cast<std::byte*>(there.data()), there.size()),
            static_cast<std::int64_t>(there.size()));
        EXPECT_TRUE(read_in_kernel() == content_) << large;
        EXPECT_EQ(runtime_->stats().buffer_loads, (10 * page + large - 1) / large);
        EXPECT_GT(runtime_->stats().file_reads, 0u);
        session_.reset();
        pool_.reset();
    }
}

TEST_P(lent_pool, gives_what_lies_in_device_frames) {
    if (GetParam() != policy_kind::gram) GTEST_SKIP() << "only gram keeps whole pages there";
    make_pool(16);
    for (int round = 0; round < 3; ++round) read_in_session();
    ASSERT_GT(pool_->counts().device_pages, pages / 2);
    // Else the lender's thread comes too late on a busy machine, and is left alone for a while
    // then.
    host::runtime_hooks patient;
    patient.frame_copy_wait_ns = 600'000'000'000;
    // A frame is not lent while a thread has a turn on it or holds the core, so some pages may be
    // read: all of them, where the machine runs both threads at the same moments.
    std::uint64_t lent = 0;
    for (int tries = 0; tries < 200 && lent < pages / 2; ++tries) {
        runtime_ = make_runtime(options_, patient);
        EXPECT_TRUE(read_in_kernel() == content_);
        const statistics seen = runtime_->stats();
        EXPECT_LE(seen.buffer_loads, pages);
        EXPECT_GE(seen.buffer_loads + seen.buffer_device_loads + seen.file_reads, pages);
        lent += seen.buffer_device_loads;
    }
    EXPECT_GE(lent, pages / 2);
    read_in_session();
}

TEST_P(lent_pool, gives_nothing_of_another_version_until_all_was_forgotten) {
    make_pool(2 * pages);
    read_in_session();
    change_file(5 * page, 99);
    EXPECT_TRUE(read_in_kernel() == content_);
    EXPECT_EQ(runtime_->stats().buffer_loads, 0u);
    EXPECT_EQ(session_->forget(number_, 0, every_page), 0);
    read_in_session();
    runtime_ = make_runtime(options_);
    EXPECT_TRUE(read_in_kernel() == content_);
    EXPECT_EQ(runtime_->stats().buffer_loads, pages);
    // A part is not enough: other pages may be of the version before.
    change_file(6 * page, 98);
    EXPECT_EQ(session_->forget(number_, 6, 1), 0);
    read_in_session();
    runtime_ = make_runtime(options_);
    EXPECT_TRUE(read_in_kernel() == content_);
    EXPECT_EQ(runtime_->stats().buffer_loads, 0u);
}

// The buffer has the size that it was told, and zeros behind it in the page that was the last one.
TEST_P(lent_pool, gives_no_zeros_where_the_file_has_become_longer) {
    constexpr std::uint64_t short_by = 100;
    const content whole = content_;
    content_.resize(size - short_by);
    write_file(path_, content_);
    let_files_settle();
    make_pool(2 * pages);
    const auto load = [&] {
        content there(size);
        EXPECT_EQ(session_->read(number_, 0, reinterpret_cast<std::byte*>(there.data()), size),
                  static_cast<std::int64_t>(size - short_by));
    };
    load();
    write_file(path_, whole);
    let_files_settle();
    ASSERT_EQ(session_->forget(number_, 0, every_page), 0);
    load();
    EXPECT_TRUE(read_in_kernel() == whole);
    {
        const auto r = map_whole(*runtime_, path_, protection::read);
        EXPECT_TRUE(peek(*r, backend::cpu, 0, size) == whole);
    }
    // And with its size it is lent again.
    ASSERT_EQ(session_->resize(number_, size), 0);
    ASSERT_EQ(session_->forget(number_, 0, every_page), 0);
    content_ = whole;
    read_in_session();
    runtime_ = make_runtime(options_);
    EXPECT_TRUE(read_in_kernel() == whole);
    EXPECT_EQ(runtime_->stats().buffer_loads, pages);
}

// The canary: a buffer that does not look at the version gives old bytes.
TEST_P(lent_pool, that_does_not_look_at_the_version_is_found_out) {
    make_pool(2 * pages, file_access::read, true);
    read_in_session();
    change_file(5 * page, 99);
    EXPECT_FALSE(read_in_kernel() == content_);
}

TEST_P(lent_pool, fills_regions) {
    const bool has_device_frames = GetParam() == policy_kind::gram;
    make_pool(has_device_frames ? 16 : 2 * pages);
    for (int round = 0; round < (has_device_frames ? 3 : 1); ++round) read_in_session();
    const auto filled = [&] {
        const auto r = map_whole(*runtime_, path_, protection::read);
        EXPECT_TRUE(peek(*r, backend::cpu, 0, size) == content_);
        EXPECT_EQ(r->traffic().pages_fetched, pages);
        return r->traffic().pages_from_buffers;
    };
    if (has_device_frames) {
        std::uint64_t most = 0;  // as above
        for (int tries = 0; tries < 200 && most <= 16; ++tries) most = std::max(most, filled());
        EXPECT_GT(most, 16u);
    } else {
        EXPECT_EQ(filled(), pages);
    }
    change_file(5 * page, 99);
    EXPECT_EQ(filled(), 0u);
    EXPECT_EQ(session_->forget(number_, 0, every_page), 0);
    content some(10 * page);
    EXPECT_EQ(session_->read(number_, 0, reinterpret_cast<std::byte*>(some.data()), some.size()),
              static_cast<std::int64_t>(some.size()));
    EXPECT_EQ(filled(), 10u);
    EXPECT_EQ(pool_->close_file(number_), 0);
    EXPECT_EQ(filled(), 0u);
}

TEST_P(lent_pool, lends_no_file_that_it_may_change) {
    make_pool(2 * pages, file_access::read_write);
    read_in_session();
    EXPECT_TRUE(read_in_kernel() == content_);
    EXPECT_EQ(runtime_->stats().buffer_loads, 0u);
    const std::uint64_t word = 77;
    EXPECT_EQ(session_->write(number_, 0, reinterpret_cast<const std::byte*>(&word), 8), 8);
    EXPECT_TRUE(read_in_kernel() == content_) << "it is dirty, and not in the file";
    EXPECT_EQ(session_->flush(number_), 0);
    std::memcpy(content_.data(), &word, 8);
    EXPECT_TRUE(read_in_kernel() == content_);
}

TEST_P(lent_pool, lends_no_file_that_has_a_writer) {
    make_pool(2 * pages);
    read_in_session();
    const int writer = ::open(path_.c_str(), O_RDWR);
    ASSERT_GE(writer, 0);
    EXPECT_TRUE(read_in_kernel() == content_);
    ::close(writer);
    // Where this file system does not tell of writers, exact times are proof enough.
    runtime_ = make_runtime(options_);
    EXPECT_TRUE(read_in_kernel() == content_);
    EXPECT_EQ(runtime_->stats().buffer_loads, pages);
}

TEST_P(lent_pool, lends_nothing_of_a_closed_file_or_when_it_has_ended) {
    make_pool(2 * pages);
    read_in_session();
    const host::file_key key = [&] {
        struct stat facts {};
        EXPECT_EQ(::stat(path_.c_str(), &facts), 0);
        return host::key_of(host::identity_of(facts));
    }();
    host::frame_sources& all = host::hub::of_process().frames;
    EXPECT_TRUE(all.any());
    EXPECT_TRUE(all.known.may_have(key));
    EXPECT_EQ(pool_->close_file(number_), 0);
    EXPECT_FALSE(all.known.may_have(key));
    EXPECT_TRUE(read_in_kernel() == content_);
    EXPECT_EQ(runtime_->stats().buffer_loads, 0u);
    session_.reset();
    pool_.reset();
    EXPECT_FALSE(all.any());
}

// Sessions read, prefetch and forget at random in a small pool, an outside writer changes the file,
// the pool's file is closed and opened, and kernels open and read. The writer counts in each page;
// a kernel that opens after a change was made has that count, or a later one.
class racing_pool : public lent_pool {
protected:
    void write_at_random(const std::atomic<bool>& is_over) {
        std::mt19937 random(1);
        for (std::uint64_t round = 1; !is_over; ++round) {
            // Opened each time, so that now and then there is no writer.
            const int to = ::open(path_.c_str(), O_RDWR);
            const std::uint64_t i = random() % pages;
            EXPECT_EQ(::pwrite(to, &round, 8, static_cast<off_t>(i * page)), 8);
            ::close(to);
            done_[i] = round;
            std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
        }
    }
    void use_at_random(const std::atomic<bool>& is_over) {
        std::mt19937 random(2);
        std::byte room[page];
        while (!is_over) {
            const std::uint64_t i = random() % pages;
            switch (random() % 64) {
                case 0: session_->forget(number_, 0, every_page); break;
                case 1: session_->forget(number_, i, 3); break;
                case 2: session_->prefetch(number_, i, 8); break;
                case 3:
                    if (pool_->close_file(number_) == 0) {
                        EXPECT_TRUE(pool_->open_file(path_, file_access::read, number_).ok());
                    }
                    break;
                default: session_->read(number_, i * page, room, page);
            }
        }
    }
    // How many counts were old, until enough pages were lent.
    std::uint64_t race(bool unchecked) {
        constexpr std::uint64_t enough = 1000 / sanitizer_slowdown;
        constexpr int most_rounds = 1'000'000, least_rounds = 2000 / sanitizer_slowdown;
        options_.cache_bytes = 16 * page;  // kernels miss all the time
        runtime_ = make_runtime(options_);
        content_.assign(size, 0);
        write_file(path_, content_);
        let_files_settle();
        make_pool(20, file_access::read, unchecked);
        std::atomic<bool> is_over{false};
        std::thread writer([&] { write_at_random(is_over); });
        std::thread user([&] { use_at_random(is_over); });
        std::uint64_t old = 0;
        std::mt19937 random(3);
        const auto lent = [&] {
            const statistics seen = runtime_->stats();
            return seen.buffer_loads + seen.buffer_device_loads;
        };
        const auto is_enough = [&] { return unchecked ? old != 0 : lent() >= enough; };
        for (int round = 0; round < most_rounds && (round < least_rounds || !is_enough());
             ++round) {
            std::uint64_t promised[pages], there = 0;
            for (std::uint64_t i = 0; i < pages; ++i) promised[i] = done_[i];
            const int file = runtime_->open(path_);
            for (int some = 0; some < 4; ++some) {
                const std::uint64_t i = random() % pages;
                EXPECT_EQ(runtime_->read(file, &there, 8, static_cast<std::int64_t>(i * page)), 8);
                old += there < promised[i];
            }
            EXPECT_EQ(runtime_->close(file), 0);
        }
        is_over = true;
        writer.join();
        user.join();
        return old;
    }

    std::atomic<std::uint64_t> done_[pages]{};
};

TEST_P(racing_pool, with_writers_evictions_and_closes_lends_nothing_old) {
    EXPECT_EQ(race(false), 0u);
}
TEST_P(racing_pool, that_does_not_look_at_the_version_is_found_out) { EXPECT_NE(race(true), 0u); }

namespace {

// Lends nothing from the host, and begins copies that do not end before they are told to.
class slow_source final : public host::frame_source {
public:
    class copied final : public host::frame_copy {
    public:
        explicit copied(slow_source& from) : from_(from) { ++from_.open; }
        ~copied() override { --from_.open; }
        [[nodiscard]] bool has_ended() const override { return false; }
        std::uint64_t take(const host::frame_wish&, std::byte*) override { return 0; }

    private:
        slow_source& from_;
    };
    std::uint64_t copy(const host::frame_wish&, std::byte*) override { return 0; }
    std::shared_ptr<host::frame_copy> begin(const host::frame_wish&) override {
        ++begun;
        return std::make_shared<copied>(*this);
    }
    std::atomic<int> begun{0}, open{0};
};

}  // namespace

TEST_P(lent_pool, that_is_late_keeps_no_kernel_waiting) {
    host::hub& shared = host::hub::of_process();
    slow_source slow;
    struct stat facts {};
    ASSERT_EQ(::stat(path_.c_str(), &facts), 0);
    const host::file_key key = host::key_of(host::identity_of(facts));
    shared.frames.known.add(key);
    shared.frames.enter(slow);
    EXPECT_TRUE(read_in_kernel() == content_);
    EXPECT_GT(slow.begun, 0);
    EXPECT_LT(slow.begun, static_cast<int>(pages)) << "it is left alone for a while";
    EXPECT_EQ(slow.open, 0);
    EXPECT_EQ(runtime_->stats().buffer_device_loads, 0u);
    shared.frames.leave(slow);
    shared.frames.known.remove(key);
}

namespace {

// Frames that begin no move while they are held.
class held_frames final : public buffer::device_frames {
public:
    explicit held_frames(const buffer::frames_shape& shape)
        : real_(buffer::make_cpu_frames(shape, why_)) {}
    [[nodiscard]] std::byte* host_frames() const override { return real_->host_frames(); }
    int begin(unsigned queue, const std::vector<buffer::frame_move>& batch) override {
        ++waiting;
        EXPECT_TRUE(soon([&] { return !are_held; }));
        --waiting;
        return real_->begin(queue, batch);
    }
    int end(unsigned queue) override { return real_->end(queue); }
    int copy_out(const std::vector<buffer::frame_move>& some) override {
        return real_->copy_out(some);
    }
    int compare(unsigned queue, const std::vector<buffer::frame_pair>& pairs,
                std::vector<std::uint8_t>& equal) override {
        return real_->compare(queue, pairs, equal);
    }
    int hash(unsigned queue, buffer::signature_kind kind, const std::vector<std::uint32_t>& host,
             std::vector<buffer::content_hash>& out) override {
        return real_->hash(queue, kind, host, out);
    }

    std::atomic<bool> are_held{false};
    std::atomic<int> waiting{0};

private:
    std::string why_;
    const std::unique_ptr<device_frames> real_;
};

// A system that says of each file that it has a writer, if it is told to.
struct writers_of_all final : fault::faulty_environment {
    int facts(int handle, host::file_facts& out) override {
        const int code = faulty_environment::facts(handle, out);
        if (has_writer) out.writing = host::writers::some;
        return code;
    }
    bool has_writer = false;
};

// A manager that lends a file, and nothing that asks for it but the test.
struct lent_manager : testing::Test {
    static constexpr std::uint32_t host_pages = 6;

    lent_manager() {
        write_file(folder / "f", whole);
        let_files_settle();
        host::file_facts facts;
        fd = host::open_regular(env, folder / "f", facts);
        key = host::key_of(facts.identity);
        EXPECT_TRUE(buffer::manager::make(settings, frames, env, all).ok());
        all->lend_to(shared);
        EXPECT_EQ(all->add_file(fd, whole.size(), file_access::read), 0);
    }
    ~lent_manager() override {
        all->leave(shared);
        all.reset();
        ::close(fd);
    }
    [[nodiscard]] host::frame_wish wish_of(std::uint64_t number) {
        return {key, env, fd, number * page, page};
    }
    void read_page(buffer::session& session, std::uint64_t number) {
        content there(page);
        EXPECT_EQ(session.read(0, number * page, begin_of(there), page),
                  static_cast<std::int64_t>(page));
        EXPECT_TRUE(there == page_of(number));
    }
    [[nodiscard]] content page_of(std::uint64_t number) const {
        const auto first = whole.begin() + static_cast<std::ptrdiff_t>(number * page);
        return {first, first + page};
    }
    std::shared_ptr<host::frame_copy> begin_copy(std::uint64_t number) {
        return shared.frames.first_of(
            [&](host::frame_source& source) { return source.begin(wish_of(number)); });
    }
    std::uint64_t copy_from_host(std::uint64_t number, content& to) {
        return shared.frames.first_of(
            [&](host::frame_source& source) { return source.copy(wish_of(number), begin_of(to)); });
    }

    const temporary_folder folder;
    const content whole = pattern(5, 2 * host_pages * page);
    writers_of_all env;
    host::hub shared;
    const buffer::manager_settings settings =
        small(host_pages, 2 * host_pages, buffer::order_kind::lru, page);
    held_frames frames{buffer::frames_for(settings)};
    std::unique_ptr<buffer::manager> all;
    host::file_key key;
    int fd = -1;
};

}  // namespace

// The core has it in the device by then, and its bytes are still on their way.
TEST_F(lent_manager, lends_no_page_that_is_on_its_way_to_the_device) {
    const auto session = all->open_session();
    for (std::uint64_t number = 0; number < host_pages; ++number) read_page(*session, number);
    frames.are_held = true;
    std::thread other([&] { read_page(*session, host_pages); });  // page 0 goes for it
    ASSERT_TRUE(soon([&] { return frames.waiting == 1; }));
    EXPECT_EQ(begin_copy(0), nullptr);
    frames.are_held = false;
    other.join();
    std::shared_ptr<host::frame_copy> copy;
    ASSERT_TRUE(soon([&] { return (copy = begin_copy(0)) != nullptr; }));
    ASSERT_TRUE(soon([&] { return copy->has_ended(); }));
    content there(page);
    EXPECT_EQ(copy->take(wish_of(0), begin_of(there)), page);
    EXPECT_TRUE(there == page_of(0));
}

// Its times are those that it had, and what the writer stores may come without others.
TEST_F(lent_manager, lends_nothing_while_the_file_has_a_writer) {
    const auto session = all->open_session();
    read_page(*session, 0);
    content there(page);
    EXPECT_EQ(copy_from_host(0, there), page);
    EXPECT_TRUE(there == page_of(0));
    env.has_writer = true;
    EXPECT_EQ(copy_from_host(0, there), 0u);
    env.has_writer = false;
    EXPECT_EQ(copy_from_host(0, there), page);
}

namespace {

const auto all_policies =
    testing::Values(policy_kind::native, policy_kind::gram, policy_kind::dedu);
std::string policy_of(const testing::TestParamInfo<policy_kind>& info) {
    return info.param == policy_kind::native ? "native"
           : info.param == policy_kind::gram ? "gram"
                                             : "dedu";
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(of, lent_pool, all_policies, policy_of);
INSTANTIATE_TEST_SUITE_P(of, racing_pool, all_policies, policy_of);

}  // namespace penstock::test::lending
