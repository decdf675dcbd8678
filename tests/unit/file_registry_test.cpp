// Which opens are permitted, and which version of a file has which slot.
#include <fcntl.h>
#include <malloc.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "fault/faulty_environment.hpp"
#include "files/file_registry.hpp"
#include "hub/hub.hpp"
#include "unit/leases.hpp"
#include "unit/support.hpp"

namespace penstock::test {

using host::file_registry;
using host::open_reply;
using host::registry_limits;
using host::shared_handle;

namespace {

constexpr registry_limits small_limits{16, 12, 4, 1024, 256, 100};

// Of this process; 0 where a sanitizer replaces the allocator.
std::size_t allocated_bytes() {
    const struct mallinfo2 all = ::mallinfo2();
    return all.uordblks + all.hblkhd;
}

// A root with a few things in it, and something outside.
class registry : public testing::Test {
protected:
    temporary_folder outside, root;
    fault::faulty_environment env;  // counts handles
    host::hub shared;
    std::unique_ptr<file_registry> files;

    void SetUp() override {
        write_file(root / "a", pattern(1, 5000));
        std::filesystem::create_directory(root / "sub");
        write_file(root / "sub/b", pattern(2, 10));
        write_file(outside / "secret", pattern(3, 10));
        make(small_limits);
    }
    void TearDown() override {
        files.reset();
        EXPECT_EQ(env.handles(), 0) << "a handle was not closed";
    }
    void make(const registry_limits& limits) {
        files = std::make_unique<file_registry>(env, shared, limits);
        const status s = files->set_roots({root.path()});
        ASSERT_TRUE(s.ok()) << s.message;
    }
    std::int64_t code_of(const std::string& name) { return files->open(name, 0, 0).result; }
    open_reply must_open(const std::string& name) {
        const open_reply reply = files->open(name, 0, 0);
        EXPECT_EQ(reply.result, 0) << name;
        return reply;
    }
    int handle_code(const open_reply& file) {
        std::shared_ptr<shared_handle> handle;
        std::uint64_t size = 0;
        return files->handle_of(file.slot, file.generation, handle, size);
    }
    // The first bytes of the file behind a slot.
    std::vector<std::uint8_t> read_from(const open_reply& file, std::size_t bytes) {
        std::shared_ptr<shared_handle> handle;
        std::uint64_t size = 0;
        std::vector<std::uint8_t> out(bytes);
        EXPECT_EQ(files->handle_of(file.slot, file.generation, handle, size), 0);
        const int fd = handle != nullptr ? handle->fd() : -1;
        EXPECT_EQ(::pread(fd, out.data(), bytes, 0), static_cast<ssize_t>(bytes));
        return out;
    }
};

bool is_root() { return ::geteuid() == 0; }

}  // namespace

TEST_F(registry, names_that_lead_below_the_root) {
    let_files_settle();
    make(small_limits);
    std::filesystem::create_symlink("a", root / "link");
    std::filesystem::create_symlink(root / "sub", root / "folder link");
    const open_reply a = must_open("a");
    EXPECT_EQ(a.identity.size_bytes, 5000u);
    EXPECT_FALSE(a.two_level);
    for (const std::string& name : {std::string("./a"), std::string("sub/../a"),
                                    std::string("link"), root / "a", root / "sub/../link"}) {
        const open_reply again = must_open(name);
        EXPECT_EQ(again.slot, a.slot) << name;
        EXPECT_EQ(again.generation, a.generation) << name;
    }
    EXPECT_EQ(must_open("folder link/b").identity.size_bytes, 10u);
    EXPECT_EQ(files->path_of(a.slot, a.generation), root / "a");
    EXPECT_EQ(files->live_files(), 2u);
}

TEST_F(registry, names_that_lead_outside_are_refused) {
    std::filesystem::create_symlink(outside / "secret", root / "escape");
    std::filesystem::create_symlink(outside.path(), root / "door");
    std::filesystem::create_hard_link(outside / "secret", outside / "second");
    for (const std::string& name :
         {std::string("escape"), std::string("door/secret"), outside / "secret",
          std::string("/etc/hostname"),
          "../" + std::filesystem::path(outside.path()).filename().string() + "/secret",
          root.path() + "/../" + std::filesystem::path(outside.path()).filename().string() +
              "/secret",
          std::string("/proc/self/mem"), std::string("/dev/null")})
        EXPECT_EQ(code_of(name), -EACCES) << name;
    EXPECT_EQ(files->live_files(), 0u);
}

TEST_F(registry, a_name_without_links_is_not_looked_up_twice) {
    std::filesystem::create_symlink("a", root / "link");
    std::filesystem::create_symlink("sub", root / "folder");
    fault::fault_plan no_long_way;
    no_long_way.calls = fault::call_real_path;
    no_long_way.nth = 1;
    no_long_way.for_ever = true;
    env.set(no_long_way);
    for (const std::string& name : {std::string("a"), std::string("./a"), std::string(".//sub/./b"),
                                    root / "a", root / "sub/b"}) {
        const open_reply file = must_open(name);
        EXPECT_EQ(files->path_of(file.slot, file.generation),
                  root / (name.back() == 'a' ? "a" : "sub/b"))
            << name;
    }
    for (const char* name : {"link", "folder/b", "sub/../a"})
        EXPECT_EQ(code_of(name), -EIO) << name;
    env.clear();
    for (const char* name : {"link", "folder/b", "sub/../a"}) EXPECT_EQ(code_of(name), 0) << name;
}

TEST_F(registry, the_long_way_decides_where_the_short_one_fails) {
    fault::fault_plan once;
    once.calls = fault::call_find;
    once.nth = 1;
    once.error = -EMFILE;
    env.set(once);
    EXPECT_EQ(read_from(must_open("a"), 5000), pattern(1, 5000));
    EXPECT_EQ(env.calls(), 2u);
}

TEST_F(registry, handles_are_ordinary_ones) {
    std::shared_ptr<shared_handle> handle;
    std::uint64_t size = 0;
    const open_reply a = must_open("a");
    ASSERT_EQ(files->handle_of(a.slot, a.generation, handle, size), 0);
    EXPECT_EQ(::fcntl(handle->fd(), F_GETFL) & O_NONBLOCK, 0);
    EXPECT_NE(::fcntl(handle->fd(), F_GETFD) & FD_CLOEXEC, 0);
}

// The kernel's table of handles, as /proc tells it.
std::size_t handle_table_size() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
        if (word == "FDSize:") return status >> word ? std::stoul(word) : 0;
    return 0;
}

TEST_F(registry, room_for_handles_is_made_at_once) {
    registry_limits limits = small_limits;
    limits.max_handles = 2 * handle_table_size();
    make(limits);
    EXPECT_GE(handle_table_size(), limits.max_handles);
}

// By default a runtime has 65,536 slots. Each start wrote 24 MB for them, which was three quarters
// of the time of a program that reads one small file (bench/results/h200/2026-11-29-start.txt).
TEST_F(registry, slots_take_memory_when_they_are_used) {
    if (allocated_bytes() == 0) GTEST_SKIP() << "this allocator does not count";
    registry_limits limits = small_limits;
    limits.file_slots = 65536;
    files.reset();
    const std::size_t before = allocated_bytes();
    make(limits);
    EXPECT_LT(allocated_bytes(), before + (4 << 20));
    EXPECT_EQ(files->used_slots(), 0u);
    const open_reply a = must_open("a");
    EXPECT_EQ(files->used_slots(), 1u);
    EXPECT_EQ(files->live_files(), 1u);
    EXPECT_EQ(files->retire(a.slot, a.generation), 0);
    EXPECT_EQ(files->used_slots(), 1u) << "it may have left something";
    EXPECT_EQ(files->live_files(), 0u);
}

// Closing may take long, for a file system may have to ask a server.
TEST_F(registry, parked_and_retired_handles_are_closed_without_the_lock) {
    registry_limits limits = small_limits;
    limits.max_handles = 1;
    make(limits);
    must_open("a");
    const auto closes_outside_the_lock = [&](const std::function<void()>& action,
                                             std::size_t files_then) {
        env.stall(fault::call_close);
        std::thread acts(action);
        while (env.stalled() < 1) std::this_thread::yield();
        EXPECT_EQ(files->live_files(), files_then);
        env.release();
        acts.join();
    };
    open_reply b;
    closes_outside_the_lock([&] { b = must_open("sub/b"); }, 2);
    closes_outside_the_lock([&] { EXPECT_EQ(files->retire(b.slot, b.generation), 0); }, 1);
}

TEST_F(registry, a_root_is_no_prefix_of_names) {
    const std::string sibling = root.path() + "-sibling";
    std::filesystem::create_directory(sibling);
    write_file(sibling + "/x", pattern(1, 10));
    EXPECT_EQ(code_of(sibling + "/x"), -EACCES);
    std::filesystem::remove_all(sibling);
}

TEST_F(registry, allow_lets_one_file_through) {
    EXPECT_EQ(files->allow(outside / "secret"), 0);
    EXPECT_EQ(code_of(outside / "secret"), 0);
    write_file(outside / "other", pattern(3, 10));
    EXPECT_EQ(code_of(outside / "other"), -EACCES);
    EXPECT_EQ(files->allow(outside / "absent"), -ENOENT);
    EXPECT_EQ(files->allow(outside.path()), -EISDIR);
}

TEST_F(registry, what_is_no_regular_file) {
    ASSERT_EQ(::mkfifo((root / "pipe").c_str(), 0644), 0);
    std::filesystem::create_symlink("loop", root / "loop");
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(code_of("pipe"), -EOPNOTSUPP);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(5))
        << "waited for a writer";
    EXPECT_EQ(code_of("sub"), -EISDIR);
    EXPECT_EQ(code_of("."), -EACCES) << "the root itself is not below the root";
    EXPECT_EQ(code_of("loop"), -ELOOP);
    EXPECT_EQ(code_of("a/b"), -ENOTDIR);
    EXPECT_EQ(code_of("absent"), -ENOENT);
    EXPECT_EQ(code_of(""), -ENOENT);
    EXPECT_EQ(code_of(std::string(300, 'x')), -ENAMETOOLONG);
}

TEST_F(registry, what_may_not_be_read) {
    if (is_root()) GTEST_SKIP() << "root may read everything";
    std::filesystem::permissions(root / "a", std::filesystem::perms::none);
    EXPECT_EQ(code_of("a"), -EACCES);
}

TEST_F(registry, roots_must_be_directories) {
    file_registry other(env, shared, small_limits);
    for (const std::string& wrong : {root / "a", root / "absent"}) {
        const status s = other.set_roots({wrong});
        EXPECT_NE(s.code, 0);
        EXPECT_NE(s.message.find(wrong), std::string::npos) << s.message;
    }
}

TEST_F(registry, several_roots) {
    file_registry both(env, shared, small_limits);
    ASSERT_TRUE(both.set_roots({root.path(), outside.path()}).ok());
    EXPECT_EQ(both.open("a", 0, 0).result, 0) << "relative to the first";
    EXPECT_EQ(both.open("secret", 0, 0).result, -ENOENT);
    EXPECT_EQ(both.open(outside / "secret", 0, 0).result, 0);
}

TEST_F(registry, a_changed_file_gets_another_slot) {
    const open_reply before = must_open("a");
    let_files_settle();
    const auto changes = {
        std::function<void()>([&] { write_file(root / "a", pattern(9, 5000)); }),  // same size
        std::function<void()>([&] { std::filesystem::resize_file(root / "a", 4000); }),
        std::function<void()>([&] {
            write_file(root / "new", pattern(8, 4000));
            std::filesystem::rename(root / "new", root / "a");
        }),
        std::function<void()>(
            [&] { ASSERT_EQ(::chmod((root / "a").c_str(), 0600), 0); }),  // only the change time
    };
    open_reply last = before;
    for (const auto& change : changes) {
        change();
        const open_reply now = must_open("a");
        EXPECT_TRUE(now.slot != last.slot || now.generation != last.generation);
        last = now;
        let_files_settle();
    }
    EXPECT_EQ(read_from(last, 4000), pattern(8, 4000));
    EXPECT_EQ(files->live_files(), 5u) << "the old versions stay until the device takes them down";
    EXPECT_EQ(handle_code(before), 0);
}

TEST_F(registry, retire_gives_back_slot_and_table) {
    registry_limits limits = small_limits;
    limits.file_slots = 2;
    limits.word_count = 6;  // two tables of two words, and a rest
    make(limits);
    const open_reply a = must_open("a"), b = must_open("sub/b");
    write_file(root / "c", pattern(4, 9000));
    EXPECT_EQ(code_of("c"), -ENFILE);
    EXPECT_EQ(files->retire(a.slot, a.generation), 0);
    EXPECT_EQ(files->retire(a.slot, a.generation), -EBADF);
    EXPECT_EQ(files->retire(b.slot, b.generation + 1), -EBADF);
    EXPECT_EQ(files->retire(99, 1), -EBADF);
    EXPECT_EQ(handle_code(a), -EBADF);
    const open_reply c = must_open("c");
    EXPECT_EQ(c.slot, a.slot);
    EXPECT_NE(c.generation, a.generation);
    EXPECT_EQ(handle_code(b), 0);
    EXPECT_EQ(files->retire(c.slot, c.generation), 0);
    const open_reply again = must_open("a");
    EXPECT_EQ(again.slot, a.slot);
}

TEST_F(registry, generations_leave_out_zero) {
    registry_limits limits = small_limits;
    limits.file_slots = 1;
    make(limits);
    std::uint32_t last = 0;
    for (int i = 0; i < 2100; ++i) {
        const open_reply a = must_open("a");
        ASSERT_NE(a.generation, 0u);
        ASSERT_NE(a.generation, last);
        last = a.generation;
        ASSERT_EQ(files->retire(a.slot, a.generation), 0);
    }
}

TEST_F(registry, a_table_that_does_not_fit) {
    registry_limits limits = small_limits;
    limits.word_count = 3;
    make(limits);
    const open_reply a =
        must_open("a");  // two pages: half is one word, so two levels with leaves of 16
    EXPECT_TRUE(a.two_level);
    std::uint64_t word = 0;
    EXPECT_EQ(files->leaf(a.slot, a.generation, engine::leaf_of_table, 0, word), -ENOSPC);
    EXPECT_EQ(files->leaf(a.slot, a.generation, engine::leaf_of_table, 1, word), -EINVAL);
}

TEST_F(registry, leaves) {
    std::filesystem::resize_file(root / "a", 4096ull * 10000);
    const open_reply big = must_open("a"), flat = must_open("sub/b");
    ASSERT_TRUE(big.two_level);
    std::uint64_t first = 0, second = 0, again = 0;
    EXPECT_EQ(files->leaf(big.slot, big.generation, engine::leaf_of_table, 0, first), 0);
    EXPECT_EQ(files->leaf(big.slot, big.generation, engine::leaf_of_table, 624, second), 0);
    EXPECT_EQ(files->leaf(big.slot, big.generation, engine::leaf_of_table, 0, again), 0);
    EXPECT_EQ(first, again) << "asked twice, given once";
    EXPECT_NE(first, second);
    EXPECT_EQ(files->leaf(big.slot, big.generation, engine::leaf_of_table, 625, again), -EINVAL)
        << "10000 pages are 625 leaves of 16";
    EXPECT_EQ(
        files->leaf(big.slot, big.generation, engine::leaf_of_table, ~std::uint64_t{0}, again),
        -EINVAL);
    EXPECT_EQ(files->leaf(flat.slot, flat.generation, engine::leaf_of_table, 0, again), -EINVAL);
    EXPECT_EQ(files->leaf(big.slot, big.generation + 1, engine::leaf_of_table, 0, again), -EBADF);
    // All of it comes back: directory and leaves together are most of the arena, time and again.
    EXPECT_EQ(files->retire(big.slot, big.generation), 0);
    for (int round = 0; round < 10; ++round) {
        const open_reply next = must_open("a");
        for (std::uint64_t i = 0; i < 20; ++i)
            EXPECT_EQ(files->leaf(next.slot, next.generation, engine::leaf_of_table, i * 3, first),
                      0)
                << round;
        EXPECT_EQ(files->retire(next.slot, next.generation), 0);
    }
}

// Room there is, but in pieces: the table is a directory and leaves then. Where there is no room at
// all it is said at once.
TEST_F(registry, a_table_in_an_arena_of_many_pieces) {
    registry_limits limits = small_limits;
    limits.word_count = 512;
    make(limits);
    std::vector<open_reply> small;
    for (std::uint64_t i = 0; i < 5; ++i) {
        const std::string name = "f" + std::to_string(i);
        write_file(root / name, {});
        std::filesystem::resize_file(root / name, 4096ull * 100);
        small.push_back(must_open(name));
        ASSERT_FALSE(small.back().two_level);
    }
    for (const std::size_t i : {1u, 3u})
        ASSERT_EQ(files->retire(small[i].slot, small[i].generation), 0);
    std::filesystem::resize_file(root / "a", 4096ull * 120);  // a hundred words twice, and twelve
    const open_reply a = must_open("a");
    ASSERT_EQ(a.result, 0);
    EXPECT_TRUE(a.two_level);
    std::uint64_t word = 0;
    for (std::uint64_t i = 0; i < 8; ++i)
        EXPECT_EQ(files->leaf(a.slot, a.generation, engine::leaf_of_table, i, word), 0) << i;
    EXPECT_EQ(files->leaf(a.slot, a.generation, engine::leaf_of_table, 8, word), -EINVAL);
    EXPECT_EQ(code_of("f1"), engine::no_table_room);
}

TEST_F(registry, a_hundred_files_through_eight_handles) {
    registry_limits limits = small_limits;
    limits.file_slots = 128;
    limits.max_handles = 8;
    make(limits);
    std::vector<open_reply> all;
    for (std::uint64_t i = 0; i < 100; ++i) {
        write_file(root / ("f" + std::to_string(i)), pattern(i, 100));
        all.push_back(must_open("f" + std::to_string(i)));
    }
    EXPECT_LE(env.handles(), 8 + 1) << "the root's handle besides";
    for (std::uint64_t i = 0; i < 100; ++i) EXPECT_EQ(read_from(all[i], 100), pattern(i, 100)) << i;
    EXPECT_LE(env.handles(), 8 + 1);
    // What was read last is still open.
    const int before = env.handles();
    EXPECT_EQ(handle_code(all[99]), 0);
    EXPECT_EQ(env.handles(), before);
}

TEST_F(registry, a_parked_file_that_is_not_there_any_more) {
    registry_limits limits = small_limits;
    limits.max_handles = 1;
    make(limits);
    for (const char* name : {"gone", "replaced", "linked"})
        write_file(root / name, pattern(7, 100));
    const open_reply gone = must_open("gone"), replaced = must_open("replaced"),
                     linked = must_open("linked");
    must_open("a");  // parks the others
    std::filesystem::remove(root / "gone");
    write_file(root / "new", pattern(8, 100));
    std::filesystem::rename(root / "new", root / "replaced");
    std::filesystem::remove(root / "linked");
    std::filesystem::create_symlink(outside / "secret", root / "linked");
    EXPECT_EQ(handle_code(gone), -ESTALE);
    EXPECT_EQ(handle_code(replaced), -ESTALE);
    EXPECT_EQ(handle_code(linked), -ESTALE);
}

TEST_F(registry, path_extents_are_given_and_taken_back) {
    registry_limits limits = small_limits;
    limits.path_units = 2;
    make(limits);
    const open_reply a = must_open("a"), b = must_open("sub/b");
    EXPECT_EQ(a.path_extent, 1u);
    EXPECT_EQ(b.path_extent, 2u);
    EXPECT_EQ(must_open("./a").path_extent, 0u)
        << "no room: the name is not remembered, but opened";
    EXPECT_EQ(files->open("./a", 1, 1).path_extent, 1u)
        << "the extent given back with the request serves at once";
    EXPECT_EQ(files->open("absent", 2, 1).path_extent, 2u) << "failed names are remembered too";
    files->give_back_path(engine::pack_lost_extent(2, 1));
    EXPECT_EQ(must_open("./a").path_extent, 2u) << "an extent that no open took comes back";
    for (const std::uint64_t nonsense :
         {std::uint64_t{1} << 32, std::uint64_t{1} << 32 | 3, ~std::uint64_t{0}, std::uint64_t{2}})
        files->give_back_path(nonsense);
    EXPECT_EQ(must_open("./a").path_extent, 0u) << "what is not out does not come back";
}

TEST_F(registry, a_file_that_is_lent_keeps_its_slot_and_table) {
    let_files_settle();
    registry_limits limits = small_limits;
    limits.file_slots = 1;
    make(limits);
    const open_reply a = must_open("a");
    EXPECT_TRUE(shared.known.may_have({a.identity.device, a.identity.inode}));
    host::slot_life lent, none;
    host::file_identity changed = a.identity;
    ++changed.changed_ns;
    EXPECT_FALSE(files->lend(changed, none));
    ASSERT_TRUE(files->lend(a.identity, lent));
    EXPECT_EQ(lent.generation, a.generation);
    EXPECT_TRUE(files->is_lent_as_is(lent));
    EXPECT_EQ(files->retire(a.slot, a.generation), 0);
    EXPECT_FALSE(shared.known.may_have({a.identity.device, a.identity.inode}));
    EXPECT_FALSE(files->is_lent_as_is(lent));
    EXPECT_FALSE(files->lend(a.identity, none));
    EXPECT_EQ(code_of("sub/b"), -ENFILE);
    files->end_loan(lent);
    EXPECT_EQ(must_open("sub/b").slot, a.slot);
}

TEST_F(registry, a_file_that_is_written_is_not_lent) {
    let_files_settle();
    registry_limits writable = small_limits;
    writable.writable = true;
    make(writable);
    const open_reply a = must_open("a");
    host::slot_life lent, none;
    ASSERT_TRUE(files->lend(a.identity, lent));
    const open_reply written = files->open("a", 0, 0, open_read_write);
    ASSERT_EQ(written.slot, a.slot);
    EXPECT_FALSE(files->lend(a.identity, none));
    EXPECT_FALSE(files->is_lent_as_is(lent));
    EXPECT_TRUE(files->settle(a.slot, a.generation, written.epoch, engine::unknown_size));
    EXPECT_FALSE(files->lend(a.identity, none)) << "its times may still be the same";
    EXPECT_FALSE(files->is_lent_as_is(lent));
    files->end_loan(lent);
}

// Its times are known and nothing else wrote, so its pages are lent again; but not to a reader that
// may have copied a page before it was written.
TEST_F(registry, a_loan_from_before_a_kept_write_is_no_longer_valid) {
    let_files_settle();
    registry_limits writable = small_limits;
    writable.writable = true;
    make(writable);
    const open_reply a = must_open("a");
    host::slot_life lent, next;
    ASSERT_TRUE(files->lend(a.identity, lent));
    const open_reply written = files->open("a", 0, 0, open_read_write);
    while (!files->settle(a.slot, a.generation, written.epoch, 5000)) std::this_thread::yield();
    if (!can_prove_writes(outside)) GTEST_SKIP() << "this file system or kernel allows no proof";
    ASSERT_EQ(files->kept_files(), 1u);
    const open_reply again = must_open("a");
    EXPECT_EQ(again.slot, a.slot);
    EXPECT_EQ(again.generation, a.generation);
    EXPECT_FALSE(files->is_lent_as_is(lent));
    EXPECT_FALSE(files->lend(again.identity, next));
    files->end_loan(lent);
    EXPECT_TRUE(files->lend(again.identity, next));
    EXPECT_TRUE(files->is_lent_as_is(next));
    files->end_loan(next);
}

// An open that is answered between two attempts ends them.
TEST_F(registry, an_older_version_has_its_handle_again_however_the_attempts_end) {
    registry_limits writable = small_limits;
    writable.writable = true;
    make(writable);
    let_files_settle();
    const open_reply old = must_open("a");
    write_file(root / "a", pattern(9, 5000));
    let_files_settle();
    const open_reply writer = files->open("a", 0, 0, open_read_write);
    ASSERT_NE(writer.slot, old.slot);
    if (!can_prove_writes(outside)) GTEST_SKIP() << "this file system or kernel allows no proof";
    std::shared_ptr<shared_handle> held;
    std::uint64_t size = 0;
    ASSERT_EQ(files->handle_of(old.slot, old.generation, held, size), 0);
    if (files->settle(writer.slot, writer.generation, 1, 5000)) GTEST_SKIP() << "busy machine";
    files->open("a", 0, 0);
    held.reset();
    EXPECT_TRUE(files->settle(writer.slot, writer.generation, 1, 5000));
    std::filesystem::remove(root / "a");
    EXPECT_EQ(files->handle_of(old.slot, old.generation, held, size), 0);
}

TEST_F(registry, the_slot_of_an_older_version_may_have_another_file) {
    registry_limits writable = small_limits;
    writable.writable = true;
    make(writable);
    const open_reply old = must_open("a");
    write_file(root / "a", pattern(9, 5000));
    const open_reply writer = files->open("a", 0, 0, open_read_write);
    ASSERT_EQ(files->retire(old.slot, old.generation), 0);
    const open_reply b = must_open("sub/b");
    ASSERT_EQ(b.slot, old.slot);
    while (!files->settle(writer.slot, writer.generation, 1, 5000)) std::this_thread::yield();
    std::filesystem::remove(root / "sub/b");
    std::shared_ptr<shared_handle> handle;
    std::uint64_t size = 0;
    ASSERT_EQ(files->handle_of(b.slot, b.generation, handle, size), 0);
    struct stat facts {};
    ASSERT_EQ(::fstat(handle->fd(), &facts), 0);
    EXPECT_EQ(facts.st_ino, b.identity.inode);
}

// A service thread lets its handle go, and the close takes a moment in which the file is settled:
// the lease would be refused, and the pages lost.
TEST_F(registry, a_handle_that_is_being_closed_does_not_cost_the_proof) {
    using clock = std::chrono::steady_clock;
    constexpr auto longest_wait = std::chrono::milliseconds(100);  // of the registry
    let_files_settle();
    registry_limits writable = small_limits;
    writable.writable = true;
    make(writable);
    const open_reply a = must_open("a");
    if (!can_prove_writes(outside)) GTEST_SKIP() << "this file system or kernel allows no proof";
    std::shared_ptr<shared_handle> held;
    std::uint64_t size = 0;
    ASSERT_EQ(files->handle_of(a.slot, a.generation, held, size), 0);
    const open_reply written = files->open("a", 0, 0, open_read_write);
    const auto settle = [&] { return files->settle(a.slot, a.generation, written.epoch, 5000); };
    const auto begun = clock::now();
    bool settled = settle();  // takes the handle away from the file
    env.stall(fault::call_close);
    std::thread closer([&] { held.reset(); });
    while (env.stalled() == 0) std::this_thread::yield();
    // In time for the registry, which waits no longer.
    std::thread ender([&] {
        while (clock::now() < begun + longest_wait / 2) std::this_thread::yield();
        env.release();
    });
    while (!settled && env.stalled() != 0) settled = settle();
    ender.join();
    closer.join();
    while (!settled) settled = settle();
    if (clock::now() >= begun + longest_wait) GTEST_SKIP() << "the machine was too busy";
    EXPECT_EQ(files->kept_files(), 1u);
}

}  // namespace penstock::test
