// Which reads go into registered memory, and when it is registered.
#include "os/registering_engine.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "unit/support.hpp"

namespace penstock::host {

using penstock::test::pattern;
using penstock::test::temporary_folder;

namespace {

struct calls {
    std::vector<read_operation> started;
    std::vector<memory_area> registered;
    int registrations = 0;
    int answer = 0;  // to the next one
};

class recording_engine final : public io_engine {
public:
    explicit recording_engine(calls& seen) : seen_(seen) {}
    [[nodiscard]] const char* name() const override { return "recording"; }
    [[nodiscard]] std::uint32_t capacity() const override { return 1; }
    void start(const read_operation& operation) override { seen_.started.push_back(operation); }
    void submit() override {}
    void reap(std::vector<read_result>&, std::uint64_t) override {}
    int register_memory(const std::vector<memory_area>& areas) override {
        ++seen_.registrations;
        seen_.registered = areas;
        return seen_.answer;
    }

private:
    calls& seen_;
};

class registering : public testing::Test {
protected:
    static constexpr std::uint32_t page = 4096;
    alignas(4096) std::array<std::byte, 16 * page> memory{};
    calls seen;
    std::atomic<std::uint64_t> counted{0};
    int refusals = 0, refusal = 0;
    std::uint64_t refused_bytes = 0;
    // Pages 8 to 11 and 2 to 3; in this order, so that they have to be sorted.
    registering_engine engine{std::make_unique<recording_engine>(seen),
                              {{at(8), 4 * page}, {at(2), 2 * page}},
                              counted,
                              [this](std::uint64_t bytes, int code) {
                                  ++refusals;
                                  refused_bytes = bytes;
                                  refusal = code;
                              }};

    std::byte* at(std::uint32_t number) { return memory.data() + std::size_t{number} * page; }
    // The area that the engine below was told.
    std::int32_t read(std::byte* to, std::uint32_t bytes = page, bool direct = true) {
        read_operation operation{1, to, bytes, 0, 7};
        operation.direct = direct;
        engine.start(operation);
        return seen.started.back().area;
    }
    void read_as_much_as_there_is() {
        for (int i = 0; i < 6; ++i) EXPECT_EQ(read(at(8)), -1);
    }
};

}  // namespace

TEST_F(registering, begins_when_as_much_was_read_past_the_page_cache) {
    for (int i = 0; i < 100; ++i) EXPECT_EQ(read(at(8), page, false), -1);
    read_as_much_as_there_is();
    EXPECT_EQ(seen.registrations, 0);
    EXPECT_EQ(read(at(2)), 0);
    EXPECT_EQ(read(at(9)), 1);
    EXPECT_EQ(seen.registrations, 1);
    ASSERT_EQ(seen.registered.size(), 2u);
    EXPECT_EQ(seen.registered[0].begin, at(2));
    EXPECT_EQ(seen.registered[1].begin, at(8));
    EXPECT_EQ(counted, 2u);
    EXPECT_EQ(read(at(9), page, false), -1) << "the kernel copies anyway";
    EXPECT_EQ(counted, 2u);
    EXPECT_EQ(seen.started.size(), 109u);
    EXPECT_EQ(refusals, 0);
}

TEST_F(registering, only_what_lies_wholly_in_one_area_names_it) {
    read_as_much_as_there_is();
    EXPECT_EQ(read(at(2), 2 * page), 0);
    EXPECT_EQ(read(at(2), 2 * page + 1), -1);
    EXPECT_EQ(read(at(3) + page - 1, 1), 0);
    EXPECT_EQ(read(at(4), 1), -1);
    EXPECT_EQ(read(at(1), 2 * page), -1);
    EXPECT_EQ(read(at(0)), -1);
    EXPECT_EQ(read(at(8), 4 * page), 1);
    EXPECT_EQ(read(at(8) - 1, 2), -1);
    EXPECT_EQ(read(at(12)), -1);
    EXPECT_EQ(counted, 3u);
}

TEST_F(registering, a_refusal_is_told_once_and_reads_go_on) {
    seen.answer = -ENOMEM;
    read_as_much_as_there_is();
    for (int i = 0; i < 50; ++i) EXPECT_EQ(read(at(8)), -1);
    EXPECT_EQ(seen.started.size(), 56u);
    EXPECT_EQ(seen.registrations, 1);
    EXPECT_EQ(refusals, 1);
    EXPECT_EQ(refusal, -ENOMEM);
    EXPECT_EQ(refused_bytes, 6u * page);
    EXPECT_EQ(counted, 0u);
}

TEST(areas_to_register, pieces_are_no_larger_than_the_kernel_takes) {
    constexpr std::uint64_t gib = std::uint64_t{1} << 30;
    std::byte* const base = reinterpret_cast<std::byte*>(gib * 64);
    const auto areas = areas_to_register({{base, 2 * gib + 5}, {base + 4 * gib, 4096}}, {}, 1, 0);
    ASSERT_EQ(areas.size(), 4u);
    EXPECT_EQ(areas[0].bytes, gib);
    EXPECT_EQ(areas[1].begin, base + gib);
    EXPECT_EQ(areas[1].bytes, gib);
    EXPECT_EQ(areas[2].bytes, 5u);
    EXPECT_EQ(areas[3].begin, base + 4 * gib);
}

TEST(areas_to_register, the_tier_only_where_all_threads_may_pin_it) {
    constexpr std::uint64_t mib = 1 << 20;
    std::byte* const base = reinterpret_cast<std::byte*>(mib * 4096);
    const memory_area staging{base, 2 * mib}, tier{base + 64 * mib, 8 * mib},
        large{base + 64 * mib, 1025 * mib};
    EXPECT_EQ(areas_to_register({staging}, tier, 4, 40 * mib).size(), 2u);
    EXPECT_EQ(areas_to_register({staging}, tier, 4, 40 * mib - 1).size(), 1u);
    EXPECT_EQ(areas_to_register({staging}, tier, 5, 40 * mib).size(), 1u);
    EXPECT_EQ(areas_to_register({staging}, tier, 64, UINT64_MAX).size(), 2u) << "no limit";
    EXPECT_EQ(areas_to_register({staging}, large, 1, UINT64_MAX).size(), 1u) << "too long a pause";
}

// The kernel itself, with the number of the right area and with none.
TEST(uring_engine, reads_into_registered_memory) {
    constexpr std::uint32_t page = 4096;
    const temporary_folder folder;
    const auto bytes = pattern(5, 8 * page);
    test::write_file(folder / "a", bytes);
    std::string why;
    const auto io = linux_environment().make_io_engine(true, 8, why);
    if (io == nullptr) GTEST_SKIP() << why;
    alignas(4096) static std::array<std::byte, 8 * page> first, second;
    const int code =
        io->register_memory({{first.data(), first.size()}, {second.data(), second.size()}});
    if (code != 0)
        GTEST_SKIP() << "this kernel registers no memory for this user: " << error_text(code);
    EXPECT_LT(io->register_memory({{first.data(), first.size()}}), 0) << "only once";
    const int fd = ::open((folder / "a").c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    for (std::uint32_t i = 0; i < 8; ++i) {
        read_operation operation{fd, (i % 2 == 0 ? first : second).data() + std::size_t{i} * page,
                                 page, std::uint64_t{i} * page, i};
        operation.area = i < 6 ? static_cast<std::int32_t>(i % 2) : -1;
        io->start(operation);
    }
    read_operation wrong{fd, second.data(), page, 0, 8};
    wrong.area = 0;
    io->submit();
    io->start(wrong);
    io->submit();
    std::vector<read_result> results;
    for (int round = 0; round < 100 && results.size() < 9; ++round) io->reap(results, 100'000'000);
    ASSERT_EQ(results.size(), 9u);
    for (const read_result& completion : results)
        EXPECT_EQ(completion.result, completion.tag == 8 ? -EFAULT : std::int64_t{page})
            << completion.tag;
    for (std::uint32_t i = 0; i < 8; ++i) {
        const auto& to = i % 2 == 0 ? first : second;
        EXPECT_EQ(std::memcmp(to.data() + std::size_t{i} * page,
                              bytes.data() + std::size_t{i} * page, page),
                  0)
            << i;
    }
    ::close(fd);
}

}  // namespace penstock::host
