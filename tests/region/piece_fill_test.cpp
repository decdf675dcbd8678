// How pieces come to a device of its own memory: workers read the file while the caller changes the
// device's addresses, and send nothing before that is done. A device of host memory stands for it.
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <set>

#include "fault/faulty_environment.hpp"
#include "os/file_kind.hpp"
#include "region/piece_set.hpp"
#include "region/support.hpp"

namespace penstock::test {

namespace {

using region::piece_memory;
using region::piece_shape;
using region::placed_piece;
using region::stream_mark;

constexpr std::uint64_t piece_bytes = 8 << 20, piece_count = 4,
                        file_bytes = piece_count * piece_bytes - 4321;

// What the test plans, and what the stand-in saw. It outlives the stand-in.
struct device_log {
    std::mutex mutex;
    std::condition_variable changed;
    int place_error = 0, begin_error = 0;
    bool waits_for_a_read = false;  // place() returns once a worker has begun to read
    bool read_meanwhile = false;
    std::uint64_t sent_parts = 0, early_parts = 0;
};

class stand_in final : public piece_memory {
public:
    explicit stand_in(device_log& log) : log_(log), bytes_(piece_count * piece_bytes) {
        for (auto& of_worker : buffers_)
            for (auto& buffer : of_worker) buffer.resize(region::most_part_bytes);
    }
    [[nodiscard]] std::byte* data() const override { return const_cast<std::byte*>(bytes_.data()); }
    [[nodiscard]] std::uint32_t slots() const override { return 2; }
    [[nodiscard]] unsigned workers() const override { return 2; }
    [[nodiscard]] bool reads_in_place() const override { return false; }

    int place(const std::vector<placed_piece>& fresh) override {
        std::unique_lock lock(log_.mutex);
        if (log_.waits_for_a_read)
            log_.changed.wait_for(lock, std::chrono::seconds(60),
                                  [&] { return log_.read_meanwhile; });
        if (log_.place_error != 0) return log_.place_error;
        for (const placed_piece& p : fresh) placed_.insert(p.number);
        return 0;
    }
    int remove(const std::vector<placed_piece>& gone) override {
        const std::lock_guard lock(log_.mutex);
        for (const placed_piece& p : gone) {
            placed_.erase(p.number);
            std::memset(&bytes_[p.number * piece_bytes], 0xEE, piece_bytes);
        }
        return 0;
    }
    int begin_fill(std::uint64_t) override { return log_.begin_error; }
    int end_fill(std::uint64_t) override { return 0; }
    std::byte* buffer(unsigned worker, unsigned which, std::uint64_t offset) override {
        const std::lock_guard lock(log_.mutex);
        log_.read_meanwhile |= placed_.count(offset / piece_bytes) == 0;
        log_.changed.notify_all();
        return buffers_[worker][which].data();
    }
    int send(unsigned worker, unsigned which, std::uint64_t offset, std::uint64_t bytes) override {
        const std::lock_guard lock(log_.mutex);
        ++log_.sent_parts;
        log_.early_parts += placed_.count(offset / piece_bytes) == 0 ? 1 : 0;
        std::memcpy(&bytes_[offset], buffers_[worker][which].data(), bytes);
        return 0;
    }
    int clear(unsigned, std::uint64_t offset, std::uint64_t bytes) override {
        std::memset(&bytes_[offset], 0, bytes);
        return 0;
    }
    int to_host(std::uint64_t, std::uint64_t) override { return -ENOSYS; }
    int from_host(unsigned, std::uint64_t, std::uint64_t) override { return -ENOSYS; }
    int mark_workers(stream_mark&) override { return 0; }
    int mark(void*, stream_mark&) override { return 0; }
    int wait(const stream_mark&) override { return 0; }
    [[nodiscard]] bool has_passed(const stream_mark&) const override { return true; }
    int order(void*, const stream_mark&) override { return 0; }
    int check(void*) override { return 0; }

private:
    device_log& log_;
    std::vector<std::byte> bytes_;
    std::set<std::uint64_t> placed_;
    std::vector<std::byte> buffers_[2][2];
};

class piece_fill_test : public testing::Test {
protected:
    void SetUp() override {
        write_file(path, bytes);
        host::file_facts facts;
        const int fd = host::open_regular(env, path, facts);
        ASSERT_GE(fd, 0);
        set = std::make_unique<region::piece_set>(
            env, host::hub::of_process(), fd, facts, std::make_unique<stand_in>(log),
            piece_shape{.pieces = piece_count, .piece_bytes = piece_bytes}, path,
            [](const std::string&) {});
    }
    static byte_range range_of(std::uint64_t first, std::uint64_t count = 1) {
        return {first * piece_bytes,
                std::min(count * piece_bytes, file_bytes - first * piece_bytes)};
    }
    std::int64_t expect_pieces(std::uint64_t first, std::uint64_t count = 1) const {
        return set->expect({{range_of(first, count)}}, nullptr);
    }
    int end_use(std::uint64_t first, std::uint64_t count = 1) const {
        return set->done({{range_of(first, count)}}, nullptr);
    }
    [[nodiscard]] bool is_right(std::uint64_t first, std::uint64_t count = 1) const {
        const byte_range range = range_of(first, count);
        return std::memcmp(static_cast<const std::byte*>(set->data()) + range.offset_bytes,
                           &bytes[range.offset_bytes], range.bytes) == 0;
    }

    const temporary_folder folder;
    const std::string path = folder / "data";
    const std::vector<std::uint8_t> bytes = pattern(5, file_bytes);
    fault::faulty_environment env;
    device_log log;
    std::unique_ptr<region::piece_set> set;
};

}  // namespace

TEST_F(piece_fill_test, workers_read_while_pieces_get_their_memory) {
    log.waits_for_a_read = true;
    ASSERT_EQ(expect_pieces(0, 2), 2);
    EXPECT_TRUE(log.read_meanwhile);
    EXPECT_EQ(log.sent_parts, 4u);
    EXPECT_EQ(log.early_parts, 0u);
    EXPECT_TRUE(is_right(0, 2));
    ASSERT_EQ(end_use(0, 2), 0);

    log.read_meanwhile = false;
    ASSERT_EQ(expect_pieces(2), 1);
    EXPECT_TRUE(log.read_meanwhile);
    EXPECT_EQ(log.early_parts, 0u);
    EXPECT_TRUE(is_right(2));
    EXPECT_FALSE(set->is_resident({{range_of(0)}}));
    ASSERT_EQ(end_use(2), 0);
}

TEST_F(piece_fill_test, nothing_is_sent_to_pieces_without_memory) {
    log.waits_for_a_read = true;
    log.place_error = -ENOMEM;
    EXPECT_EQ(expect_pieces(0, 2), -ENOMEM);
    EXPECT_EQ(log.sent_parts, 0u);
    EXPECT_FALSE(set->is_resident({{range_of(0)}}));
    log.place_error = 0;
    ASSERT_EQ(expect_pieces(0, 2), 2);
    EXPECT_TRUE(is_right(0, 2));
    ASSERT_EQ(end_use(0, 2), 0);
}

// Both were here before, with the version that the file still has.
TEST_F(piece_fill_test, pieces_whose_fill_does_not_begin_are_absent) {
    ASSERT_EQ(expect_pieces(0, 2), 2);
    ASSERT_EQ(end_use(0, 2), 0);
    ASSERT_EQ(expect_pieces(2, 2), 2);
    ASSERT_EQ(end_use(2, 2), 0);
    log.begin_error = -ENOMEM;
    EXPECT_EQ(expect_pieces(0, 2), -ENOMEM);
    EXPECT_FALSE(set->is_resident({{range_of(0)}}));
    EXPECT_FALSE(set->is_resident({{range_of(1)}}));
    log.begin_error = 0;
    ASSERT_EQ(expect_pieces(0, 2), 2);
    EXPECT_TRUE(is_right(0, 2));
    ASSERT_EQ(end_use(0, 2), 0);
}

TEST_F(piece_fill_test, a_read_that_fails_meanwhile_leaves_the_pieces_absent) {
    for (std::uint64_t nth = 1; nth <= 4; ++nth) {
        env.set({.calls = fault::call_read, .nth = nth, .error = -EIO});
        EXPECT_EQ(expect_pieces(0, 2), -EIO) << nth;
        EXPECT_FALSE(set->is_resident({{range_of(0)}})) << nth;
        EXPECT_FALSE(set->is_resident({{range_of(1)}})) << nth;
    }
    env.clear();
    ASSERT_EQ(expect_pieces(0, 2), 2);
    EXPECT_TRUE(is_right(0, 2));
    EXPECT_EQ(log.early_parts, 0u);
    ASSERT_EQ(end_use(0, 2), 0);
}

}  // namespace penstock::test
