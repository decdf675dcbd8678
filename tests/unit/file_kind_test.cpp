// Which files may be read by their size, and what makes two looks at a file the same version.
#include "os/came_signal.hpp"
#include "os/file_kind.hpp"
#include "os/file_system.hpp"
#include "os/patient_open.hpp"
#include "os/regular_file.hpp"
#include "os/rested_files.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/time.h>
#include <thread>
#include <unistd.h>

#include "unit/leases.hpp"

namespace {

using namespace penstock::host;

class file_kinds : public ::testing::Test {
protected:
    void SetUp() override {
        char name[] = "/tmp/penstock-kind-XXXXXX";
        folder = ::mkdtemp(name);
    }
    void TearDown() override { std::filesystem::remove_all(folder); }
    std::string made(const std::string& name, const std::string& bytes) {
        std::ofstream(folder + "/" + name) << bytes;
        return folder + "/" + name;
    }
    static file_kind kind(const std::string& path) {
        struct stat facts {};
        file_kind kind{};
        EXPECT_EQ(look_at_file(path, facts, kind), 0) << path;
        return kind;
    }
    std::string folder;
};

TEST_F(file_kinds, ordinary_empty_and_sparse_files_are_regular) {
    EXPECT_EQ(kind(made("text", "hello")), file_kind::regular);
    EXPECT_EQ(kind(made("empty", "")), file_kind::regular);
    const std::string sparse = made("sparse", "");
    ASSERT_EQ(::truncate(sparse.c_str(), 1 << 20), 0);
    EXPECT_EQ(kind(sparse), file_kind::regular);
}

TEST_F(file_kinds, files_that_lie_about_their_size) {
    EXPECT_EQ(kind("/proc/self/status"), file_kind::false_size);                // says 0
    const std::string shorter = "/sys/kernel/mm/transparent_hugepage/enabled";  // says 4096
    if (std::filesystem::exists(shorter)) {
        EXPECT_EQ(kind(shorter), file_kind::false_size);
    }
    EXPECT_FALSE(why_not_by_size(file_kind::false_size).empty());
}

TEST_F(file_kinds, nothing_special_is_opened) {
    const std::string pipe = folder + "/pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_EQ(kind(pipe), file_kind::special);
    EXPECT_EQ(kind("/dev/null"), file_kind::special);
    EXPECT_EQ(kind(folder), file_kind::directory);
    struct stat facts {};
    file_kind kind{};
    EXPECT_EQ(look_at_file(folder + "/none", facts, kind), -ENOENT);
}

// Runtimes hold leases for moments, in which the kernel fails an open with O_NONBLOCK.
TEST_F(file_kinds, an_open_waits_for_a_lease) {
    const std::string path = made("leased", "hello");
    {
        penstock::test::held_lease held(path);
        if (!held.is_there()) GTEST_SKIP() << "no leases in this folder";
        EXPECT_EQ(kind(path), file_kind::regular);
        EXPECT_TRUE(held.was_wanted_back());
    }
    {
        penstock::test::held_lease held(path);
        regular_file opened;
        const penstock::status s = opened.open(path);
        EXPECT_TRUE(s.ok()) << s.message;
        EXPECT_EQ(opened.size_bytes(), 5u);
        EXPECT_TRUE(held.was_wanted_back());
    }
}

TEST_F(file_kinds, an_open_that_waits_for_a_lease_has_the_flags_it_was_given) {
    const std::string path = made("leased", "hello");
    for (const int flags : {O_RDONLY | O_NOFOLLOW, O_WRONLY | O_CREAT, O_RDWR | O_APPEND}) {
        penstock::test::held_lease held(path);
        if (!held.is_there()) GTEST_SKIP() << "no leases in this folder";
        const int fd = open_past_leases(path, flags, 0600);
        ASSERT_GE(fd, 0) << std::strerror(errno);
        EXPECT_EQ(::fcntl(fd, F_GETFL) & (O_ACCMODE | O_APPEND), flags & (O_ACCMODE | O_APPEND));
        EXPECT_EQ(::fcntl(fd, F_GETFD), FD_CLOEXEC);
        ::close(fd);
    }
}

// The holder never gives the lease back, and the kernel takes it after 45 s alone.
TEST_F(file_kinds, a_wait_for_a_lease_ends_with_the_program) {
    const std::string path = made("leased", "hello");
    const int holder = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (::fcntl(holder, F_SETSIG, SIGURG) != 0 || ::fcntl(holder, F_SETLEASE, F_WRLCK) != 0)
        GTEST_SKIP() << "no leases in this folder";
    struct sigaction quiet {
    }, before{};
    quiet.sa_handler = [](int) {};  // without SA_RESTART
    ASSERT_EQ(::sigaction(SIGUSR1, &quiet, &before), 0);
    std::atomic<bool> is_over{false};
    std::thread killer([&, waiter = ::pthread_self()] {
        while (::fcntl(holder, F_GETLEASE) == F_WRLCK && !is_over)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        signal_came = true;
        while (!is_over) {
            ::pthread_kill(waiter, SIGUSR1);
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
    });
    const int fd = open_past_leases(path, O_RDONLY);
    const int code = errno;
    is_over = true;
    killer.join();
    signal_came = false;
    ::sigaction(SIGUSR1, &before, nullptr);
    EXPECT_EQ(fd, -1);
    EXPECT_EQ(code, ECANCELED);
    ::close(holder);
}

TEST_F(file_kinds, an_open_that_waits_for_leases_waits_for_no_pipe) {
    const std::string pipe = folder + "/pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    const int reading = open_past_leases(pipe, O_RDONLY);
    EXPECT_GE(reading, 0);
    ::close(reading);
    EXPECT_EQ(open_past_leases(pipe, O_WRONLY), -1);
    EXPECT_EQ(errno, ENXIO);
}

// rsync --inplace -t and cp -p leave size and modification time as they were.
TEST_F(file_kinds, a_time_set_back_is_another_version) {
    const std::string path = made("file", "one");
    struct stat before {
    }, after{};
    ASSERT_EQ(::stat(path.c_str(), &before), 0);
    ::usleep(20'000);
    std::ofstream(path) << "two";
    const timespec times[2] = {before.st_atim, before.st_mtim};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
    ASSERT_EQ(::stat(path.c_str(), &after), 0);
    EXPECT_EQ(after.st_size, before.st_size);
    EXPECT_EQ(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
    EXPECT_NE(identity_of(before), identity_of(after));
}

TEST(file_systems, the_table_names_what_is_local) {
    const auto& ext4 = file_system_row(0xEF53u, "");
    EXPECT_TRUE(ext4.is_local && ext4.has_exact_times && ext4.notes_stores);
    EXPECT_EQ(ext4.times, file_times::local);
    EXPECT_FALSE(file_system_row(0x01021994u, "").notes_stores);  // tmpfs
    for (const std::uint32_t magic : {0x6969u, 0xFF534D42u, 0x0BD00BD0u, 0x65735546u, 0x12345u}) {
        const auto& row = file_system_row(magic, "");
        EXPECT_FALSE(row.is_local || row.has_exact_times || row.notes_stores) << row.name;
        const bool is_fuse_or_unknown = magic == 0x65735546u || magic == 0x12345u;
        EXPECT_EQ(row.times, is_fuse_or_unknown ? file_times::unreliable : file_times::server)
            << row.name;
    }
    for (const std::uint32_t magic : {0x6969u, 0x00C36400u, 0x0BD00BD0u, 0x47504653u})
        EXPECT_TRUE(file_system_row(magic, "").has_numbers_for_all);
    for (const std::uint32_t magic : {0xEF53u, 0xFF534D42u, 0x5346414Fu, 0x65735546u, 0x12345u})
        EXPECT_FALSE(file_system_row(magic, "").has_numbers_for_all);
    EXPECT_STREQ(file_system_row(0x65735546u, "daos").name, "DAOS");
    EXPECT_STREQ(file_system_row(0x65735546u, "glusterfs").name, "GlusterFS");
}

TEST_F(file_kinds, the_file_system_of_a_file) {
    const int made_up = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    EXPECT_TRUE(file_system_of(made_up).is_made_up);
    EXPECT_TRUE(is_made_up(made_up));
    ::close(made_up);
    EXPECT_FALSE(file_system_of(-1).is_local);  // what cannot be told
    struct stat facts {};
    ASSERT_EQ(::stat("/proc", &facts), 0);
    EXPECT_EQ(mount_of_device(facts.st_dev).type, "proc");
    EXPECT_EQ(mount_of_device(0xFFFFFFFFu).type, "");
}

TEST_F(file_kinds, a_mount_is_asked_once_for_all_threads) {
    const int made_up = ::open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ASSERT_GE(made_up, 0);
    constexpr std::uint64_t mount = 0x7000'0000'0001, same_word = mount + 16 * 5;
    EXPECT_FALSE(file_system_of(-1, mount).is_made_up);
    EXPECT_TRUE(file_system_of(made_up, mount).is_made_up);  // the failure was not kept
    bool is_made_up_elsewhere = false;
    std::thread([&] { is_made_up_elsewhere = file_system_of(-1, mount).is_made_up; }).join();
    EXPECT_TRUE(is_made_up_elsewhere);
    EXPECT_TRUE(file_system_of(made_up, same_word).is_made_up);
    EXPECT_FALSE(file_system_of(-1, mount).is_made_up);  // its place was taken
    ::close(made_up);
}

constexpr std::int64_t now_ns = 1'000'000'500'000'000;

file_facts changed_ago(std::int64_t ns, file_times times) {
    file_facts out;
    out.identity.changed_ns = out.identity.modified_ns = now_ns - ns;
    out.now_ns = now_ns;
    out.times = times;
    return out;
}

TEST(may_change_unseen, local_times_are_proof_after_a_tick_and_whole_seconds_after_a_second) {
    EXPECT_TRUE(may_change_unseen(changed_ago(10'000'000, file_times::local)));
    EXPECT_FALSE(may_change_unseen(changed_ago(30'000'000, file_times::local)));
    file_facts in_seconds = changed_ago(500'000'000, file_times::local);
    ASSERT_EQ(in_seconds.identity.changed_ns % 1'000'000'000, 0);
    in_seconds.writing = writers::none;
    in_seconds.exact_times = true;
    EXPECT_TRUE(may_change_unseen(in_seconds));
    in_seconds.now_ns += 2'000'000'000;
    EXPECT_FALSE(may_change_unseen(in_seconds));
    in_seconds.identity.changed_ns += 1;
    EXPECT_FALSE(may_change_unseen(in_seconds));
}

TEST(may_change_unseen, times_of_a_server_are_proof_after_a_rest_whatever_our_clock_says) {
    for (const std::int64_t ago :
         {std::int64_t{-1'000'000'000'000}, std::int64_t{0}, std::int64_t{1'000'000'000'000}}) {
        file_facts facts = changed_ago(ago, file_times::server);
        EXPECT_TRUE(may_change_unseen(facts));
        facts.rested_ns = server_grain_ns - 1;
        EXPECT_TRUE(may_change_unseen(facts));
        facts.rested_ns = server_grain_ns;
        EXPECT_FALSE(may_change_unseen(facts));
        EXPECT_FALSE(may_change_unseen(facts, penstock::trust_mode::on));
        EXPECT_TRUE(may_change_unseen(facts, penstock::trust_mode::off));
        facts.writing = writers::some;
        EXPECT_TRUE(may_change_unseen(facts));
    }
}

TEST(may_change_unseen, times_that_are_not_reliable_are_no_proof_unless_told) {
    file_facts facts = changed_ago(1'000'000'000'000, file_times::unreliable);
    EXPECT_TRUE(may_change_unseen(facts, penstock::trust_mode::on));
    facts.rested_ns = server_grain_ns;
    EXPECT_TRUE(may_change_unseen(facts));
    EXPECT_TRUE(may_change_unseen(facts, penstock::trust_mode::off));
    EXPECT_FALSE(may_change_unseen(facts, penstock::trust_mode::on));
}

TEST(rest_left, is_what_makes_times_proof) {
    file_facts facts = changed_ago(0, file_times::server);
    facts.rested_ns = server_grain_ns - 1'000'000'000;
    const std::int64_t left = rest_left_ns(facts, penstock::trust_mode::automatic);
    EXPECT_GE(left, 1'000'000'000);
    EXPECT_LT(left, 1'100'000'000);
    EXPECT_EQ(rest_left_ns(facts, penstock::trust_mode::off), 0) << "they never are";
    facts.rested_ns += left;
    EXPECT_EQ(rest_left_ns(facts, penstock::trust_mode::automatic), 0);
    EXPECT_FALSE(may_change_unseen(facts));
    facts = changed_ago(0, file_times::unreliable);
    EXPECT_EQ(rest_left_ns(facts, penstock::trust_mode::automatic), 0);
    EXPECT_GT(rest_left_ns(facts, penstock::trust_mode::on), 0);
    EXPECT_EQ(rest_left_ns(changed_ago(0, file_times::local), penstock::trust_mode::on), 0);
}

TEST(rested_files, a_rest_lasts_from_the_first_answer_to_the_last_question) {
    rested_files files;
    const file_identity old{1, 2, 100, 5, 5}, fresh{1, 2, 100, 5, 6};
    EXPECT_EQ(files.note(old, 10, 20), 0);
    EXPECT_EQ(files.note(old, 15, 25), 0);  // asked before the first answer
    EXPECT_EQ(files.note(old, 50, 60), 30);
    EXPECT_EQ(files.note(fresh, 70, 80), 0);
    EXPECT_EQ(files.note(fresh, 100, 110), 20);
    EXPECT_EQ(files.note(old, 120, 130), 0);
    EXPECT_EQ(files.note({1, 3, 100, 5, 5}, 200, 210), 0);  // another file
}

TEST(rested_files, a_rest_begins_with_the_answer_to_another_process) {
    class other_process final : public rest_memory {
    public:
        std::int64_t known_since_ns(const file_identity& facts) noexcept override {
            ++asked;
            return facts.changed_ns == 5 ? 30 : not_known;
        }
        int asked = 0;
    };
    rested_files files;
    auto other = std::make_shared<other_process>();
    files.ask_also(other);
    const file_identity known{1, 2, 100, 5, 5}, fresh{1, 2, 100, 5, 6};
    EXPECT_EQ(files.note(known, 100, 110), 70);
    EXPECT_EQ(files.note(known, 120, 130), 90);
    EXPECT_EQ(other->asked, 1);  // of what is new
    EXPECT_EQ(files.note(fresh, 140, 150), 0);
    EXPECT_EQ(files.note(fresh, 160, 170), 10);
    EXPECT_EQ(other->asked, 2);
}

TEST(rested_files, many_files_are_forgotten_and_rest_once_more) {
    rested_files files(4);
    for (std::uint64_t i = 0; i < 100; ++i) files.note({1, i, 0, 0, 0}, 10, 10);
    EXPECT_EQ(files.note({1, 99, 0, 0, 0}, 30, 30), 20);
    EXPECT_EQ(files.note({1, 0, 0, 0, 0}, 30, 30), 0);
}

}  // namespace
