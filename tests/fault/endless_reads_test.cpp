// A storage that says "try again" to reads for ever: each read ends with what it said, and the
// service thread goes on.
#include <cerrno>

#include "fault/scenario.hpp"

namespace penstock::fault {

namespace {

struct endless_case {
    io_method io;
    bool tier;
    int error;
};

class endless_reads : public testing::TestWithParam<endless_case> {};

}  // namespace

TEST_P(endless_reads, end_in_an_error) {
    const endless_case c = GetParam();
    const sample_folder from;
    faulty_environment disk;
    const auto rt = test::make_runtime(tiny_options(from, c.io, c.tier), tiny_hooks(disk));
    const int fd = open(lane{}, rt->ref(), "f1"), other = open(lane{}, rt->ref(), "f2");
    if (c.tier) {
        EXPECT_EQ(advise(lane{}, rt->ref(), fd, advice::sequential), 0);
    }
    const std::uint64_t errors_before = rt->stats().file_read_errors;
    disk.set({.calls = call_read | call_direct_read, .nth = 1, .for_ever = true, .error = c.error});
    std::vector<std::uint8_t> got(sample_folder::size(1));
    const auto all = static_cast<std::int64_t>(got.size());
    EXPECT_EQ(read(lane{}, rt->ref(), fd, got.data(), all, 0), c.error);
    EXPECT_GE(disk.failures(), static_cast<std::uint64_t>(host::most_attempts));
    EXPECT_GT(rt->stats().file_read_errors, errors_before);
    // A page that comes after all, after as many tries again as were few enough.
    disk.set({.calls = call_read | call_direct_read, .nth = 1, .error = c.error});
    EXPECT_EQ(read(lane{}, rt->ref(), other, got.data(), 100, 0), 100);
    disk.clear();
    EXPECT_EQ(read(lane{}, rt->ref(), fd, got.data(), all, 0), all);
    EXPECT_EQ(got, test::pattern(1, got.size()));
    for (const int each : {fd, other}) EXPECT_EQ(close(lane{}, rt->ref(), each), 0);
    EXPECT_EQ(what_is_lost(*rt), "");
}

INSTANTIATE_TEST_SUITE_P(all, endless_reads,
                         testing::Values(endless_case{io_method::automatic, false, -EAGAIN},
                                         endless_case{io_method::automatic, false, -EINTR},
                                         endless_case{io_method::pread, false, -EAGAIN},
                                         endless_case{io_method::automatic, true, -EAGAIN},
                                         endless_case{io_method::pread, true, -EINTR}));

}  // namespace penstock::fault
