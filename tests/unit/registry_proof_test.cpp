// What the file registry takes for proof that pages are of the file as it is: that nothing but its
// own writers wrote it, and what came meanwhile.
#include <fcntl.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <utility>

#include "fault/faulty_environment.hpp"
#include "files/file_registry.hpp"
#include "files/write_watch.hpp"
#include "hub/hub.hpp"
#include "os/file_kind.hpp"
#include "unit/leases.hpp"
#include "unit/support.hpp"

namespace penstock::test {

namespace {

using host::file_registry;
using host::open_reply;

// A system that may say other things of its files: when they were made, that they lie on a server,
// and for how long they have rested there. Its watch may overflow.
class other_facts final : public fault::faulty_environment {
public:
    int facts(int handle, host::file_facts& out) override {
        const int code = faulty_environment::facts(handle, out);
        if (made_ns != 0) out.made_ns = made_ns;
        if (is_on_server) out.times = host::file_times::server;
        if (is_on_server) out.rested_ns = rested_ns;
        return code;
    }
    void read_watch(int watch, std::vector<int>& out) override {
        faulty_environment::read_watch(watch, out);
        if (overflows) out.push_back(all_files);
    }

    std::int64_t made_ns = 0, rested_ns = 0;
    bool is_on_server = false, overflows = false;
};

// A mount that has nothing to bring, and during which something else happens.
struct busy_view final : host::program_views {
    int collect(const host::file_key&) override {
        if (meanwhile) std::exchange(meanwhile, nullptr)();
        return 0;
    }
    int take_away(const host::file_key&, std::uint64_t, std::uint64_t) override { return 0; }
    std::function<void()> meanwhile;
};

class registry_proof : public testing::Test {
protected:
    static constexpr std::uint64_t file_bytes = 5000;

    void SetUp() override {
        write_file(path, pattern(1, file_bytes));
        let_files_settle();
        host::registry_limits limits{16, 12, 4, 1024, 256, 100};
        limits.writable = true;
        files = std::make_unique<file_registry>(env, shared, limits);
        ASSERT_TRUE(files->set_roots({root.path()}).ok());
    }
    void TearDown() override {
        files.reset();
        EXPECT_EQ(env.handles(), 0) << "a handle was not closed";
    }
    open_reply must_open(const std::string& name, std::uint32_t flags = 0,
                         const host::slot_life& open_now = {}) {
        const open_reply reply = files->open(name, 0, 0, flags, open_now);
        EXPECT_EQ(reply.result, 0) << name;
        return reply;
    }
    open_reply must_open_to_write() { return must_open("a", open_read_write); }
    // The group that wrote it has closed it. How many files were kept by that.
    std::uint64_t close_written(const open_reply& written, std::uint64_t size = file_bytes) {
        const std::uint64_t before = files->kept_files();
        while (!files->settle(written.slot, written.generation, written.epoch, size))
            std::this_thread::yield();
        return files->kept_files() - before;
    }
    int handle_code(const open_reply& file) {
        std::shared_ptr<host::shared_handle> handle;
        std::uint64_t size = 0;
        return files->handle_of(file.slot, file.generation, handle, size);
    }
    void pass_to_a_writer() {
        struct stat facts {};
        ASSERT_EQ(::stat(path.c_str(), &facts), 0);
        const host::file_key key = host::key_of(host::identity_of(facts));
        shared.passed.begin(key);
        shared.passed.end(key);
    }

    const temporary_folder outside, root;
    const std::string path = root / "a";
    other_facts env;
    host::hub shared;
    std::unique_ptr<file_registry> files;
};

}  // namespace

TEST_F(registry_proof, watches_end_with_the_last_of_a_file_and_overflow_for_all) {
    write_file(root / "b", pattern(2, 10));
    const int a = ::open(path.c_str(), O_RDWR | O_CLOEXEC),
              b = ::open((root / "b").c_str(), O_RDWR | O_CLOEXEC);
    {
        host::write_watch watch(env);
        const host::watch_hold of_a(watch, a), of_b(watch, b);
        if (!of_a.is_held() || !of_b.is_held()) GTEST_SKIP() << "no watch in this machine";
        { const host::watch_hold again(watch, a); }
        EXPECT_EQ(watch.events_of(of_a.mark().number), of_a.mark().events);
        EXPECT_EQ(::pwrite(a, "new", 3, 0), 3);
        EXPECT_EQ(watch.events_of(of_a.mark().number), of_a.mark().events + 1);
        EXPECT_EQ(watch.events_of(of_b.mark().number), of_b.mark().events);
        env.overflows = true;
        EXPECT_EQ(watch.events_of(of_b.mark().number), of_b.mark().events + 1);
    }
    ::close(a);
    ::close(b);
}

TEST_F(registry_proof, is_none_with_another_size) {
    const bool can_prove = can_prove_writes(outside, env);
    EXPECT_EQ(close_written(must_open_to_write(), file_bytes - 1), 0u);
    if (!can_prove) GTEST_SKIP() << "this file system or kernel allows no proof";
    EXPECT_EQ(close_written(must_open_to_write()), 1u);
}

// A program that stores to a mapping of a file that the kernel passes through leaves no event.
TEST_F(registry_proof, is_none_after_the_file_was_passed_to_a_writer) {
    const open_reply a = must_open("a");
    const open_reply written = must_open_to_write();
    ASSERT_EQ(written.slot, a.slot);
    pass_to_a_writer();
    EXPECT_EQ(close_written(written), 0u);
}

TEST_F(registry_proof, of_pages_ends_when_the_file_is_passed_to_a_writer) {
    const open_reply a = must_open("a");
    ASSERT_EQ(must_open("a").slot, a.slot);
    host::slot_life lent;
    ASSERT_TRUE(files->lend(a.identity, lent));
    files->end_loan(lent);
    pass_to_a_writer();
    EXPECT_FALSE(files->lend(a.identity, lent));
    EXPECT_NE(must_open("a").slot, a.slot);
}

// The cut came to the watch with what was written before it and after it.
TEST_F(registry_proof, is_none_after_a_cut_that_left_bytes) {
    const bool can_prove = can_prove_writes(outside, env);
    for (const bool leaves_bytes : {true, false}) {
        const open_reply written = must_open_to_write();
        write_file(path, pattern(2, leaves_bytes ? file_bytes : 0));
        files->cut_to_nothing(written.slot, written.generation);
        const std::uint64_t kept = close_written(written, leaves_bytes ? file_bytes : 0);
        if (leaves_bytes || can_prove) EXPECT_EQ(kept, leaves_bytes ? 0u : 1u);
    }
}

// Threads that serve reads keep the size beside the handle: while the file was written it had none.
TEST_F(registry_proof, is_told_to_those_that_keep_its_handle) {
    if (!can_prove_writes(outside, env))
        GTEST_SKIP() << "this file system or kernel allows no proof";
    const open_reply written = must_open_to_write();
    std::shared_ptr<host::shared_handle> held;
    std::uint64_t size = 0;
    ASSERT_EQ(files->handle_of(written.slot, written.generation, held, size), 0);
    if (files->settle(written.slot, written.generation, written.epoch, file_bytes))
        GTEST_SKIP() << "busy machine";
    const std::uint64_t changes = files->handle_changes();
    held.reset();
    if (close_written(written) == 0) GTEST_SKIP() << "busy machine";
    EXPECT_GT(files->handle_changes(), changes);
}

// By its inode it would be a version of the file.
TEST_F(registry_proof, gives_no_handle_to_another_file_that_had_the_inode) {
    env.made_ns = 1;
    const open_reply old = must_open("a");
    env.made_ns = 2;
    write_file(path, pattern(2, file_bytes));
    let_files_settle();
    const open_reply written = must_open_to_write();
    ASSERT_NE(written.slot, old.slot);
    close_written(written);
    EXPECT_EQ(handle_code(old), -ESTALE);
}

// A group has the file open from when it was longer, and its times proved nothing then.
TEST_F(registry_proof, of_bytes_that_are_stored_is_the_size_that_the_file_has) {
    write_file(path, pattern(2, file_bytes));
    env.is_on_server = true;
    const open_reply open_now = must_open("a");
    ASSERT_EQ(::truncate(path.c_str(), 1000), 0);
    const open_reply written =
        must_open("a", open_read_write, {open_now.slot, open_now.generation});
    ASSERT_EQ(written.slot, open_now.slot);
    std::shared_ptr<host::file_writer> writer;
    ASSERT_EQ(files->writer_of(written.slot, written.generation, writer), 0);
    EXPECT_EQ(writer->stored().bytes, 1000u);
}

TEST_F(registry_proof, of_a_server_ends_with_a_rename_before_a_rest) {
    env.is_on_server = true;
    constexpr std::int64_t long_ns = 60'000'000'000;
    env.rested_ns = long_ns;
    const open_reply a = must_open("a");
    ASSERT_EQ(must_open("a").slot, a.slot);
    env.rested_ns = 0;
    ASSERT_EQ(files->rename("a", "b", true, nullptr), 0);
    env.rested_ns = long_ns;
    EXPECT_NE(must_open("b").slot, a.slot);
}

// The name was looked up before another thread gave the file another one.
TEST_F(registry_proof, of_a_path_is_the_rename_that_came_last) {
    const auto view = std::make_shared<busy_view>();
    shared.add_views(view);
    const open_reply a = must_open("a");
    view->meanwhile = [&] { EXPECT_EQ(files->rename("a", "b", true, nullptr), 0); };
    const open_reply again = must_open("a");
    shared.remove_views(*view);
    EXPECT_EQ(again.slot, a.slot);
    EXPECT_EQ(files->path_of(a.slot, a.generation), root / "b");
}

}  // namespace penstock::test
