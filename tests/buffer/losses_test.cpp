// What a flush says where a disk or a device fails: 0 only if all is in the file.
#include <cerrno>
#include <cstring>
#include <thread>

#include "buffered_file.hpp"
#include "soon.hpp"

namespace penstock::test::losses {

namespace {

using buffer::fixed_page;
using buffer::order_kind;
using buffer::use_kind;

constexpr std::uint64_t page_bytes = 512;

// A device that moves nothing any more once it is told so.
class failing_frames final : public buffer::device_frames {
public:
    explicit failing_frames(frames_owner real) : real_(std::move(real)) {}
    [[nodiscard]] std::byte* host_frames() const override { return real_->host_frames(); }
    int begin(unsigned queue, const std::vector<buffer::frame_move>& batch) override {
        return fails ? -EIO : real_->begin(queue, batch);
    }
    int end(unsigned queue) override { return fails || fails_to_end ? -EIO : real_->end(queue); }
    int compare(unsigned queue, const std::vector<buffer::frame_pair>& pairs,
                std::vector<std::uint8_t>& equal) override {
        return fails ? -EIO : real_->compare(queue, pairs, equal);
    }
    int hash(unsigned queue, buffer::signature_kind kind, const std::vector<std::uint32_t>& host,
             std::vector<buffer::content_hash>& out) override {
        return fails ? -EIO : real_->hash(queue, kind, host, out);
    }

    bool fails = false, fails_to_end = false;

private:
    const frames_owner real_;
};

using losses = on_backends;

}  // namespace

// EINVAL is what the kernel says of a file whose file system has no fsync.
TEST_P(losses, are_none_where_a_file_system_has_no_fsync) {
    buffered_file f(small(8, 8, order_kind::lru), bytes(4 * page_bytes, 1), GetParam());
    auto session = f.all->open_session();
    const std::byte nine{9};
    ASSERT_EQ(session->write(0, 0, &nine, 1), 1);
    f.env.set({.calls = fault::call_sync, .nth = 1, .for_ever = true, .error = -EINVAL});
    EXPECT_EQ(session->flush(0), 0);
    EXPECT_EQ(f.on_disk()[0], 9);
    EXPECT_EQ(f.all->begin_close(session.get(), 0), 0);
    EXPECT_EQ(f.all->end_close(session.get(), 0, true), 0);
    f.all->free_number(0);
    EXPECT_EQ(session->flush(0), -EINVAL);
}

// The kernel tells a descriptor once that it could not bring bytes to storage, and may have dropped
// them: that the next sync finds nothing to do says nothing of them.
TEST_P(losses, of_a_sync_are_told_by_every_flush_until_the_file_is_opened_anew) {
    buffered_file f(small(8, 8, order_kind::lru), bytes(4 * page_bytes, 1), GetParam());
    auto session = f.all->open_session();
    const std::byte nine{9};
    ASSERT_EQ(session->write(0, 0, &nine, 1), 1);
    f.env.set({.calls = fault::call_sync, .nth = 1, .error = -ENOSPC});
    EXPECT_EQ(session->flush(0), -ENOSPC);
    EXPECT_EQ(session->flush(0), -EIO);
    EXPECT_EQ(f.all->begin_close(session.get(), 0), 0);
    EXPECT_EQ(f.all->end_close(session.get(), 0, true), -EIO);
    EXPECT_EQ(session->flush(0), -EIO) << "and the file is open as before";
    ASSERT_EQ(f.all->remove_file(0), 0);
    ASSERT_EQ(f.all->add_file(f.fd, 4 * page_bytes), 0);
    ASSERT_EQ(session->write(0, 0, &nine, 1), 1);
    EXPECT_EQ(session->flush(0), 0);
    EXPECT_EQ(f.all->begin_close(session.get(), 0), 0);
    EXPECT_EQ(f.all->end_close(session.get(), 0, true), 0);
    f.all->free_number(0);
}

// Of two flushes at a time the kernel tells one.
TEST_P(losses, of_a_sync_are_told_by_flushes_at_the_same_time) {
    buffered_file f(small(8, 8, order_kind::lru), bytes(4 * page_bytes, 1), GetParam());
    auto first = f.all->open_session(), second = f.all->open_session();
    const std::byte nine{9};
    ASSERT_EQ(first->write(0, 0, &nine, 1), 1);
    f.env.set({.calls = fault::call_sync, .nth = 1, .error = -EIO});
    f.env.stall(fault::call_sync);
    int code_of_first = 0, code_of_second = 0;
    std::thread one([&] { code_of_first = first->flush(0); });
    while (f.env.stalled() == 0) std::this_thread::yield();
    std::thread other([&] { code_of_second = second->flush(0); });
    f.env.release();
    one.join();
    other.join();
    EXPECT_EQ(code_of_first, -EIO);
    EXPECT_EQ(code_of_second, -EIO);
}

// Flushes that come while one is at the disk go there together, and none before its bytes do.
TEST_P(losses, are_none_where_flushes_share_a_sync) {
    constexpr std::uint32_t sessions = 4;
    buffer::manager_settings settings = small(16, 8, order_kind::lru);
    settings.sessions = sessions;
    buffered_file f(settings, bytes(sessions * page_bytes, 1), GetParam());
    f.env.set({.calls = fault::call_sync});
    std::vector<std::thread> all;
    for (std::uint32_t i = 0; i < sessions; ++i)
        all.emplace_back([&, i] {
            const auto session = f.all->open_session();
            for (int round = 0; round < 200; ++round) {
                const std::byte now{static_cast<std::uint8_t>(round)};
                ASSERT_EQ(session->write(0, i * page_bytes, &now, 1), 1);
                ASSERT_EQ(session->flush(0), 0);
                ASSERT_EQ(f.on_disk()[i * page_bytes], round);
            }
        });
    for (std::thread& each : all) each.join();
    EXPECT_GE(f.env.calls(), 200u);
    EXPECT_LE(f.env.calls(), 200u * sessions);
}

// The bytes came to the file after the sync had begun, so that one need not have them.
TEST_P(losses, are_none_where_a_flush_comes_while_another_is_at_the_disk) {
    buffered_file f(small(8, 8, order_kind::lru), bytes(4 * page_bytes, 1), GetParam());
    auto first = f.all->open_session(), second = f.all->open_session();
    const std::byte nine{9};
    ASSERT_EQ(first->write(0, 0, &nine, 1), 1);
    f.env.set({.calls = fault::call_sync});
    f.env.stall(fault::call_sync);
    std::thread one([&] { EXPECT_EQ(first->flush(0), 0); });
    EXPECT_TRUE(soon([&] { return f.env.stalled() == 1; }));
    std::thread other([&] {
        EXPECT_EQ(second->write(0, page_bytes, &nine, 1), 1);
        EXPECT_EQ(second->flush(0), 0);
    });
    EXPECT_TRUE(soon([&] { return f.on_disk()[page_bytes] == 9; }));
    // So that it finds the first one there; if it comes later, it begins a sync of its own.
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    f.env.release();
    one.join();
    other.join();
    EXPECT_EQ(f.env.calls(), 2u);
}

// What a signal ended has lost nothing; of a file that is only read nothing can be lost.
TEST_P(losses, are_none_where_a_signal_ends_a_sync_or_the_file_is_only_read) {
    buffered_file f(small(8, 8, order_kind::lru), bytes(4 * page_bytes, 1), GetParam());
    auto session = f.all->open_session();
    const std::byte nine{9};
    ASSERT_EQ(session->write(0, 0, &nine, 1), 1);
    f.env.set({.calls = fault::call_sync, .nth = 1, .error = -EINTR});
    EXPECT_EQ(session->flush(0), 0);
    ASSERT_EQ(f.all->add_file(f.fd, page_bytes, buffer::file_access::read), 1);
    f.env.set({.calls = fault::call_sync, .nth = 1, .error = -EIO});
    EXPECT_EQ(session->flush(1), -EIO) << "what another program wrote";
    EXPECT_EQ(session->flush(1), 0);
}

// Pages that were changed and are in the device alone are lost with it; a flush must not say that
// they are in the file.
TEST_P(losses, of_a_device_are_told_by_every_flush) {
    failing_frames* device = nullptr;
    const auto around = [&](frames_owner real) {
        auto made = std::make_unique<failing_frames>(std::move(real));
        device = made.get();
        return made;
    };
    buffer::manager_settings settings = small(6, 8, order_kind::lru);
    settings.policy = GetParam().policy;
    buffered_file f(settings, pattern(3, 20 * page_bytes), GetParam().where, around);
    auto session = f.all->open_session();
    const std::byte nine{9};
    ASSERT_EQ(session->write(0, 0, &nine, 1), 1);
    fixed_page page;
    for (std::uint64_t other = 1; other < 9; ++other) {
        ASSERT_EQ(session->fix({other, 0}, use_kind::read, page), 0);
        session->unfix(page, false);
    }
    device->fails = true;
    EXPECT_EQ(session->fix({0, 0}, use_kind::read, page), -EIO);
    EXPECT_EQ(session->flush(0), -EIO);
    EXPECT_EQ(session->flush(0), -EIO);
    device->fails = false;
    EXPECT_EQ(session->flush(0), -EIO);
    EXPECT_NE(f.on_disk()[0], 9);
}

// The page that goes to the device is lost, though the one that comes is there.
TEST(losses_of_a_demotion, are_told_to_the_thread_that_made_room) {
    failing_frames* device = nullptr;
    const auto around = [&](frames_owner real) {
        auto made = std::make_unique<failing_frames>(std::move(real));
        device = made.get();
        return made;
    };
    constexpr std::uint32_t host_pages = 6;
    buffered_file f(small(host_pages, 8, order_kind::lru), pattern(3, 20 * page_bytes),
                    backend::cpu, around);
    auto session = f.all->open_session();
    const std::byte nine{9};
    ASSERT_EQ(session->write(0, 0, &nine, 1), 1);
    fixed_page page;
    for (std::uint64_t other = 1; other < host_pages; ++other) {
        ASSERT_EQ(session->fix({other, 0}, use_kind::read, page), 0);
        session->unfix(page, false);
    }
    device->fails_to_end = true;
    EXPECT_EQ(session->fix({host_pages, 0}, use_kind::read, page), -EIO);
    device->fails_to_end = false;
    EXPECT_EQ(session->flush(0), -EIO);
    EXPECT_NE(f.on_disk()[0], 9);
}

INSTANTIATE_TEST_SUITE_P(on, losses,
                         testing::Values(buffer_kind(backend::cpu),
                                         buffer_kind(backend::cpu, buffer::policy_kind::dedu)),
                         name_of);

}  // namespace penstock::test::losses
