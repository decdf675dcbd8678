// Runs a small program of fibers under every schedule that matters, and reports the first one that
// breaks a rule.
//
// A schedule is the order of the fibers' atomic accesses. The memory is sequentially consistent:
// the explorer finds wrong protocols, not wrong memory orders. Each schedule is run from the
// beginning (stateless model checking).
//
// Complete mode: dynamic partial-order reduction (Flanagan, Godefroid 2005), choosing where to
// branch by source sets (Abdulla, Aronis, Jonsson, Sagonas 2014), with sleep sets (Godefroid 1996).
// Two schedules that differ only in the order of independent accesses (different words, or two
// loads) end in the same state, so only one of them is run. Bounded mode (Musuvathi, Qadeer 2007:
// CHESS): every schedule with at most `preemptions` switches away from a fiber that could have gone
// on. For programs too large for the complete mode.
//
// The bounded mode goes on from each state once. Two schedules lead to the same state if each fiber
// has made the same accesses, each after the same accesses of others to its word: then every fiber
// has seen the same, so it is where it was and does the same next. So a schedule ends where it
// meets such a state again, unless the bound allows more from there than it did before. Nothing is
// left out: every step from every state is made, with the checks that fibers make on the way. The
// contents of the memory are part of the state as well, so that fibers that also write it between
// their accesses are told apart. What fibers keep outside must follow from their own accesses, as
// for the complete mode.
//
// Waiting: a fiber that pauses is not run again until a word that it read since its last pause was
// changed by another fiber: until then it would read the same and pause again. If every fiber
// waits, logical time jumps far ahead and all may look at their deadlines. So a wait ends by its
// time-out exactly where nothing else could happen, or where a fiber sleeps on purpose; a fiber
// that never ends at all is reported.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "explore/explored_states.hpp"
#include "explore/fiber.hpp"
#include "explore/hook.hpp"

namespace explore {

inline constexpr std::uint32_t max_fibers = 6;

struct program {
    std::vector<std::function<void()>> fibers;
    // How many of the last fibers serve the others; the run ends when only they wait.
    std::uint32_t helpers = 0;
    std::function<void()>
        reset;  // brings the shared memory to its first state, before each schedule
    std::function<void()> check;  // calls require() on the last state
    std::byte* memory = nullptr;  // the shared memory: accesses elsewhere are no schedule points
    std::size_t memory_bytes = 0;
    std::uint64_t gone = 0;  // not 0: no fiber may access a word that holds this
    std::function<std::string(std::size_t)>
        name_of;  // of the 8-byte word at a byte offset, for reports
};

struct limits {
    std::uint64_t schedules = 2'000'000;
    int preemptions = -1;  // -1: complete mode
    bool remember = true;  // bounded mode: goes on from each state once
};

struct outcome {
    std::uint64_t schedules = 0;  // that ran to their end
    std::uint64_t cut = 0;        // that were left because the rest was known
    std::uint64_t ends = 0;       // different contents of the memory at their ends
    bool complete = false;        // every schedule (within the bound) was looked at
    std::string violation;        // empty: none found
    std::string trace;            // the schedule that led to it
};

class explorer {
public:
    explorer(program explored, limits bounds);
    outcome run();

    // For fibers.
    void pause();
    std::uint64_t now();
    std::uint32_t running_fiber() const { return running_; }
    static explorer* current();

private:
    friend void point(const void* address, bool is_write);
    friend void violation(const char* message);

    using clock = std::array<std::uint32_t, max_fibers>;
    static constexpr std::uint32_t no_fiber = max_fibers;
    enum class phase { local, at_access, blocked, finished };

    struct access {
        std::uint32_t word = 0;
        bool is_write = false;
        bool conflicts(const access& other) const {
            return word == other.word && (is_write || other.is_write);
        }
    };
    struct watched {
        std::uint32_t word;
        std::uint32_t changes;  // of the word by others, when it was read
    };
    struct lane_state {
        fiber run;
        phase at = phase::local;
        access next;
        clock seen{};
        std::uint64_t history = 0;  // of its accesses and those that they follow
        std::uint32_t done = 0;
        std::uint32_t impatient = 0;  // pauses that return at once, after a jump of the time
        std::vector<watched> watch;
        std::uint32_t only_word = 0;  // the word it waited for, if it was one
        bool waited_for_one = false;
    };
    struct word_state {
        clock writes{}, accesses{};
        std::array<std::uint32_t, max_fibers> last_read{}, last_write{};  // event + 1
        std::array<std::uint32_t, max_fibers + 1> changes{};  // by each fiber, and by all
        std::uint64_t write_history = 0, read_history = 0;    // the last write, and loads since
        bool used = false;
        std::uint32_t changes_by_others(std::uint32_t id) const {
            return changes[max_fibers] - changes[id];
        }
    };
    struct node {  // before event i
        std::uint32_t enabled, sleep, todo, done, chosen, previous;
        int preemptions;
    };
    struct event {
        access step;
        std::uint32_t by, stamp;
        std::uint64_t before, after;
        clock seen;
    };

    static void fiber_body(void* self);
    void start_schedule();
    bool run_schedule();  // false: cut
    void run_locals();
    void resume(std::uint32_t id);
    std::uint32_t enabled_fibers() const;
    bool wake_by_time();
    bool lanes_finished() const;
    bool choose(std::uint32_t enabled);
    bool complete() const { return limits_.preemptions < 0; }
    void execute();
    bool remembers() const { return !complete() && limits_.remember; }
    std::uint64_t state_key();
    void record_history(std::uint32_t id);
    void record_order(std::uint32_t id);
    void compare_with_past(std::uint32_t id);
    std::uint32_t beginners(std::uint32_t first, std::uint32_t id, bool& waited) const;
    void add_race(std::uint32_t event_index, std::uint32_t id);
    void wake_watchers(std::uint32_t word, std::uint32_t by);
    bool next_schedule();
    std::string describe() const;
    word_state& touch(std::uint32_t word);
    std::uint64_t value_of(std::uint32_t word) const;

    program program_;
    limits limits_;
    std::vector<lane_state> lanes_;
    std::vector<word_state> words_;
    std::vector<std::uint32_t> used_words_;
    std::vector<node> nodes_;
    std::vector<event> events_;
    explored_states<max_fibers> states_;
    memory_hash contents_;
    std::unordered_set<std::uint64_t> ends_;
    std::uint32_t depth_ = 0, running_ = no_fiber, sleep_ = 0, previous_ = no_fiber, jumps_ = 0;
    std::uint64_t time_ = 0;
    int preemptions_ = 0;
    std::string violation_;
};

}  // namespace explore
