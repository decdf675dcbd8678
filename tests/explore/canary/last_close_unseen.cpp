// Canary: a lane that closes takes its reference from the word even if the word has changed since
// the lane looked. So of two lanes that close at once neither is the last.
#define penstock penstock_last_close_unseen

#include "explore/canary/standard.hpp"
#include "explore/hook.hpp"
#include "penstock/engine/file_word.hpp"

namespace penstock::engine {

inline bool broken_release(file_word* word, file_word) {
    atomic_fetch_add<order::release>(word, ~file_word{0});
    return true;
}

}  // namespace penstock::engine

#define try_release_from broken_release

#include "explore/written_file.hpp"

namespace penstock::explore_kit {

TEST(canary, last_close_unseen) {
    written_file s({.frames = 1});
    s.warm(0, 0);
    s.expect(0, 0, 70);
    s.held.references = 0;
    s.prepare = [&s, before = s.prepare] {
        before();
        ++s.w.memory.file_words[0];
        ++s.w.memory.writes[0].writers;
    };
    s.also([&] {
        explore::require(s.w.memory.disk[0] == 70, "closed by all, and the file does not have it");
    });
    s.lane([&](auto g) {
        s.store(g, 0, 0, 70);
        explore::require(close(g, s.w.fs(), s.fd) == 0, "a close failed");
    });
    s.lane([&](auto g) { explore::require(close(g, s.w.fs(), s.fd) == 0, "a close failed"); });
    expect_caught(s.run({.preemptions = 3}), "closed by all, and the file does not have it");
}

}  // namespace penstock::explore_kit
