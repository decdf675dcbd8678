// A child of fork() with a copy of its parent's buffer: its calls fail at once, it may drop the
// buffer or leave it alone, and the parent's files and pages are untouched.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "penstock/buffer.hpp"
#include "region/support.hpp"

namespace penstock::test::pool_child {

namespace {

using buffer::fixed_page;
using buffer::policy_kind;
using buffer::use_kind;

constexpr std::uint32_t page_bytes = 4096;
constexpr std::uint64_t pages = 64;

// The child's answer, or -1 where it did not end by itself.
int in_child(const std::function<int()>& body) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(body());
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    for (int state = 0;;) {
        if (::waitpid(child, &state, WNOHANG) == child)
            return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
        if (std::chrono::steady_clock::now() > until) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return -1;
}

class child : public testing::TestWithParam<policy_kind> {
protected:
    void SetUp() override {
        write_file(name_, std::vector<std::uint8_t>(pages * page_bytes, 1));
        const buffer_options options{.policy = GetParam(),
                                     .where = backend::cpu,
                                     .host_bytes = 24 * page_bytes,
                                     .device_bytes = 8 * page_bytes,
                                     .page_bytes = page_bytes,
                                     .sessions = 4,
                                     .fixed_pages = 2};
        ASSERT_TRUE(buffer_pool::make(options, pool_).ok());
        ASSERT_TRUE(pool_->open_file(name_, buffer::file_access::read_write, number_).ok());
        session_ = pool_->open_session();
        ASSERT_EQ(session_->fix({3, number_}, use_kind::write, held_), 0);
    }
    void TearDown() override { session_.reset(); }

    // The number of the first call with another answer than -ECHILD, or 0.
    int all_calls() {
        fixed_page page;
        std::byte byte{};
        const buffer::page_id id{5, number_};
        const std::int64_t codes[] = {session_->fix(id, use_kind::read, page),
                                      session_->fix_fresh(id, page),
                                      session_->read(number_, 0, &byte, 1),
                                      session_->write(number_, 0, &byte, 1),
                                      session_->flush(number_),
                                      session_->resize(number_, 100),
                                      session_->forget(number_, 0, 9),
                                      pool_->close_file(number_),
                                      pool_->discard_file(number_),
                                      pool_->resize_file(number_, 100),
                                      pool_->file_bytes(number_)};
        for (int i = 0; i < static_cast<int>(std::size(codes)); ++i)
            if (codes[i] != -ECHILD) return i + 1;
        std::uint32_t other = 0;
        session_->prefetch(number_, 0, 9);
        session_->unfix(held_, true);
        if (pool_->open_file(name_, buffer::file_access::read, other).code != -ECHILD) return 20;
        if (pool_->open_session() != nullptr) return 21;
        return pool_->counts().loads == 0 && pool_->contents().pages == 0 ? 0 : 22;
    }

    const temporary_folder folder_;
    const std::string name_ = folder_ / "f";
    std::unique_ptr<buffer_pool> pool_;
    std::unique_ptr<buffer::session> session_;
    fixed_page held_;
    std::uint32_t number_ = 99;
};

}  // namespace

// Other threads have locks and turns at the moment of the fork. AddressSanitizer of GCC 12 is not
// asked: it does nothing at a fork about the locks of its own allocator, so a child that frees
// memory may wait for a thread that it has not (a program of a fork and two threads that allocate
// does).
#if !defined(__SANITIZE_ADDRESS__)
TEST_P(child, of_a_busy_buffer_gets_errors_and_may_drop_it) {
    std::atomic<bool> over{false};
    std::vector<std::jthread> busy;
    for (std::uint64_t t = 0; t < 2; ++t)
        busy.emplace_back([&, t] {
            const auto other = pool_->open_session();
            for (std::uint64_t i = t; !over; ++i) {
                fixed_page page;
                const buffer::page_id id{4 + i * 7 % (pages - 4), number_};
                if (other->fix(id, use_kind::write, page) == 0) other->unfix(page, true);
                if (i % 50 == 0) other->flush(number_);
            }
        });
    for (int round = 0; round < 20; ++round) {
        EXPECT_EQ(in_child([&] {
                      const int wrong = all_calls();
                      session_.reset();
                      pool_.reset();
                      return wrong;
                  }),
                  0);
        EXPECT_EQ(in_child([] { return 0; }), 0);
    }
    over = true;
    busy.clear();
    std::memset(held_.data, 9, page_bytes);
    session_->unfix(held_, true);
    EXPECT_EQ(pool_->close_file(number_), 0);
    EXPECT_EQ(read_file(name_)[3 * page_bytes], 9);
}
#endif

// It has a copy of a changed page, and must not bring it to the file when it ends.
TEST_P(child, writes_nothing) {
    std::memset(held_.data, 9, page_bytes);
    session_->unfix(held_, true);
    EXPECT_EQ(in_child([&] {
                  session_.reset();
                  pool_.reset();
                  return 0;
              }),
              0);
    EXPECT_EQ(read_file(name_)[3 * page_bytes], 1);
    EXPECT_EQ(session_->flush(number_), 0);
    EXPECT_EQ(read_file(name_)[3 * page_bytes], 9);
}

#if !defined(__SANITIZE_ADDRESS__)  // which calls what is left alone a leak
// Also one that ends by exit() with the buffer in a global object.
TEST_P(child, exits_with_a_global_buffer) {
    std::memset(held_.data, 9, page_bytes);
    session_->unfix(held_, true);
    static std::unique_ptr<buffer_pool> global;
    EXPECT_EQ(in_child([&]() -> int {
                  global = std::move(pool_);
                  std::exit(0);
              }),
              0);
    EXPECT_EQ(read_file(name_)[3 * page_bytes], 1);
}
#endif

// One that makes a buffer of its own has one.
TEST_P(child, may_make_a_buffer_of_its_own) {
    session_->unfix(held_, false);
    EXPECT_EQ(in_child([&] {
                  const buffer_options options{.policy = GetParam(),
                                               .where = backend::cpu,
                                               .host_bytes = 24 * page_bytes,
                                               .device_bytes = 8 * page_bytes,
                                               .sessions = 1};
                  std::unique_ptr<buffer_pool> own;
                  if (!buffer_pool::make(options, own).ok()) return 1;
                  if (!own->open_file(name_, buffer::file_access::read, number_).ok()) return 2;
                  std::byte byte{};
                  if (own->open_session()->read(number_, 0, &byte, 1) != 1) return 3;
                  return byte == std::byte{1} ? 0 : 4;
              }),
              0);
}

INSTANTIATE_TEST_SUITE_P(of, child,
                         testing::Values(policy_kind::native, policy_kind::gram, policy_kind::dedu),
                         [](const auto& info) {
                             const bool is_native = info.param == policy_kind::native;
                             const bool is_gram = info.param == policy_kind::gram;
                             return std::string(is_native ? "native" : is_gram ? "gram" : "dedu");
                         });

}  // namespace penstock::test::pool_child
