// Files that change under the buffer, by one thread: they grow, shrink and go, others change them
// below, and pages are read ahead.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "buffered_file.hpp"

namespace penstock::test {

namespace {

using buffer::fixed_page;
using buffer::manager_settings;
using buffer::order_kind;
using buffer::use_kind;

constexpr std::uint64_t page_bytes = 512;

// All its operations on one file of one thread, against a copy.
class shadowed {
public:
    shadowed(const manager_settings& settings, std::uint64_t seed, buffer_kind where, bool failing)
        : expected_(pattern(seed, 30 * page_bytes + 77)),
          f_(settings, expected_, where),
          failing_(failing),
          random_(seed) {
        session_ = f_.all->open_session();
    }

    void run(int operations) {
        for (int i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
            if (failing_ && i % 40 == 0) fail_somehow();
            switch (random_() % 128) {
                case 0:
                case 1:
                case 2:
                case 3:
                case 4:
                case 5: resize(); break;
                case 6:
                case 9:
                case 10: session_->prefetch(0, random_() % 60, random_() % 20); break;
                case 7: change_below(); break;
                case 8: flush(); break;
                default: random_() % 2 == 0 ? read() : write();
            }
        }
        f_.env.clear();
        ASSERT_EQ(session_->flush(0), 0);
        EXPECT_EQ(f_.on_disk(), expected_);
        f_.expect_right();
    }

private:
    void fail_somehow() {
        f_.env.set({.calls = random_() % 2 == 0 ? fault::call_write : fault::call_read,
                    .nth = random_() % 8 + 1,
                    .for_ever = random_() % 4 == 0});
    }
    void read() {
        const std::uint64_t at = random_() % (expected_.size() + 100);
        bytes some(random_() % (3 * page_bytes) + 1);
        const std::int64_t got = session_->read(0, at, begin_of(some), some.size());
        const std::uint64_t there =
            at >= expected_.size() ? 0
                                   : std::min<std::uint64_t>(some.size(), expected_.size() - at);
        ASSERT_TRUE(failing_ || got == static_cast<std::int64_t>(there)) << got;
        for (std::int64_t b = 0; b < got; ++b)
            ASSERT_EQ(some[static_cast<std::size_t>(b)],
                      expected_[at + static_cast<std::uint64_t>(b)])
                << at + static_cast<std::uint64_t>(b);
    }
    void write() {
        if (expected_.empty()) return;
        const std::uint64_t at = random_() % expected_.size();
        bytes some(
            std::min<std::uint64_t>(random_() % (2 * page_bytes) + 1, expected_.size() - at));
        for (auto& byte : some) byte = static_cast<std::uint8_t>(random_() | 1);
        const std::int64_t put = session_->write(0, at, begin_of(some), some.size());
        ASSERT_TRUE(failing_ || put == static_cast<std::int64_t>(some.size())) << put;
        std::copy_n(some.begin(), std::max<std::int64_t>(put, 0),
                    expected_.begin() + static_cast<std::ptrdiff_t>(at));
    }
    // Of the buffer first, and then of the file below.
    void resize() {
        const std::uint64_t size =
            random_() % 4 == 0 ? random_() % 5 : random_() % (50 * page_bytes);
        int code = session_->resize(0, size);
        if (code != 0) {
            ASSERT_TRUE(failing_) << code;
            f_.env.clear();
            code = session_->resize(0, size);
        }
        ASSERT_EQ(code, 0);
        expected_.resize(size);
        ASSERT_EQ(::ftruncate(f_.fd, static_cast<off_t>(size)), 0);
    }
    void flush() {
        if (session_->flush(0) != 0) return;
        const bytes now = f_.on_disk();
        ASSERT_EQ(now, expected_);
    }
    // What was dirty is in the file first, so that what is lost by forgetting is known: nothing.
    void change_below() {
        if (expected_.empty()) return;
        f_.env.clear();
        ASSERT_EQ(session_->flush(0), 0);
        const std::uint64_t at = random_() % expected_.size();
        bytes some(std::min<std::uint64_t>(random_() % (5 * page_bytes) + 1, expected_.size() - at),
                   static_cast<std::uint8_t>(random_()));
        ASSERT_EQ(::pwrite(f_.fd, some.data(), some.size(), static_cast<off_t>(at)),
                  static_cast<ssize_t>(some.size()));
        std::copy(some.begin(), some.end(), expected_.begin() + static_cast<std::ptrdiff_t>(at));
        const std::uint64_t first = at / page_bytes, last = (at + some.size() - 1) / page_bytes;
        ASSERT_EQ(
            session_->forget(0, first, random_() % 4 == 0 ? ~std::uint64_t{0} : last - first + 1),
            0);
    }

    bytes expected_;
    buffered_file f_;
    const bool failing_;
    std::mt19937_64 random_;
    std::unique_ptr<buffer::session> session_;
};

std::uint8_t first_byte(buffer::session& session, std::uint64_t page, std::uint32_t file = 0) {
    std::byte byte{};
    EXPECT_EQ(session.read(file, page * page_bytes, &byte, 1), 1) << page;
    return static_cast<std::uint8_t>(byte);
}

void set_byte(buffer::session& session, std::uint64_t page, std::uint8_t value) {
    const std::byte byte{value};
    EXPECT_EQ(session.write(0, page * page_bytes, &byte, 1), 1) << page;
}

using changing_files = on_backends;

}  // namespace

TEST_P(changing_files, hold_what_was_written) {
    for (const order_kind order : {order_kind::lru, order_kind::clock})
        for (const auto& [host, device] : {std::pair{5u, 0u}, {5u, 1u}, {6u, 9u}, {5u, 100u}})
            shadowed(small(host, device, order), host + device, GetParam(), false)
                .run(rounds(2000));
}

TEST_P(changing_files, hold_what_was_written_where_reads_and_writes_fail) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed)
        for (const auto& [host, device] : {std::pair{5u, 0u}, {6u, 7u}})
            shadowed(small(host, device, order_kind::lru), seed, GetParam(), true)
                .run(rounds(2000));
}

TEST_P(changing_files, leave_without_being_written) {
    bytes content = pattern(5, 40 * page_bytes);
    for (std::uint64_t page = 0; page < 40; ++page) content[page * page_bytes] = 1;
    buffered_file f(small(20, 20, order_kind::lru), content, GetParam());
    auto session = f.all->open_session();
    for (std::uint64_t page = 0; page < 40; ++page) set_byte(*session, page, 9);
    EXPECT_EQ(f.all->counts().device_pages, 20u);
    EXPECT_EQ(f.all->counts().device_bytes, 20 * page_bytes);
    EXPECT_EQ(session->forget(0, 3, 30), 0);
    EXPECT_EQ(f.all->counts().pages, 10u);
    EXPECT_EQ(session->resize(0, 35 * page_bytes), 0);
    EXPECT_EQ(f.all->counts().pages, 5u);
    EXPECT_EQ(session->flush(0), 0);
    const bytes now = f.on_disk();
    for (std::uint64_t page = 0; page < 40; ++page)
        EXPECT_EQ(now[page * page_bytes], page < 3 || page == 33 || page == 34 ? 9 : 1) << page;
    EXPECT_EQ(first_byte(*session, 10), 1);
    EXPECT_EQ(session->forget(0, 50, 10), 0);
    EXPECT_EQ(f.all->counts().write_backs, 5u);
    f.expect_right();
}

TEST_P(changing_files, have_zeros_behind_their_end) {
    buffered_file f(small(6, 3, order_kind::lru), bytes(5 * page_bytes, 1), GetParam());
    auto session = f.all->open_session();
    for (std::uint64_t page = 0; page < 5; ++page) set_byte(*session, page, 9);
    fixed_page last;
    ASSERT_EQ(session->resize(0, 2 * page_bytes + 100), 0);
    ASSERT_EQ(session->fix({2, 0}, use_kind::write, last), 0);
    for (std::uint64_t at = 100; at < page_bytes; ++at)
        ASSERT_EQ(last.data[at], std::byte{0}) << at;
    std::memset(last.data + 100, 5, page_bytes - 100);  // of which the file has nothing
    session->unfix(last, true);
    ASSERT_EQ(session->resize(0, 3 * page_bytes), 0);
    bytes now(page_bytes);
    ASSERT_EQ(session->read(0, 2 * page_bytes, begin_of(now), page_bytes),
              static_cast<std::int64_t>(page_bytes));
    for (std::uint64_t at = 1; at < page_bytes; ++at) ASSERT_EQ(now[at], at < 100 ? 1 : 0) << at;
    f.expect_right();
}

// Others write the file below, and the page that was its last is in the buffer.
TEST_P(changing_files, that_are_only_read_change_their_size_too) {
    for (const std::uint32_t device_pages : {0u, 20u}) {
        bytes content = pattern(7, 3 * page_bytes + 77);
        buffered_file f(small(20, device_pages, order_kind::lru), content, GetParam());
        ASSERT_EQ(f.all->add_file(f.fd, content.size(), buffer::file_access::read), 1);
        auto session = f.all->open_session();
        const auto expect_all = [&] {
            bytes now(content.size() + 100);
            ASSERT_EQ(session->read(1, 0, begin_of(now), now.size()),
                      static_cast<std::int64_t>(content.size()));
            now.resize(content.size());
            EXPECT_EQ(now, content);
        };
        expect_all();
        ASSERT_EQ(session->resize(1, content.size()), 0);
        expect_all();
        for (const std::uint64_t size :
             {3 * page_bytes + 300, page_bytes + 5, 5 * page_bytes + 1}) {
            content = pattern(7, size);
            ASSERT_EQ(::ftruncate(f.fd, static_cast<off_t>(size)), 0);
            ASSERT_EQ(::pwrite(f.fd, content.data(), size, 0), static_cast<ssize_t>(size));
            ASSERT_EQ(session->resize(1, size), 0) << size;
            expect_all();
        }
        f.expect_right();
    }
}

TEST_P(changing_files, leave_nothing_of_a_page_to_the_next_in_its_frame) {
    buffered_file f(small(6, 0, order_kind::lru), bytes(5 * page_bytes, 1), GetParam());
    auto session = f.all->open_session();
    set_byte(*session, 0, 9);
    ASSERT_EQ(session->forget(0, 0, 1), 0);
    EXPECT_EQ(first_byte(*session, 1), 1);
    ASSERT_EQ(session->flush(0), 0);
    EXPECT_EQ(f.all->counts().write_backs, 0u);
}

TEST_P(changing_files, of_which_little_is_in_the_buffer_forget_all_of_it) {
    constexpr std::uint64_t pages = 3'000'000;
    buffered_file f(small(20, 20, order_kind::lru), bytes(page_bytes, 1), GetParam());
    ASSERT_EQ(::ftruncate(f.fd, pages * page_bytes), 0);
    auto session = f.all->open_session();
    ASSERT_EQ(session->resize(0, pages * page_bytes), 0);
    const std::vector<std::uint64_t> some = {0,         1,         1023,      1024,     4096,
                                             1'000'000, 1'000'001, pages - 2, pages - 1};
    const auto read_all = [&] {
        for (const std::uint64_t page : some)
            EXPECT_EQ(first_byte(*session, page), page == 0 ? 1 : 0);
        session.reset();
        session = f.all->open_session();  // tells its hits
        return f.all->counts();
    };
    EXPECT_EQ(read_all().misses, some.size());
    EXPECT_EQ(session->forget(0, 1, pages - 2), 0);  // all but the first and the last
    EXPECT_EQ(f.all->counts().pages, 2u);
    EXPECT_EQ(read_all().misses, 2 * some.size() - 2);
    EXPECT_EQ(session->forget(0, 1024, ~std::uint64_t{0}), 0);
    EXPECT_EQ(f.all->counts().pages, 3u);
}

TEST_P(changing_files, come_and_go_under_one_number) {
    manager_settings settings = small(8, 30, order_kind::lru);
    settings.files = 3;
    settings.wait_ms = 50;
    buffered_file f(settings, bytes(20 * page_bytes, 1), GetParam());
    write_file(f.folder / "g", bytes(10 * page_bytes, 2));
    const int other = ::open((f.folder / "g").c_str(), O_RDWR | O_CLOEXEC);
    auto session = f.all->open_session();
    EXPECT_EQ(f.all->add_file(other, 0), 1);
    EXPECT_EQ(f.all->add_file(other, 1ull << 60), -EINVAL);
    EXPECT_EQ(f.all->add_file(other, 10 * page_bytes), 2);
    EXPECT_EQ(f.all->add_file(other, 10 * page_bytes), -EMFILE);
    std::byte none{};
    EXPECT_EQ(session->read(1, 0, &none, 1), 0);
    EXPECT_EQ(session->read(3, 0, &none, 1), -EBADF);
    EXPECT_EQ(session->forget(3, 0, 1), -EINVAL);
    EXPECT_EQ(session->resize(0, 1ull << 60), -EINVAL);
    for (std::uint64_t page = 0; page < 20; ++page) set_byte(*session, page, 9);
    EXPECT_EQ(first_byte(*session, 4, 2), 2);
    fixed_page held;
    ASSERT_EQ(session->fix({4, 0}, use_kind::write, held), 0);
    EXPECT_EQ(f.all->remove_file(0), -ETIMEDOUT);
    session->unfix(held, false);
    EXPECT_EQ(f.all->remove_file(0), 0);
    EXPECT_EQ(f.all->remove_file(0), -EINVAL);
    EXPECT_EQ(session->read(0, 0, &none, 1), -EBADF);
    EXPECT_EQ(session->fix({0, 0}, use_kind::read, held), -EINVAL);
    EXPECT_EQ(f.all->counts().pages, 1u);
    f.expect_right();
    EXPECT_EQ(f.all->add_file(other, 10 * page_bytes), 0);
    for (std::uint64_t page = 0; page < 10; ++page) EXPECT_EQ(first_byte(*session, page), 2);
    EXPECT_EQ(session->fix({10, 0}, use_kind::read, held), -EINVAL);
    EXPECT_EQ(f.on_disk(), bytes(20 * page_bytes, 1));
    EXPECT_EQ(session->resize(1, page_bytes + 3), 0);
    EXPECT_EQ(first_byte(*session, 1, 1), 2);
    f.expect_right();
    session.reset();
    f.all.reset();
    ::close(other);
}

// A closer takes away what it keeps under the number first.
TEST_P(changing_files, keep_their_number_until_it_is_freed) {
    manager_settings settings = small(8, 8, order_kind::lru);
    settings.files = 1;
    buffered_file f(settings, bytes(4 * page_bytes, 1), GetParam());
    auto session = f.all->open_session();
    EXPECT_EQ(first_byte(*session, 2), 1);
    ASSERT_EQ(f.all->begin_close(session.get(), 0), 0);
    ASSERT_EQ(f.all->end_close(session.get(), 0, true), 0);
    EXPECT_EQ(f.all->counts().pages, 0u);
    EXPECT_EQ(f.all->add_file(f.fd, 4 * page_bytes), -EMFILE);
    EXPECT_EQ(f.all->remove_file(0), -EBUSY);
    std::byte none{};
    EXPECT_EQ(f.all->open_session()->read(0, 0, &none, 1), -EBADF);
    f.all->free_number(0);
    EXPECT_EQ(f.all->remove_file(0), -EINVAL);
    EXPECT_EQ(f.all->add_file(f.fd, 4 * page_bytes), 0);
    EXPECT_EQ(first_byte(*session, 2), 1);
    f.expect_right();
}

TEST_P(changing_files, are_read_ahead_as_far_as_there_is_room) {
    buffered_file f(small(15, 10, order_kind::lru), pattern(3, 100 * page_bytes), GetParam());
    auto session = f.all->open_session();
    session->prefetch(0, 10, 4);
    EXPECT_EQ(f.all->counts().prefetched, 4u);
    session->prefetch(0, 12, 4);
    EXPECT_EQ(f.all->counts().prefetched, 6u);
    session->prefetch(
        0, 50,
        1'000'000);  // 15, less those that two sessions may have fixed or on their way: half of 11
    EXPECT_EQ(f.all->counts().prefetched, 11u);
    session->prefetch(0, 98, 5);
    session->prefetch(0, 200, 5);
    session->prefetch(5, 0, 5);
    EXPECT_EQ(f.all->counts().prefetched, 13u);
    EXPECT_EQ(f.all->counts().misses + f.all->counts().loads + f.all->counts().host_hits, 0u);
    for (const std::uint64_t page : {10, 15, 50, 54, 98, 99}) first_byte(*session, page);
    f.env.set({.calls = fault::call_read, .nth = 1, .for_ever = true});
    session->prefetch(0, 30, 5);
    f.env.clear();
    session.reset();
    const buffer::manager_counts counts = f.all->counts();
    EXPECT_EQ(counts.prefetched, 13u);
    EXPECT_EQ(counts.misses, 0u);
    EXPECT_EQ(counts.host_hits, 6u);
    f.expect_right();
}

TEST_P(changing_files, of_an_odd_size_are_read_past_the_page_cache) {
    const bytes content = pattern(5, 3 * 4096 + 77);
    buffered_file f(small(5, 5, order_kind::lru, 4096), content, GetParam());
    const int direct = ::open((f.folder / "f").c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC);
    if (direct < 0) GTEST_SKIP() << "the file system cannot read past the page cache";
    EXPECT_EQ(f.all->add_file(direct, content.size()), 1);
    auto session = f.all->open_session();
    bytes now(content.size() + 50);
    ASSERT_EQ(session->read(1, 0, begin_of(now), now.size()),
              static_cast<std::int64_t>(content.size()));
    now.resize(content.size());
    EXPECT_EQ(now, content);
    ASSERT_EQ(session->forget(1, 0, 4), 0);
    ASSERT_EQ(::ftruncate(f.fd, 3 * 4096 + 5), 0);
    EXPECT_EQ(session->read(1, 3 * 4096, begin_of(now), 77), -ESTALE);
    f.expect_right();
    session.reset();
    f.all.reset();
    ::close(direct);
}

TEST(policies, of_a_buffer_are_refused_where_they_cannot_be) {
    std::string why;
    std::unique_ptr<buffer::manager> none;
    fault::faulty_environment env;
    manager_settings settings = small(5, 5, order_kind::lru);
    const auto frames = buffer::make_cpu_frames(buffer::frames_for(settings), why);
    settings.policy = buffer::policy_kind::native;
    EXPECT_EQ(buffer::manager::make(settings, *frames, env, none).code, -EINVAL);
    settings.device_pages = 0;
    EXPECT_TRUE(buffer::manager::make(settings, *frames, env, none).ok());
}

INSTANTIATE_TEST_SUITE_P(on, changing_files,
                         testing::Values(buffer_kind(backend::cpu), buffer_kind(backend::gpu),
                                         buffer_kind(backend::cpu, buffer::policy_kind::dedu),
                                         buffer_kind(backend::gpu, buffer::policy_kind::dedu)),
                         name_of);

}  // namespace penstock::test
