// Names taken away and given: which file the next open finds, and with which file open descriptors
// go on.
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "fault/faulty_environment.hpp"
#include "runtime/runtime_state.hpp"
#include "penstock/engine/invariants.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

// Another program acts right before a file gets its new name, or right after.
class watched_rename final : public fault::faulty_environment {
public:
    std::function<void()> before = [] {}, after = [] {};

    int rename(int from, const std::string& name, int to, const std::string& new_name) override {
        before();
        const int code = faulty_environment::rename(from, name, to, new_name);
        after();
        return code;
    }
};

}  // namespace

class unlinking : public testing::Test {
protected:
    static options writing_options(const temporary_folder& folder) {
        options o = small_options(folder);
        o.writable = true;
        return o;
    }
    // As a kernel does.
    int open_here(const char* name, int flags = open_read) {
        return penstock::open(lane{}, rt->ref(), name, flags);
    }
    int unlink_here(const char* name) { return penstock::unlink(lane{}, rt->ref(), name); }
    std::vector<std::uint8_t> read_all(int fd, std::size_t bytes) {
        std::vector<std::uint8_t> out(bytes);
        const std::int64_t got = rt->read(fd, out.data(), static_cast<std::int64_t>(bytes), 0);
        out.resize(got < 0 ? 0 : static_cast<std::size_t>(got));
        return out;
    }

    // More files than the host may have handles, so that most have none.
    static constexpr int files = 12;
    void make_with_few_handles(options o) {
        host::runtime_hooks hooks;
        hooks.max_handles = 6;
        rt.reset();
        ASSERT_TRUE(runtime::make(o, hooks, rt).ok());
    }
    void make_with_few_handles() { make_with_few_handles(writing_options(folder)); }
    static std::string number(int i) { return "f" + std::to_string(i); }
    void fill(const std::string& directory) {
        std::filesystem::create_directory(folder / directory);
        for (int i = 0; i < files; ++i)
            write_file(folder / (directory + "/" + number(i)),
                       pattern(static_cast<std::uint64_t>(i), 5000));
    }
    std::vector<int> open_below(const std::string& directory) {
        std::vector<int> fds;
        for (int i = 0; i < files; ++i) {
            fds.push_back(open_here((directory + "/" + number(i)).c_str()));
            EXPECT_GE(fds.back(), 0) << error_text(fds.back());
        }
        return fds;
    }
    // All files that fill made, none of whose pages are in the cache; closes them.
    void read_again(const std::vector<int>& fds) {
        for (int i = 0; i < files; ++i) {
            const int fd = fds[static_cast<std::size_t>(i)];
            EXPECT_EQ(read_all(fd, 6000), pattern(static_cast<std::uint64_t>(i), 5000)) << i;
            EXPECT_EQ(rt->close(fd), 0);
        }
    }

    temporary_folder folder, outside;
    std::unique_ptr<runtime> rt = make_runtime(writing_options(folder));
};

TEST_F(unlinking, the_name_is_gone_and_the_file_stays_open) {
    write_file(folder / "a", pattern(1, 5000));
    const int fd = open_here("a", open_read_write);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(unlink_here("a"), 0);
    EXPECT_NE(::access((folder / "a").c_str(), F_OK), 0);
    EXPECT_EQ(open_here("a"), -ENOENT) << "though a descriptor of it is open";
    EXPECT_EQ(read_all(fd, 6000), pattern(1, 5000));
    EXPECT_EQ(rt->write(fd, "x", 1, 10), 1);
    EXPECT_EQ(rt->fsync(fd), 0);
    // A new file of that name is another file.
    const int next = open_here("a", open_read_write | open_create);
    ASSERT_GE(next, 0);
    EXPECT_EQ(rt->write(next, "new", 3, 0), 3);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(rt->close(next), 0);
    EXPECT_EQ(bytes_on_disk(folder / "a"), (std::vector<std::uint8_t>{'n', 'e', 'w'}));
    const engine::invariant_report found = engine::check_invariants(rt->ref().view, {});
    EXPECT_EQ(found.rule, nullptr) << found.rule;
}

TEST_F(unlinking, says_what_it_cannot) {
    write_file(outside / "secret", pattern(2, 10));
    std::filesystem::create_directory(folder / "sub");
    EXPECT_EQ(unlink_here("missing"), -ENOENT);
    EXPECT_EQ(unlink_here(""), -ENOENT);
    EXPECT_EQ(unlink_here(nullptr), -EFAULT);
    EXPECT_EQ(unlink_here(std::string(5000, 'a').c_str()), -ENAMETOOLONG);
    EXPECT_EQ(unlink_here("sub"), -EISDIR);
    EXPECT_EQ(unlink_here("sub/.."), -EISDIR);
    EXPECT_EQ(unlink_here((outside / "secret").c_str()), -EACCES);
    EXPECT_EQ(bytes_on_disk(outside / "secret"), pattern(2, 10));
    EXPECT_EQ(rt->unlink(outside / "secret"), 0) << "the host may, as it may open it";
    EXPECT_EQ(rt->unlink(outside / "secret"), -ENOENT);
    rt = make_runtime(small_options(folder));
    write_file(folder / "kept", pattern(3, 10));
    EXPECT_EQ(unlink_here("kept"), -EROFS);
    EXPECT_EQ(rt->unlink(folder / "kept"), -EROFS);
    EXPECT_EQ(rt->rename(folder / "kept", folder / "other"), -EROFS);
    EXPECT_EQ(bytes_on_disk(folder / "kept"), pattern(3, 10));
}

TEST_F(unlinking, a_link_is_removed_and_not_what_it_leads_to) {
    write_file(outside / "secret", pattern(4, 10));
    std::filesystem::create_symlink(outside / "secret", folder / "link");
    EXPECT_EQ(unlink_here("link"), 0);
    EXPECT_EQ(bytes_on_disk(outside / "secret"), pattern(4, 10));
}

TEST_F(unlinking, a_renamed_file_is_found_by_its_new_name_only) {
    write_file(folder / "a", pattern(5, 5000));
    write_file(folder / "b", pattern(6, 4000));
    let_files_settle();
    const int a = rt->open(folder / "a", open_read_write), b = rt->open(folder / "b");
    EXPECT_EQ(read_all(b, 5000), pattern(6, 4000));
    ASSERT_EQ(rt->rename(folder / "a", folder / "b"), 0);
    EXPECT_EQ(open_here((folder / "a").c_str()), -ENOENT);
    const int renamed = open_here((folder / "b").c_str());
    ASSERT_GE(renamed, 0);
    EXPECT_EQ(read_all(renamed, 6000), pattern(5, 5000));
    EXPECT_EQ(read_all(b, 6000), pattern(6, 4000)) << "a descriptor of the old b goes on with it";
    // It is the same file to the cache: what is written by the old descriptor is seen at once.
    EXPECT_EQ(rt->write(a, "changed", 7, 0), 7);
    EXPECT_EQ(read_all(renamed, 7), (std::vector<std::uint8_t>{'c', 'h', 'a', 'n', 'g', 'e', 'd'}));
    for (const int fd : {a, b, renamed}) EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(bytes_on_disk(folder / "b")[0], 'c');
    EXPECT_EQ(rt->rename(folder / "missing", folder / "c"), -ENOENT);
    EXPECT_EQ(rt->rename(folder / "b", folder / "missing/c"), -ENOENT);
    EXPECT_EQ(bytes_on_disk(folder / "b")[0], 'c');
}

// Read only, so nothing but the host's memory of its times says that it is the same version.
TEST_F(unlinking, a_renamed_file_keeps_its_pages) {
    write_file(folder / "a", pattern(7, 5000));
    let_files_settle();
    const int fd = rt->open(folder / "a");
    EXPECT_EQ(read_all(fd, 5000), pattern(7, 5000));
    ASSERT_EQ(rt->rename(folder / "a", folder / "b"), 0);
    const std::uint64_t reads = rt->stats().file_reads;
    const int again = rt->open(folder / "b");
    EXPECT_GE(again, 0);
    EXPECT_EQ(read_all(again, 5000), pattern(7, 5000));
    EXPECT_EQ(rt->stats().file_reads, reads);
    EXPECT_EQ(rt->close(fd), 0);
    EXPECT_EQ(rt->close(again), 0);
}

// A rename leaves a new change time and nothing else. Bytes that another program writes meanwhile
// have other times or another size, and are no version that the cache has.
TEST_F(unlinking, what_another_program_writes_beside_a_rename_is_read) {
    for (const std::uint64_t size : {4000, 5000, 6000})
        for (const bool is_before : {false, true}) {
            watched_rename names;
            host::runtime_hooks hooks;
            hooks.env = &names;
            rt = make_runtime(writing_options(folder), hooks);
            write_file(folder / "a", pattern(7, 5000));
            let_files_settle();
            const int fd = rt->open(folder / "a");
            EXPECT_EQ(read_all(fd, 5000), pattern(7, 5000));
            EXPECT_EQ(rt->close(fd), 0);
            if (is_before) names.before = [&] { write_file(folder / "a", pattern(8, size)); };
            else names.after = [&] { write_file(folder / "b", pattern(8, size)); };
            ASSERT_EQ(rt->rename(folder / "a", folder / "b"), 0);
            let_files_settle();
            for (int round = 0; round < 2; ++round) {
                const int again = rt->open(folder / "b");
                EXPECT_GE(again, 0) << error_text(again);
                EXPECT_TRUE(read_all(again, 7000) == pattern(8, size)) << size << is_before;
                EXPECT_EQ(rt->close(again), 0);
            }
            rt.reset();  // before what it runs on
        }
}

// The host makes the file and then has no slot for it, until a closed one is taken down. The second
// time it is there.
TEST_F(unlinking, many_new_files_with_few_slots) {
    options o = writing_options(folder);
    o.max_files = 16;
    rt = make_runtime(o);
    for (int i = 0; i < 64; ++i) {
        const std::string name = "new" + std::to_string(i);
        const int fd = open_here(name.c_str(), open_write | open_create | open_exclusive);
        ASSERT_GE(fd, 0) << name << ": " << error_text(fd);
        EXPECT_EQ(rt->write(fd, "x", 1, 0), 1);
        EXPECT_EQ(rt->close(fd), 0);
        EXPECT_EQ(open_here(name.c_str(), open_write | open_create | open_exclusive), -EEXIST);
    }
}

// The program's own calls make the file before there is a slot.
TEST_F(unlinking, a_new_file_that_finds_no_slot_is_taken_away_again) {
    options o = writing_options(folder);
    o.max_files = 16;
    o.frame_wait_ms = 20;
    rt = make_runtime(o);
    std::vector<int> fds;
    for (int i = 0; i < 16; ++i) {
        write_file(folder / number(i), pattern(1, 10));
        fds.push_back(rt->open(folder / number(i)));
        ASSERT_GE(fds.back(), 0);
    }
    const int flags = open_write | open_create | open_exclusive;
    EXPECT_EQ(rt->open(folder / "new", flags), -ENFILE);
    EXPECT_FALSE(std::filesystem::exists(folder / "new"));
    EXPECT_EQ(rt->open_everywhere(folder / "new", flags).code(), -ENFILE);
    EXPECT_FALSE(std::filesystem::exists(folder / "new"));
    EXPECT_EQ(rt->open(folder / "f0", flags), -EEXIST);
    EXPECT_EQ(bytes_on_disk(folder / "f0"), pattern(1, 10));
    EXPECT_EQ(rt->close(fds.back()), 0);
    const int fd = rt->open(folder / "new", flags);
    EXPECT_GE(fd, 0) << error_text(fd);
    EXPECT_EQ(rt->close(fd), 0);
}

// The host closes handles of files that are not used, and opens them again by name. These files
// have none, or another.
TEST_F(unlinking, files_without_a_name_can_be_read_whatever_else_is_open) {
    host::runtime_hooks hooks;
    hooks.max_handles = 6;
    rt.reset();
    ASSERT_TRUE(runtime::make(writing_options(folder), hooks, rt).ok());
    const auto others = [&] {
        for (int i = 0; i < 12; ++i) {
            const std::string name = "other" + std::to_string(i);
            write_file(folder / name, pattern(50, 5000));
            const int fd = open_here(name.c_str());
            EXPECT_EQ(read_all(fd, 5000), pattern(50, 5000));
            EXPECT_EQ(rt->close(fd), 0);
        }
    };
    for (const int flags : {open_read, open_read_write}) {
        for (const char* name : {"removed", "replaced", "renamed"})
            write_file(folder / name, pattern(9, 50000));
        write_file(folder / "new", pattern(10, 100));
        int fds[3] = {open_here("removed", flags), open_here("replaced", flags),
                      open_here("renamed", flags)};
        for (const int fd : fds)
            EXPECT_EQ(read_all(fd, 100), pattern(9, 100));  // the rest is not in the cache
        if (flags == open_read) others();  // they have no handle when their names go
        EXPECT_EQ(unlink_here("removed"), 0);
        EXPECT_EQ(rt->rename(folder / "new", folder / "replaced"), 0);
        EXPECT_EQ(rt->rename(folder / "renamed", folder / "again"), 0);
        others();
        for (const int fd : fds) {
            EXPECT_EQ(read_all(fd, 50000), pattern(9, 50000));
            EXPECT_EQ(rt->close(fd), 0);
        }
    }
}

// What a link leads to keeps its path.
TEST_F(unlinking, a_link_that_is_renamed_leaves_the_file_its_path) {
    std::filesystem::create_directory(folder / "d");
    write_file(folder / "d/target", pattern(7, 3 * page));
    write_file(folder / "other", pattern(8, 5000));
    std::filesystem::create_symlink("target", folder / "d/link");
    let_files_settle();
    host::runtime_hooks hooks;
    hooks.max_handles = 1;
    rt = make_runtime(writing_options(folder), hooks);
    const int fd = open_here("d/target");
    ASSERT_GE(fd, 0);
    // There the link leads nowhere.
    ASSERT_EQ(rt->rename(folder / "d/link", folder / "moved"), 0);
    const int other = open_here("other");  // takes the one handle
    EXPECT_EQ(read_all(other, 6000), pattern(8, 5000));
    EXPECT_EQ(read_all(fd, 3 * page), pattern(7, 3 * page));
    for (const int each : {fd, other}) EXPECT_EQ(rt->close(each), 0);
}

// The host remembers by which path it opens a file again. Another program renames the directory
// while the files are closed, and the next open names the new path.
TEST_F(unlinking, files_are_found_below_a_directory_that_another_program_renamed) {
    make_with_few_handles();
    fill("d1");
    let_files_settle();
    for (const int fd : open_below("d1")) EXPECT_EQ(rt->close(fd), 0);
    std::filesystem::rename(folder / "d1", folder / "d2");
    read_again(open_below("d2"));
}

TEST_F(unlinking, open_files_below_a_directory_that_is_renamed_are_read_on) {
    make_with_few_handles();
    fill("d1");
    fill("d11");  // which is not below d1
    let_files_settle();
    const std::vector<int> fds = open_below("d1"), others = open_below("d11");
    ASSERT_EQ(rt->rename(folder / "d1", folder / "d2"), 0);
    read_again(fds);
    read_again(others);
    read_again(open_below("d2"));
    EXPECT_EQ(open_here("d1/f0"), -ENOENT);
}

// Names are taken away by the first device's part of the host, and each has files open.
TEST_F(unlinking, files_of_all_devices_outlive_their_names) {
    options o = writing_options(folder);
    o.devices = {0, 1};
    o.links = false;  // so that each reads the file itself
    make_with_few_handles(o);
    fill("d1");
    fill("d2");
    fill("d3");
    let_files_settle();
    const auto open_there = [&](const std::string& name) {
        const int fd = penstock::open(lane{}, rt->ref(1), name.c_str());
        EXPECT_GE(fd, 0) << error_text(fd);
        return fd;
    };
    const auto read_there = [&](int fd, std::uint64_t seed) {
        std::vector<std::uint8_t> got(6000);
        const std::int64_t bytes = penstock::read(lane{}, rt->ref(1), fd, got.data(), 6000, 0);
        EXPECT_EQ(bytes, 5000) << error_text(bytes);
        got.resize(bytes < 0 ? 0 : static_cast<std::size_t>(bytes));
        EXPECT_EQ(got, pattern(seed, 5000));
        EXPECT_EQ(penstock::close(lane{}, rt->ref(1), fd), 0);
    };
    const int removed = open_there("d1/f1"), replaced = open_there("d1/f2"),
              renamed = open_there("d1/f3"), below = open_there("d2/f4");
    EXPECT_EQ(rt->unlink(folder / "d1/f1"), 0);
    EXPECT_EQ(rt->rename(folder / "d1/f5", folder / "d1/f2"), 0);
    EXPECT_EQ(rt->rename(folder / "d1/f3", folder / "d1/again"), 0);
    EXPECT_EQ(rt->rename(folder / "d2", folder / "d4"), 0);
    // They take the handles of those that can be opened again.
    std::vector<int> others;
    for (int i = 0; i < files; ++i) others.push_back(open_there("d3/" + number(i)));
    read_there(removed, 1);
    read_there(replaced, 2);
    read_there(renamed, 3);
    read_there(below, 4);
    for (int i = 0; i < files; ++i)
        read_there(others[static_cast<std::size_t>(i)], static_cast<std::uint64_t>(i));
}

// Both names lead to the file, and the one that the host took first is gone.
TEST_F(unlinking, a_file_of_two_names_is_found_by_the_one_that_was_opened_last) {
    make_with_few_handles();
    fill("d1");
    std::filesystem::create_directory(folder / "d2");
    for (int i = 0; i < files; ++i)
        std::filesystem::create_hard_link(folder / ("d1/" + number(i)),
                                          folder / ("d2/" + number(i)));
    let_files_settle();
    const std::vector<int> first = open_below("d1"), second = open_below("d2");
    std::filesystem::remove_all(folder / "d1");
    read_again(second);
    for (const int fd : first) EXPECT_EQ(rt->close(fd), 0);
}

// As the system's calls have it.
TEST_F(unlinking, an_empty_name_is_of_no_file) {
    write_file(folder / "a", pattern(8, 100));
    EXPECT_EQ(unlink_here(""), -ENOENT);
    EXPECT_EQ(rt->unlink(""), -ENOENT);
    EXPECT_EQ(rt->rename(folder / "a", ""), -ENOENT);
    EXPECT_EQ(rt->rename("", folder / "b"), -ENOENT);
    EXPECT_EQ(rt->open("", open_write | open_create), -ENOENT);
    EXPECT_EQ(unlink_here("."), -EISDIR);
    EXPECT_EQ(bytes_on_disk(folder / "a").size(), 100u);
}

TEST_F(unlinking, an_error_of_the_file_system_leaves_everything_as_it_was) {
    fault::faulty_environment env;
    host::runtime_hooks hooks;
    hooks.env = &env;
    rt.reset();
    ASSERT_TRUE(runtime::make(writing_options(folder), hooks, rt).ok());
    write_file(folder / "a", pattern(8, 100));
    for (const auto call : {fault::call_unlink, fault::call_rename}) {
        env.set({.calls = call, .nth = 1, .for_ever = true, .error = -EIO});
        const int code =
            call == fault::call_unlink ? unlink_here("a") : rt->rename(folder / "a", folder / "b");
        EXPECT_EQ(code, -EIO);
        env.clear();
        const int fd = open_here("a");
        ASSERT_GE(fd, 0);
        EXPECT_EQ(read_all(fd, 200), pattern(8, 100));
        EXPECT_EQ(rt->close(fd), 0);
    }
    rt.reset();
}

}  // namespace penstock::test
