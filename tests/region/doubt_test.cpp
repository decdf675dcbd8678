// Files that may have changed, or may be changing, without other times: what regions and pieces
// have of them is not believed then.
#include <gtest/gtest.h>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "os/file_kind.hpp"
#include "region/coarse_times.hpp"
#include "region/piece_set.hpp"
#include "region/program_reads.hpp"
#include "region/support.hpp"

namespace penstock::test::doubt {

namespace {

using bytes = std::vector<std::uint8_t>;

constexpr std::uint64_t grain = 4096, piece_bytes = 2 << 20, file_bytes = 2 * piece_bytes;

class doubtful_times : public testing::Test {
protected:
    doubtful_times() { write_file(path_, content_); }
    void make() {
        host::runtime_hooks hooks;
        hooks.env = &env_;
        runtime_ = make_runtime(region_runtime(folder_, backend::cpu), hooks);
    }
    // By a program that tells nothing, and the times stay.
    void change(std::uint64_t at, std::uint8_t value) {
        patch_file(path_, at, {value});
        content_[at] = value;
    }

    const temporary_folder folder_;
    const std::string path_ = folder_ / "f";
    bytes content_ = pattern(7, file_bytes);
    coarse_times env_;
    std::unique_ptr<runtime> runtime_;
};

}  // namespace

TEST_F(doubtful_times, an_acquire_brings_all_until_the_times_are_old) {
    make();
    const auto r = map_whole(*runtime_, path_, protection::read);
    for (const std::uint8_t value : {1, 2}) {
        change(5 * grain, value);
        EXPECT_EQ(r->acquire(), static_cast<std::int64_t>(file_bytes / grain));
        EXPECT_TRUE(peek(*r, backend::cpu, 0, file_bytes) == content_);
    }
    env_.is_old = true;
    EXPECT_EQ(r->acquire(), static_cast<std::int64_t>(file_bytes / grain)) << "since the last look";
    EXPECT_EQ(r->acquire(), 0);
}

TEST_F(doubtful_times, a_program_reads_the_file_while_it_has_a_writer) {
    env_.is_old = true;
    make();
    env_.say_cached(0);
    const auto r = map_whole(*runtime_, path_, protection::read);
    const int fd = ::open(path_.c_str(), O_RDONLY);
    ASSERT_GE(fd, 0);
    const auto from_devices = [&] {
        std::uint64_t got = 0;
        EXPECT_TRUE(read_as_program(key_of(fd), fd, grain, grain, got) ==
                    bytes(content_.begin() + grain, content_.begin() + 2 * grain));
        return got;
    };
    EXPECT_EQ(from_devices(), grain);
    env_.has_writer = true;
    change(grain, 3);
    EXPECT_EQ(from_devices(), 0u);
    ::close(fd);
}

TEST_F(doubtful_times, pieces_come_anew_until_the_times_are_old) {
    host::file_facts facts;
    const int fd = host::open_regular(env_, path_, facts);
    ASSERT_GE(fd, 0);
    const region::piece_shape shape{.pieces = 2, .piece_bytes = piece_bytes};
    status why;
    region::piece_set set(env_, host::hub::of_process(), fd, facts,
                          region::make_cpu_pieces(shape, why), shape, path_,
                          [](const std::string&) {});
    const byte_range first{0, piece_bytes};
    const auto use_first = [&] {
        const std::int64_t came = set.expect({{first}}, nullptr);
        EXPECT_TRUE(std::equal(content_.begin(), content_.begin() + piece_bytes,
                               static_cast<const std::uint8_t*>(set.data())));
        EXPECT_EQ(set.done({{first}}, nullptr), 0);
        return came;
    };
    for (const std::uint8_t value : {1, 2, 3}) {
        change(5 * grain, value);
        EXPECT_EQ(use_first(), 1);
    }
    env_.is_old = true;
    EXPECT_EQ(use_first(), 1) << "since the last look";
    EXPECT_EQ(use_first(), 0);
}

}  // namespace penstock::test::doubt
