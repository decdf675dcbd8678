// A process or a machine that may open no more files: the message names that limit, and no fault of
// the file. And how a process shares out the descriptors that it may have.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <span>

#include "fault/scenario.hpp"
#include "os/file_kind.hpp"
#include "os/patient_open.hpp"
#include "os/regular_file.hpp"
#include "service/windows.hpp"
#include "store/block_store.hpp"
#include "store/warm.hpp"
#include "penstock/host_file.hpp"
#include "penstock/table.hpp"
#include "penstock/table_layout.hpp"

namespace penstock::fault {

namespace {

// No descriptor is left.
class no_handles {
public:
    no_handles() {
        EXPECT_EQ(::getrlimit(RLIMIT_NOFILE, &before_), 0);
        const int lowest = ::open("/", O_PATH | O_CLOEXEC);
        ::close(lowest);
        const rlimit less{static_cast<rlim_t>(lowest), before_.rlim_max};
        EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &less), 0);
    }
    ~no_handles() { EXPECT_EQ(::setrlimit(RLIMIT_NOFILE, &before_), 0); }
    no_handles(const no_handles&) = delete;
    no_handles& operator=(const no_handles&) = delete;

private:
    rlimit before_{};
};

class handle_limit : public testing::Test {
protected:
    handle_limit() { test::write_file(path, test::pattern(1, 5000)); }
    void expect_cure(const status& s) {
        EXPECT_EQ(s.code, -EMFILE) << s.message;
        EXPECT_NE(s.message.find("ulimit -n"), std::string::npos) << s.message;
        EXPECT_EQ(s.message.find("name a file"), std::string::npos) << s.message;
        EXPECT_EQ(s.message.find("max_files"), std::string::npos) << s.message;
    }

    const temporary_folder folder;
    const std::string path = folder / "data";
};

class no_store final : public host::block_store {
public:
    std::int64_t get(const host::block_key&, std::span<std::byte>, std::uint64_t, bool) override {
        return -ENOENT;
    }
    int put(const host::block_key&, std::span<const std::byte>, bool, std::uint64_t) override {
        return 0;
    }
};

}  // namespace

TEST_F(handle_limit, of_a_header_that_is_read) {
    table_layout layout;
    const no_handles none;
    expect_cure(describe_npy(path, layout));
}

TEST_F(handle_limit, of_a_file_that_is_warmed) {
    no_store store;
    host::warm_counts counts;
    const no_handles none;
    expect_cure(host::warm_blocks(host::linux_environment(), path, {}, {}, store, counts));
}

TEST_F(handle_limit, of_a_file_of_a_runtime) {
    const auto rt = test::make_runtime(test::small_options(folder, 1));
    const no_handles none;
    file opened;
    expect_cure(file::open(*rt, path, open_read, opened));
    table_layout layout;
    layout.row_bytes = 10;
    layout.pieces = {{path, 0, 500}};
    std::unique_ptr<table> made;
    expect_cure(table::make(*rt, layout, {}, made));
}

// The library's own ENFILE is about file slots.
TEST_F(handle_limit, of_the_machine_is_none_of_slots) {
    EXPECT_EQ(host::code_of_open(ENFILE), -EMFILE);
    EXPECT_EQ(host::code_of_open(ENOENT), -ENOENT);
    const std::string of_handles = host::error_and_cure(-EMFILE, "name a file"),
                      of_slots = host::error_and_cure(-ENFILE, "name a file");
    EXPECT_NE(of_handles.find("fs.file-max"), std::string::npos) << of_handles;
    EXPECT_NE(of_slots.find("max_files"), std::string::npos) << of_slots;
    EXPECT_EQ(of_slots.find("ulimit"), std::string::npos) << of_slots;
}

TEST(handle_shares, of_all_devices_leave_the_program_a_fifth) {
    for (const std::uint64_t limit : {256u, 1024u, 65536u, 1048576u})
        for (const std::size_t devices : {1u, 2u, 8u})
            for (const std::size_t sets_each : {1u, 2u})
                for (const bool direct : {false, true}) {
                    const std::size_t of_files = host::registry_handles(limit, direct, devices),
                                      of_windows = host::window_handles(limit, devices * sets_each);
                    EXPECT_LE(devices * ((direct ? 2 : 1) * of_files + sets_each * of_windows),
                              limit - limit / 5)
                        << limit << ", " << devices;
                    EXPECT_GE(of_files, 8u);
                    EXPECT_GE(of_windows, 1u);
                }
    EXPECT_EQ(host::window_handles(1024, 1), 128u);
    EXPECT_EQ(host::window_handles(1024, 8), 16u);
    EXPECT_EQ(host::window_handles(1048576, 1), 4096u);
    EXPECT_EQ(host::registry_handles(1024, false, 8), 64u);
    EXPECT_EQ(host::registry_handles(1024, true, 8), 42u);
}

}  // namespace penstock::fault
