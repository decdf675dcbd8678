// An open that was given up and answered late: the next owner of its ring slot enters the file, so
// that the slot which the host gave is not out of reach for ever; and it never does so against what
// happened meanwhile. The room for its name goes back to the host.
#include "explore/scenario.hpp"

namespace penstock::explore_kit {
namespace {

// The host answered slot 0, `told_generation`, of inode 1 to an open that no lane waits for. Its
// ring slot comes up next.
struct lost_answer : names {
    explicit lost_answer(std::uint32_t told_generation)
        : names({.frames = 1, .files = 1, .ring_slots = 1}), told(told_generation) {
        w.view.request_wait_ns = 8500;
        prepare = [this] { lose(); };
    }
    void lose() {
        server.given_already(0, 1, told);
        w.memory.tail = 1;
        w.memory.free_ticket[0] = 1 | engine::orphan_bit;
        w.memory.requests[0].published = 1;
        w.memory.requests[0].operation = engine::op::open;
        w.memory.requests[0].bytes = 1;
        w.memory.requests[0].file_slot = flags;
        auto& reply = w.memory.replies[0];
        reply.completed = 1;
        reply.words[engine::reply_slot_and_generation] = std::uint64_t{told} << 32;
        reply.words[engine::reply_size_bytes] = 2 * page_bytes;
        reply.words[engine::reply_path_and_flags] = server.path_given_already();
    }
    bool entered() const {
        const engine::file_word word = w.memory.file_words[0];
        return engine::file_state(word) == engine::file_live &&
               engine::file_generation(word) == told;
    }
    // The host counts on its answers until it hears which ones no lane took.
    void expect_told(std::uint32_t lost, std::uint32_t writes) {
        also([this, lost, writes] {
            explore::require(server.asked.lost_opens == lost && server.asked.lost_writes == writes,
                             "the host did not hear once that its answer was lost");
        });
    }
    std::uint32_t told, flags = engine::may_read;
};

TEST(lost_open, next_owner_enters_the_file) {
    lost_answer s(1);
    for (std::uint64_t i = 0; i < 2; ++i)
        s.lane([&s, i](auto g) {
            explore::require(echo(g, s.w.view, i) == 0, "a question got no answer");
        });
    s.also([&] { explore::require(s.entered(), "the file is out of reach"); });
    s.expect_told(1, 0);
    expect_sound(s.run());
}

TEST(lost_open, host_hears_of_one_to_write) {
    lost_answer s(1);
    s.flags = engine::may_write;
    for (std::uint64_t i = 0; i < 2; ++i)
        s.lane([&s, i](auto g) {
            explore::require(echo(g, s.w.view, i) == 0, "a question got no answer");
        });
    s.expect_told(1, 1);
    expect_sound(s.run());
}

TEST(lost_open, against_an_open_of_the_same_file) {
    lost_answer s(1);
    s.held.references = 1;
    s.lane(
        [&](auto g) { explore::require(echo(g, s.w.view, 7) == 0, "a question got no answer"); });
    s.lane([&](auto g) { explore::require(open(g, s.w.fs(), "a") >= 0, "an open failed"); });
    s.also([&] { explore::require(s.entered(), "the file is out of reach"); });
    expect_sound(s.run());
}

// Another lane was given the same answer, to an open of its own, and fills the slot at the same
// time.
TEST(lost_open, against_the_same_answer_elsewhere) {
    lost_answer s(1);
    s.lane(
        [&](auto g) { explore::require(echo(g, s.w.view, 7) == 0, "a question got no answer"); });
    for (int i = 0; i < 2; ++i)
        s.lane([&](auto g) {
            const engine::open_answer told{0, 0, 1, 2 * page_bytes, 0, 0, false, 1, 0, 0};
            engine::wait_deadline deadline(g, s.w.view.request_wait_ns);
            explore::require(engine::attach_file(g, s.w.view, told, deadline) == 0,
                             "an open failed");
            explore::require(close(g, s.w.fs(), engine::make_descriptor(0, 1)) == 0,
                             "a close failed");
        });
    s.also([&] { explore::require(s.entered(), "the file is out of reach"); });
    expect_sound(s.run());
}

// What was answered is older than what the slot has been through since.
TEST(lost_open, out_of_date) {
    lost_answer s(1);
    s.prepare = [&] {
        s.lose();
        s.server.given_already(0, 2, 2);
        s.w.closed_now(0, 2 * page_bytes, 0, 2);
    };
    s.lane(
        [&](auto g) { explore::require(echo(g, s.w.view, 7) == 0, "a question got no answer"); });
    s.lane(
        [&](auto g) { explore::require(s.open_and_close(g, "c") % ENFILE == 0, "wrong error"); });
    s.also(
        [&] { explore::require(!s.entered(), "an answer that was out of date came into force"); });
    expect_sound(s.run());
}

// The slot has been through two lives since and is vacant: the next open gets the third.
TEST(lost_open, older_than_a_life_that_ended) {
    lost_answer s(1);
    s.prepare = [&] {
        s.lose();
        s.server.taken_back_already(0, 2);
        s.w.memory.file_words[0] = engine::make_file_word(engine::file_vacant, 2, 0);
    };
    s.lane(
        [&](auto g) { explore::require(echo(g, s.w.view, 7) == 0, "a question got no answer"); });
    s.lane([&](auto g) { explore::require(s.use(g, "b", 2) == 0, "an open failed"); });
    s.also(
        [&] { explore::require(!s.entered(), "an answer that was out of date came into force"); });
    expect_sound(s.run());
}

}  // namespace
}  // namespace penstock::explore_kit
