// A loan of pages to a reader on the host ends, whatever the reader does with the bytes.
#include <fcntl.h>
#include <unistd.h>

#include <new>

#include "fault/scenario.hpp"
#include "hub/hub.hpp"

namespace penstock::fault {

namespace {

// Counts the loans of the real one that are under way.
class counting_lender final : public host::page_lender {
public:
    host::page_lender* real = nullptr;
    int loans = 0, under_way = 0;

    bool begin_loan(const runtime_ref& fs, host::loan& peer_read) override {
        if (!real->begin_loan(fs, peer_read)) return false;
        ++loans, ++under_way;
        return true;
    }
    void end_loan(host::loan& peer_read) override {
        --under_way;
        real->end_loan(peer_read);
    }
    void end_late_loans() override { real->end_late_loans(); }
};

}  // namespace

TEST(loan_end, comes_after_an_exception_of_the_reader) {
    const temporary_folder folder;
    const auto bytes = test::pattern(4, 16 * page);
    test::write_file(folder / "data", bytes);
    test::let_files_settle();
    faulty_environment disk;
    disk.say_cached(0);
    host::hub shared;
    const auto device = host::make_cpu_device();
    counting_lender lender;
    lender.real = &device->lender();
    host::runtime_hooks hooks;
    hooks.env = &disk;
    hooks.shared = &shared;
    hooks.lender = &lender;
    const auto rt = test::make_runtime(test::small_options(folder, 1), hooks);
    const int opened = rt->open("data");
    std::vector<std::uint8_t> got(bytes.size());
    ASSERT_EQ(rt->read(opened, got.data(), static_cast<std::int64_t>(got.size()), 0),
              static_cast<std::int64_t>(got.size()));
    ASSERT_EQ(rt->close(opened), 0);
    const int fd = ::open((folder / "data").c_str(), O_RDONLY | O_CLOEXEC);
    EXPECT_THROW(shared.read_cached(fd, 0, page,
                                    [](const std::byte*, std::uint64_t, std::uint64_t) {
                                        throw std::bad_alloc();
                                    }),
                 std::bad_alloc);
    EXPECT_EQ(lender.loans, 1);
    EXPECT_EQ(lender.under_way, 0);
    std::uint64_t from_cache = 0;
    EXPECT_EQ(shared.read_cached(fd, 0, page,
                                 [&](const std::byte*, std::uint64_t, std::uint64_t cached) {
                                     from_cache = cached;
                                 }),
              page);
    EXPECT_EQ(from_cache, page);
    ::close(fd);
}

}  // namespace penstock::fault
