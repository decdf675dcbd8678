// Files that are deleted after their close: their space comes back without a call of the program.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <new>
#include <utility>

#include "fault/faulty_environment.hpp"
#include "files/deleted_files.hpp"
#include "soon.hpp"
#include "unit/support.hpp"

namespace penstock::test {

using host::deleted_files;
using host::file_registry;
using host::open_reply;
using host::slot_life;

namespace {

// The handles of this process whose files lay in the folder and have no name any more.
std::size_t nameless_handles(const temporary_folder& folder) {
    std::size_t count = 0;
    for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        const std::string target = std::filesystem::read_symlink(each.path(), gone).string();
        if (!gone && target.starts_with(folder.path()) && target.ends_with(" (deleted)")) ++count;
    }
    return count;
}

class deleted_file : public testing::Test {
protected:
    temporary_folder folder;
    std::unique_ptr<runtime> rt;

    void make(bool writable) {
        options o = small_options(folder);
        o.writable = writable;
        rt = make_runtime(o);
    }
    // Page 0 of the file.
    void read_page(int fd, std::uint64_t seed, std::uint64_t number = 0) {
        std::vector<std::uint8_t> got(page);
        ASSERT_EQ(rt->read(fd, got.data(), page, static_cast<std::int64_t>(number * page)),
                  static_cast<std::int64_t>(page));
        EXPECT_EQ(got[17], pattern_byte(seed, number * page + 17));
    }
    void read_file(const std::string& path, std::uint64_t seed) {
        const int fd = rt->open(path);
        ASSERT_GE(fd, 0);
        read_page(fd, seed);
        EXPECT_EQ(rt->close(fd), 0);
    }
};

}  // namespace

TEST_F(deleted_file, gives_its_space_back) {
    for (const bool writable : {false, true}) {
        make(writable);
        for (std::uint64_t i = 0; i < 20; ++i) {
            const std::string path = folder / ("shard" + std::to_string(i));
            write_file(path, pattern(i, 3 * page));
            read_file(path, i);
            std::filesystem::remove(path);
        }
        EXPECT_TRUE(soon([&] { return nameless_handles(folder) == 0; })) << writable;
        rt.reset();
    }
}

TEST_F(deleted_file, that_was_written_or_unlinked_here_gives_its_space_back) {
    make(true);
    const std::string written = folder / "written", unlinked = folder / "unlinked";
    write_file(unlinked, pattern(1, 3 * page));
    const int fd = rt->open(written, open_write | open_create);
    ASSERT_GE(fd, 0);
    const auto bytes = pattern(2, page);
    EXPECT_EQ(rt->write(fd, bytes.data(), page, 0), static_cast<std::int64_t>(page));
    EXPECT_EQ(rt->close(fd), 0);
    read_file(unlinked, 1);
    EXPECT_EQ(rt->unlink(unlinked), 0);
    std::filesystem::remove(written);
    EXPECT_TRUE(soon([&] { return nameless_handles(folder) == 0; }));
}

// A page that was never read comes from the file.
TEST_F(deleted_file, is_read_while_it_is_open) {
    make(false);
    const std::string path = folder / "open";
    write_file(path, pattern(3, 64 * page));
    const int fd = rt->open(path);
    ASSERT_GE(fd, 0);
    std::filesystem::remove(path);
    std::this_thread::sleep_for(std::chrono::milliseconds(3500));  // some visits
    read_page(fd, 3, 63);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_TRUE(soon([&] { return nameless_handles(folder) == 0; }));
}

// Its inode goes to another file; mostly the next one of the folder gets it.
TEST_F(deleted_file, does_not_come_back_with_its_name) {
    make(false);
    const std::string path = folder / "again";
    for (std::uint64_t round = 0; round < 3; ++round) {
        write_file(path, pattern(round, 3 * page));
        let_files_settle();
        read_file(path, round);
        read_file(path, round);
        std::filesystem::remove(path);
        ASSERT_TRUE(soon([&] { return nameless_handles(folder) == 0; }));
    }
}

namespace {

// Something happens just before the next call.
struct eventful_environment : fault::faulty_environment {
    std::function<void()> at_next_open, at_next_question;

    int open_plain(int start, const std::string& path) override {
        happen(at_next_open);
        return faulty_environment::open_plain(start, path);
    }
    bool has_no_name(int handle) override {
        happen(at_next_question);
        return faulty_environment::has_no_name(handle);
    }

private:
    static void happen(std::function<void()>& event) {
        if (const auto now = std::exchange(event, nullptr)) now();
    }
};

// The registry beside a device that the test plays.
class deleted_in_registry : public testing::Test {
protected:
    temporary_folder folder;
    eventful_environment env;
    host::hub shared;
    std::unique_ptr<file_registry> files;
    std::unique_ptr<deleted_files> deleted;
    bool is_closed = true;

    void SetUp() override { make({16, 12, 4, 1024, 256, 100}); }
    void make(const host::registry_limits& limits) {
        deleted.reset();
        files = std::make_unique<file_registry>(env, shared, limits);
        ASSERT_TRUE(files->set_roots({folder.path()}).ok());
        deleted = std::make_unique<deleted_files>(
            env, *files, [this](const slot_life&) { return is_closed; },
            std::chrono::nanoseconds(1));
    }
    void TearDown() override {
        deleted.reset();
        files.reset();
        EXPECT_EQ(env.handles(), 0) << "a handle was not closed";
    }
    open_reply open(const std::string& name) {
        write_file(folder / name, pattern(1, page));
        const open_reply reply = files->open(name, 0, 0);
        EXPECT_EQ(reply.result, 0);
        return reply;
    }
    void visit() {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        deleted->look();
    }
};

}  // namespace

TEST_F(deleted_in_registry, a_file_with_a_name_keeps_its_handle) {
    open("a");
    open("b");
    std::filesystem::rename(folder / "b", folder / "c");
    for (int i = 0; i < 5; ++i) visit();
    EXPECT_EQ(files->held_handles(), 2u);
}

TEST_F(deleted_in_registry, a_file_without_one_loses_its_handle_at_the_second_visit) {
    open("a");
    std::filesystem::remove(folder / "a");
    visit();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(files->held_handles(), 1u);
    visit();
    EXPECT_TRUE(soon([&] { return files->held_handles() == 0; }));
    EXPECT_EQ(files->live_files(), 1u);  // the device takes it down
}

// No open finds it again, and a file that is changed in place again and again would leave a handle
// each time.
TEST_F(deleted_in_registry, an_older_version_loses_its_handle_when_it_is_closed) {
    const open_reply first = open("a");
    write_file(folder / "a", pattern(2, 2 * page));
    const open_reply second = files->open("a", 0, 0);
    ASSERT_NE(second.slot, first.slot);
    is_closed = false;
    for (int i = 0; i < 5; ++i) visit();
    EXPECT_EQ(files->held_handles(), 2u);
    is_closed = true;
    EXPECT_TRUE(soon([&] {
        visit();
        return files->held_handles() == 1;
    }));
    for (int i = 0; i < 5; ++i) visit();
    EXPECT_EQ(files->held_handles(), 1u);
    EXPECT_EQ(files->open("a", 0, 0).slot, second.slot);
}

// Of a registry that is made later. Both keep what they may have together.
TEST_F(deleted_in_registry, another_registry_gets_its_share_of_handles) {
    host::registry_limits limits{64, 12, 4, 4096, 1024, 32};
    limits.shared_handles = 32;
    make(limits);
    for (int i = 0; i < 32; ++i) open("f" + std::to_string(i));
    EXPECT_EQ(files->held_handles(), 32u);
    {
        file_registry other(env, shared, limits);
        ASSERT_TRUE(other.set_roots({folder.path()}).ok());
        for (int i = 0; i < 32; ++i) EXPECT_EQ(other.open("f" + std::to_string(i), 0, 0).result, 0);
        EXPECT_EQ(other.held_handles(), 16u);
        EXPECT_TRUE(soon([&] {
            visit();
            return files->held_handles() == 16;
        }));
        for (int i = 0; i < 5; ++i) visit();
        EXPECT_EQ(files->held_handles(), 16u);
    }
    for (int i = 0; i < 32; ++i) EXPECT_EQ(files->open("f" + std::to_string(i), 0, 0).result, 0);
    EXPECT_EQ(files->held_handles(), 32u);
}

// Its group may be about to take the answer.
TEST_F(deleted_in_registry, an_open_that_was_answered_meanwhile_keeps_it) {
    const open_reply first = open("a");
    std::filesystem::create_hard_link(folder / "a", folder / "b");
    files->let_go({first.slot, first.generation}, first.epoch - 1);
    EXPECT_EQ(files->held_handles(), 1u);
    files->let_go({first.slot, first.generation + 1}, first.epoch);
    EXPECT_EQ(files->held_handles(), 1u);
    files->let_go({first.slot, first.generation}, first.epoch);
    EXPECT_EQ(files->held_handles(), 0u);
    // The same facts, and a fresh slot all the same.
    EXPECT_NE(files->open("b", 0, 0).slot, first.slot);
}

// Its inode may have gone to the file that is there now. Here it is the same file by another name,
// which looks the same to the registry in every way.
TEST_F(deleted_in_registry, an_open_that_was_sent_before_does_not_join_it) {
    const open_reply first = open("a");
    std::filesystem::create_hard_link(folder / "a", folder / "b");
    const slot_life life{first.slot, first.generation};
    files->let_go(life, first.epoch);
    const open_reply second = files->open("b", 0, 0, 0, life);
    EXPECT_EQ(second.result, 0);
    EXPECT_NE(second.slot, first.slot);
}

TEST_F(deleted_in_registry, a_group_that_takes_its_answer_late_reads_no_other_file) {
    const open_reply first = open("a");
    files->let_go({first.slot, first.generation}, first.epoch);
    std::shared_ptr<host::shared_handle> handle;
    std::uint64_t size_bytes = 0;
    EXPECT_EQ(files->handle_of(first.slot, first.generation, handle, size_bytes), -ESTALE);
    EXPECT_EQ(handle, nullptr);
    EXPECT_EQ(files->open("a", 0, 0).result, 0);
    EXPECT_EQ(files->handle_of(first.slot, first.generation, handle, size_bytes), -ESTALE);
}

// The file may be that of another program with the inode and the name.
TEST_F(deleted_in_registry, an_unlink_gives_it_no_handle) {
    make({16, 12, 4, 1024, 256, 100, direct_mode::off, true});
    const open_reply first = open("a");
    files->let_go({first.slot, first.generation}, first.epoch);
    EXPECT_EQ(files->unlink("a", true), 0);
    EXPECT_EQ(files->held_handles(), 0u);
}

// It is let go between the look-up and what the reader does with the handle.
TEST_F(deleted_in_registry, a_reader_that_looks_the_name_up_meanwhile_reads_no_other_file) {
    host::registry_limits limits{16, 12, 4, 1024, 256, 100};
    limits.max_handles = 1;
    make(limits);
    const open_reply first = open("a");
    open("b");  // parks the handle of "a"
    std::shared_ptr<host::shared_handle> handle, other;
    std::uint64_t size_bytes = 0;
    env.at_next_open = [&] {
        EXPECT_EQ(files->handle_of(first.slot, first.generation, other, size_bytes), 0);
        other.reset();
        files->let_go({first.slot, first.generation}, first.epoch);
    };
    EXPECT_EQ(files->handle_of(first.slot, first.generation, handle, size_bytes), -ESTALE);
    EXPECT_EQ(handle, nullptr);
}

TEST_F(deleted_in_registry, a_file_that_a_group_has_open_keeps_it) {
    open("a");
    std::filesystem::remove(folder / "a");
    is_closed = false;
    for (int i = 0; i < 5; ++i) visit();
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_EQ(files->held_handles(), 1u);
    is_closed = true;
    EXPECT_TRUE(soon([&] {
        visit();
        return files->held_handles() == 0;
    }));
}

// The last close of a large file may take seconds.
TEST_F(deleted_in_registry, a_close_that_takes_long_holds_no_visit_up) {
    open("a");
    std::filesystem::remove(folder / "a");
    visit();
    env.stall(fault::call_close);
    visit();
    ASSERT_TRUE(soon([&] { return env.stalled() != 0; }));
    const auto begun = std::chrono::steady_clock::now();
    for (int i = 0; i < 5; ++i) visit();
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(10));
    env.release();
}

TEST_F(deleted_in_registry, those_between_others_are_found) {
    for (int i = 0; i < 16; ++i) open("f" + std::to_string(i));
    for (int i = 0; i < 16; i += 2) std::filesystem::remove(folder / ("f" + std::to_string(i)));
    EXPECT_TRUE(soon([&] {
        visit();
        return files->held_handles() == 8;
    }));
}

// A reader may have its handle too, until it looks at handle_changes(): so the last close may be
// anywhere, but in the monitor.
TEST_F(deleted_in_registry, a_file_that_is_taken_down_while_it_is_asked_holds_no_visit_up) {
    const open_reply first = open("a");
    std::filesystem::remove(folder / "a");
    std::atomic<bool> is_back{false};
    env.at_next_question = [&] {
        EXPECT_EQ(files->retire(first.slot, first.generation), 0);
        env.stall(fault::call_close);
    };
    std::thread monitor([&] {
        deleted->look();
        is_back.store(true);
    });
    EXPECT_TRUE(soon([&] { return is_back.load() || env.stalled() != 0; }));
    EXPECT_TRUE(is_back.load()) << "the monitor closes the file";
    env.release();
    monitor.join();
    EXPECT_TRUE(soon([&] {
        visit();
        return env.handles() == 1;  // the root's
    }));
}

TEST_F(deleted_in_registry, a_visit_without_memory_is_made_up_for) {
    open("a");
    std::filesystem::remove(folder / "a");
    bool is_refused = true;
    deleted = std::make_unique<deleted_files>(
        env, *files,
        [&](const slot_life&) {
            if (is_refused) throw std::bad_alloc();
            return true;
        },
        std::chrono::nanoseconds(1));
    for (int i = 0; i < 3; ++i) {
        EXPECT_NO_THROW(visit());
        EXPECT_EQ(files->held_handles(), 1u);
    }
    is_refused = false;
    EXPECT_TRUE(soon([&] {
        visit();
        return files->held_handles() == 0;
    }));
}

namespace {

std::uint64_t inode_of(const std::string& path) {
    struct stat facts {};
    return ::stat(path.c_str(), &facts) == 0 ? facts.st_ino : 0;
}

// Another file with the inode of one that was deleted, as far as the file system gives it again.
bool make_with_inode(const temporary_folder& folder, const std::string& name, std::uint64_t inode) {
    for (int i = 0; i < 200; ++i) {
        write_file(folder / name, pattern(2, page));
        if (inode_of(folder / name) == inode) return true;
        std::filesystem::rename(folder / name, folder / ("other" + std::to_string(i)));
    }
    return false;
}

}  // namespace

// Its handle is parked, so nothing keeps the inode. Only the time when the file was made tells.
TEST_F(deleted_in_registry, a_parked_file_is_not_taken_for_another_with_its_inode) {
    host::registry_limits limits{16, 12, 4, 1024, 256, 1, direct_mode::off, true};
    make(limits);
    const open_reply first = open("a");
    const std::uint64_t inode = inode_of(folder / "a");
    host::file_facts facts;
    const int fd = env.find(-1, folder / "a");
    ASSERT_EQ(env.facts(fd, facts), 0);
    env.close(fd);
    open("b");  // parks the handle of "a"
    let_files_settle();
    std::filesystem::remove(folder / "a");
    if (facts.made_ns == 0 || !make_with_inode(folder, "a", inode))
        GTEST_SKIP() << "no file system that gives inodes again and says when a file was made";
    std::shared_ptr<host::shared_handle> handle;
    std::uint64_t size_bytes = 0;
    const auto read = [&] {
        return files->handle_of(first.slot, first.generation, handle, size_bytes);
    };
    EXPECT_EQ(read(), -ESTALE);
    EXPECT_EQ(files->rename("a", "c", true), 0);
    EXPECT_EQ(read(), -ESTALE) << "by its new name";
    const open_reply second = files->open("c", 0, 0, 0, {first.slot, first.generation});
    EXPECT_EQ(second.result, 0);
    EXPECT_NE(second.slot, first.slot);
    EXPECT_EQ(read(), -ESTALE);
    EXPECT_EQ(files->unlink("c", true), 0);
    EXPECT_EQ(read(), -ESTALE) << "by the handle that the unlink keeps";
}

}  // namespace penstock::test
