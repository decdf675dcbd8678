#include "explore/explorer.hpp"

#include <algorithm>
#include <cstring>
#include <sstream>

namespace explore {

namespace {

explorer* active = nullptr;

constexpr std::uint32_t bit(std::uint32_t id) { return 1u << id; }
constexpr std::uint32_t max_jumps = 16, jump_ns = 1000, impatient_pauses = 20, max_events = 20'000;

}  // namespace

explorer* explorer::current() { return active; }

void point(const void* address, bool is_write) {
    explorer* const x = active;
    if (x == nullptr || x->running_ == explorer::no_fiber) return;
    const auto* at = static_cast<const std::byte*>(address);
    if (at < x->program_.memory || at >= x->program_.memory + x->program_.memory_bytes) return;
    auto& lane = x->lanes_[x->running_];
    lane.next = {static_cast<std::uint32_t>((at - x->program_.memory) / 8), is_write};
    lane.at = explorer::phase::at_access;
    lane.run.leave();
    if (x->program_.gone != 0 && x->value_of(lane.next.word) == x->program_.gone)
        violation("memory that is gone was accessed");
    lane.watch.push_back({lane.next.word, x->touch(lane.next.word).changes_by_others(x->running_)});
}

void violation(const char* message) {
    explorer* const x = active;
    if (x->violation_.empty()) x->violation_ = message;
    if (x->running_ != explorer::no_fiber) x->lanes_[x->running_].run.leave();
}

explorer::explorer(program explored, limits bounds)
    : program_(std::move(explored)),
      limits_(bounds),
      lanes_(program_.fibers.size()),
      words_(program_.memory_bytes / 8 + 1) {}

void explorer::fiber_body(void* self) {
    auto* const x = static_cast<explorer*>(self);
    auto& lane = x->lanes_[x->running_];
    x->program_.fibers[x->running_]();
    lane.at = phase::finished;
    lane.run.leave();
}

void explorer::pause() {
    auto& lane = lanes_[running_];
    if (lane.impatient > 0) {
        --lane.impatient;
        lane.watch.clear();
        return;
    }
    bool stale = false;
    lane.waited_for_one = true;
    for (const watched& w : lane.watch) {
        stale = stale || words_[w.word].changes_by_others(running_) != w.changes;
        lane.waited_for_one = lane.waited_for_one && w.word == lane.watch.front().word;
    }
    if (!lane.watch.empty()) lane.only_word = lane.watch.front().word;
    if (stale) lane.waited_for_one = false;
    if (!stale) {
        lane.at = phase::blocked;
        lane.run.leave();
    }
    lane.watch.clear();
}

std::uint64_t explorer::now() {
    if (running_ != no_fiber) lanes_[running_].impatient = 0;
    return time_;
}

explorer::word_state& explorer::touch(std::uint32_t word) {
    word_state& state = words_[word];
    if (!state.used) {
        state.used = true;
        used_words_.push_back(word);
    }
    return state;
}

std::uint64_t explorer::value_of(std::uint32_t word) const {
    std::uint64_t value = 0;
    std::memcpy(&value, program_.memory + std::size_t{word} * 8, 8);
    return value;
}

void explorer::start_schedule() {
    for (const std::uint32_t word : used_words_) words_[word] = word_state{};
    used_words_.clear();
    events_.clear();
    depth_ = sleep_ = jumps_ = 0;
    previous_ = no_fiber;
    preemptions_ = 0;
    time_ = jump_ns;
    program_.reset();
    for (std::size_t id = 0; id < lanes_.size(); ++id) {
        auto& lane = lanes_[id];
        lane.history = id + 1;
        lane.run.restart(&explorer::fiber_body, this);
        lane.at = phase::local;
        lane.seen = {};
        lane.done = lane.impatient = 0;
        lane.waited_for_one = false;
        lane.watch.clear();
    }
}

void explorer::resume(std::uint32_t id) {
    running_ = id;
    lanes_[id].run.enter();
    running_ = no_fiber;
}

// What a fiber does between two accesses is its own business, so it is done at once.
void explorer::run_locals() {
    for (std::uint32_t id = 0; id < lanes_.size(); ++id) {
        if (lanes_[id].at == phase::local && violation_.empty()) resume(id);
    }
}

std::uint32_t explorer::enabled_fibers() const {
    std::uint32_t enabled = 0;
    for (std::uint32_t id = 0; id < lanes_.size(); ++id)
        if (lanes_[id].at == phase::at_access) enabled |= bit(id);
    return enabled;
}

bool explorer::lanes_finished() const {
    for (std::size_t id = 0; id + program_.helpers < lanes_.size(); ++id)
        if (lanes_[id].at != phase::finished) return false;
    return true;
}

// Everything so far happened before everything from now on.
bool explorer::wake_by_time() {
    if (++jumps_ > max_jumps) return false;
    time_ += jump_ns;
    clock all{};
    for (const auto& lane : lanes_)
        for (std::uint32_t i = 0; i < max_fibers; ++i) all[i] = std::max(all[i], lane.seen[i]);
    for (auto& lane : lanes_) {
        lane.seen = all;
        lane.history = mix(lane.history, time_);
        if (lane.at != phase::blocked) continue;
        lane.at = phase::local;
        lane.impatient = impatient_pauses;
    }
    return true;
}

// True: the schedule ran to its end (or to a violation).
bool explorer::run_schedule() {
    start_schedule();
    for (;;) {
        run_locals();
        if (!violation_.empty()) return true;
        const std::uint32_t enabled = enabled_fibers();
        if (enabled == 0) {
            if (lanes_finished()) {
                program_.check();
                ends_.insert(contents_.look(program_.memory, program_.memory_bytes));
                return true;
            }
            if (!wake_by_time()) violation("a fiber waits for ever");
            continue;
        }
        if (events_.size() >= max_events) violation("a fiber never stops");
        if (!violation_.empty()) return true;
        if (!choose(enabled)) return false;
        execute();
    }
}

// Where each fiber is follows from its history; the contents of the memory too, as far as fibers
// write them by their accesses alone.
std::uint64_t explorer::state_key() {
    std::uint64_t key = contents_.look(program_.memory, program_.memory_bytes);
    for (const auto& lane : lanes_) key = mix(key, lane.history);
    return key;
}

// Chooses the fiber that runs next: as the node says in the part that is repeated, else by a new
// node. False: every fiber that could run sleeps, or the exploration went on from here before.
bool explorer::choose(std::uint32_t enabled) {
    if (depth_ < nodes_.size()) return true;
    const std::uint32_t awake = enabled & ~sleep_;
    if (awake == 0) return false;
    node fresh{enabled, sleep_, 0, 0, 0, previous_, preemptions_};
    const bool free_switch = previous_ == no_fiber || (enabled & bit(previous_)) == 0;
    const bool stay = previous_ != no_fiber && (awake & bit(previous_)) != 0;
    fresh.chosen = stay ? previous_ : static_cast<std::uint32_t>(__builtin_ctz(awake));
    fresh.todo = bit(fresh.chosen);
    if (limits_.preemptions >= 0) {
        if (free_switch || preemptions_ < limits_.preemptions) fresh.todo = enabled;
    }
    // Where there is nothing to choose, the way leads to the next choice and is met there.
    if (remembers() && (fresh.todo & (fresh.todo - 1)) != 0 &&
        !states_.enter(state_key(), free_switch ? no_fiber : previous_,
                       static_cast<std::uint32_t>(preemptions_)))
        return false;
    nodes_.push_back(fresh);
    return true;
}

// Joins the next access of `id` and those that it follows to what the fiber has done. Loads of one
// word have no order among each other, so theirs are summed up.
void explorer::record_history(std::uint32_t id) {
    lane_state& lane = lanes_[id];
    word_state& word = words_[lane.next.word];
    const bool is_write = lane.next.is_write;
    lane.history = mix(lane.history, std::uint64_t{lane.next.word} * 2 + (is_write ? 1 : 0));
    lane.history = mix(lane.history, word.write_history);
    if (!is_write) {
        word.read_history += lane.history;
        return;
    }
    lane.history = mix(lane.history, word.read_history);
    word.write_history = lane.history;
    word.read_history = 0;
}

// Notes which earlier accesses the next access of `id` follows from. Complete mode alone needs it:
// with a bound, every order within it is tried.
void explorer::record_order(std::uint32_t id) {
    lane_state& lane = lanes_[id];
    const bool is_write = lane.next.is_write;
    word_state& word = words_[lane.next.word];
    for (std::uint32_t i = 0; i < max_fibers; ++i)
        lane.seen[i] = std::max(lane.seen[i], is_write ? word.accesses[i] : word.writes[i]);
    lane.seen[id] = lane.done;
    for (std::uint32_t i = 0; i < max_fibers; ++i) {
        word.accesses[i] = std::max(word.accesses[i], lane.seen[i]);
        if (is_write) word.writes[i] = std::max(word.writes[i], lane.seen[i]);
    }
    (is_write ? word.last_write : word.last_read)[id] =
        static_cast<std::uint32_t>(events_.size()) + 1;
}

void explorer::execute() {
    const node& at = nodes_[depth_];
    const std::uint32_t id = at.chosen;
    lane_state& lane = lanes_[id];
    const access step = lane.next;
    touch(step.word);
    ++lane.done;
    if (complete()) {
        compare_with_past(id);
        record_order(id);
    }
    if (remembers()) record_history(id);
    events_.push_back({step, id, lane.done, value_of(step.word), 0, lane.seen});

    if (complete()) {
        sleep_ = 0;
        for (std::uint32_t other = 0; other < lanes_.size(); ++other)
            if (other != id && lanes_[other].at == phase::at_access &&
                !lanes_[other].next.conflicts(step))
                sleep_ |= bit(other) & (at.sleep | at.done);
    } else if (at.previous != no_fiber && at.previous != id &&
               (at.enabled & bit(at.previous)) != 0) {
        preemptions_ = at.preemptions + 1;
    }

    ++depth_;
    previous_ = id;
    resume(id);
    event& done = events_.back();
    done.after = value_of(step.word);
    if (done.after != done.before) wake_watchers(step.word, id);
}

void explorer::wake_watchers(std::uint32_t word, std::uint32_t by) {
    words_[word].changes[by] += 1;
    words_[word].changes[max_fibers] += 1;
    for (std::uint32_t id = 0; id < lanes_.size(); ++id) {
        if (id == by || lanes_[id].at != phase::blocked) continue;
        for (const watched& w : lanes_[id].watch)
            if (w.word == word) lanes_[id].at = phase::local;
    }
}

// The fiber is about to make its access: for every earlier access that it conflicts with and does
// not follow from, the other order must be tried too.
void explorer::compare_with_past(std::uint32_t id) {
    const lane_state& lane = lanes_[id];
    const word_state& word = words_[lane.next.word];
    for (std::uint32_t other = 0; other < lanes_.size(); ++other) {
        if (other == id) continue;
        std::uint32_t last = word.last_write[other];
        if (lane.next.is_write) last = std::max(last, word.last_read[other]);
        if (last != 0 && events_[last - 1].stamp > lane.seen[other]) add_race(last - 1, id);
    }
}

// Of the events after `first` that do not follow from it, and the next access of `id`: which fibers
// could begin? A fiber that waited when `first` happened may have been let go by it. Such a fiber
// is told apart: `waited` turns true then.
std::uint32_t explorer::beginners(std::uint32_t first, std::uint32_t id, bool& waited) const {
    const std::uint32_t enabled = nodes_[first].enabled;
    const auto follows = [](const clock& seen, const event& e) { return e.stamp <= seen[e.by]; };
    std::array<std::uint32_t, max_fibers> first_of{};  // event index, 0: none
    std::uint32_t seen_mask = 0, begin = 0;
    const auto consider = [&](std::uint32_t by, const clock& seen) {
        if ((seen_mask & bit(by)) != 0) return;
        seen_mask |= bit(by);
        waited = waited || (enabled & bit(by)) == 0;
        bool is_first = true;
        for (std::uint32_t other = 0; other < lanes_.size(); ++other)
            if (other != by && first_of[other] != 0)
                is_first = is_first && !follows(seen, events_[first_of[other]]);
        if (is_first) begin |= bit(by);
    };
    for (auto i = first + 1; i < events_.size(); ++i) {
        const event& e = events_[i];
        if (follows(e.seen, events_[first])) continue;
        consider(e.by, e.seen);
        if (first_of[e.by] == 0) first_of[e.by] = i;
    }
    const access next = lanes_[id].next;
    clock seen = lanes_[id].seen;
    const word_state& word = words_[next.word];
    const clock& past = next.is_write ? word.accesses : word.writes;
    for (std::uint32_t i = 0; i < max_fibers; ++i) seen[i] = std::max(seen[i], past[i]);
    consider(id, seen);
    return begin & enabled;
}

void explorer::add_race(std::uint32_t event_index, std::uint32_t id) {
    node& before = nodes_[event_index];
    if ((before.enabled & bit(id)) == 0) {
        // It waited then. If it waited for this very word alone, only a conflicting access could
        // have let it go, and the order of those two is tried on its own account.
        if (!lanes_[id].waited_for_one || lanes_[id].only_word != events_[event_index].step.word)
            before.todo |= before.enabled;
        return;
    }
    bool waited = false;
    const std::uint32_t begin = beginners(event_index, id, waited);
    if (waited || begin == 0) before.todo |= before.enabled;
    else if ((begin & (before.todo | before.sleep)) == 0)
        before.todo |= (begin & bit(id)) != 0 ? bit(id) : begin & (0u - begin);
}

// Moves to the next schedule that is still to be tried; false if there is none.
bool explorer::next_schedule() {
    while (!nodes_.empty()) {
        node& last = nodes_.back();
        last.done |= bit(last.chosen);
        const std::uint32_t left = last.todo & last.enabled & ~last.done & ~last.sleep;
        if (left != 0) {
            last.chosen = static_cast<std::uint32_t>(__builtin_ctz(left));
            return true;
        }
        nodes_.pop_back();
    }
    return false;
}

outcome explorer::run() {
    active = this;
    states_.clear();
    ends_.clear();
    outcome out;
    bool more = true;
    while (more && out.schedules < limits_.schedules && violation_.empty()) {
        run_schedule() ? ++out.schedules : ++out.cut;
        if (violation_.empty()) more = next_schedule();
    }
    out.complete = !more && violation_.empty();
    out.violation = violation_;
    out.ends = ends_.size();
    if (!violation_.empty()) out.trace = describe();
    active = nullptr;
    return out;
}

std::string explorer::describe() const {
    std::ostringstream text;
    for (const event& e : events_) {
        text << "fiber " << e.by << (e.step.is_write ? " writes " : " loads  ")
             << (program_.name_of ? program_.name_of(std::size_t{e.step.word} * 8)
                                  : std::to_string(e.step.word))
             << ' ' << std::hex << e.before;
        if (e.after != e.before) text << " -> " << e.after;
        text << std::dec << '\n';
    }
    return text.str();
}

}  // namespace explore
