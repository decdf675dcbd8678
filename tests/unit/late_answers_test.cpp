// Opens that the host answered and that no group waited for: none of them stays counted as a
// writer.
#include <memory>
#include <thread>

#include "fault/faulty_environment.hpp"
#include "files/file_registry.hpp"
#include "hub/hub.hpp"
#include "unit/support.hpp"

namespace penstock::test {

using host::file_registry;
using host::open_reply;
using host::registry_limits;

class late_answers : public testing::Test {
protected:
    temporary_folder root;
    fault::faulty_environment env;  // counts handles
    host::hub shared;
    std::unique_ptr<file_registry> files;

    void SetUp() override {
        write_file(root / "a", pattern(1, 5000));
        registry_limits limits{16, 12, 4, 1024, 256, 100};
        limits.writable = true;
        files = std::make_unique<file_registry>(env, shared, limits);
        ASSERT_TRUE(files->set_roots({root.path()}).ok());
    }
    void TearDown() override {
        files.reset();
        EXPECT_EQ(env.handles(), 0) << "a handle was not closed";
    }
    open_reply open_here(std::uint32_t flags) { return files->open("a", 0, 0, flags); }
    void settle(const open_reply& closed) {
        while (!files->settle(closed.slot, closed.generation, closed.epoch, 5000))
            std::this_thread::yield();
    }
    void take_back(const open_reply& lost, bool to_write) {
        files->take_back_open({lost.slot, lost.generation}, lost.epoch, to_write);
    }
    bool is_written() { return !files->written_files().empty(); }
};

TEST_F(late_answers, a_writer_that_never_was_is_none) {
    const open_reply lost = open_here(open_read_write), reader = open_here(open_read);
    EXPECT_TRUE(is_written());
    take_back(lost, true);
    EXPECT_FALSE(is_written());
    EXPECT_NE(open_here(open_read).slot, reader.slot) << "nothing proves that it is the same";
}

TEST_F(late_answers, a_writer_beside_it_writes_on) {
    const open_reply writer = open_here(open_read_write), lost = open_here(open_read_write);
    take_back(lost, true);
    take_back(lost, true);  // again: nothing
    EXPECT_TRUE(is_written());
    settle(writer);
    EXPECT_FALSE(is_written());
}

TEST_F(late_answers, a_writer_that_closed_before_is_settled) {
    for (const bool to_write : {true, false}) {
        const open_reply writer = open_here(open_read_write);
        const open_reply first = open_here(to_write ? open_read_write : open_read),
                         second = open_here(open_read_write);
        settle(writer);  // groups may have it by the later answers
        EXPECT_TRUE(is_written());
        take_back(second, true);
        EXPECT_TRUE(is_written());
        take_back(first, to_write);
        EXPECT_FALSE(is_written());
    }
}

// By another spelling of the name a later answer may be taken first.
TEST_F(late_answers, a_writer_whose_answer_is_under_way_keeps_its_writer) {
    const open_reply late = open_here(open_read_write);
    open_here(open_read_write);
    settle({0, late.slot, late.generation, {}, 0, false, 0, 1});  // of the second, alone
    EXPECT_TRUE(is_written());
    const open_reply lost = open_here(open_read_write);
    take_back(lost, true);
    EXPECT_TRUE(is_written()) << "a close that could not settle it knows of one answer";
    settle({0, late.slot, late.generation, {}, 0, false, 0, 2});
    EXPECT_FALSE(is_written());
}

TEST_F(late_answers, what_was_not_answered_counts_for_nothing) {
    const open_reply writer = open_here(open_read_write);
    open_reply wrong = writer;
    for (const std::uint32_t epoch : {0u, writer.epoch + 1, ~0u}) {
        wrong.epoch = epoch;
        take_back(wrong, true);
    }
    EXPECT_TRUE(is_written());
    const open_reply reader = open_here(open_read);
    for (int again = 0; again < 2; ++again) take_back(reader, false);
    EXPECT_TRUE(is_written());
    settle(writer);
    EXPECT_FALSE(is_written());
}

}  // namespace penstock::test
