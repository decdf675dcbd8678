// Breadth-first through every state that can be reached; the story of the first wrong one, which is
// a shortest one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "penstock/base/hash.hpp"

namespace penstock::consistency::model {

// Two states of one fingerprint would be taken for one: of 10 million states, with a chance of one
// in 10^24.
struct fingerprint {
    std::uint64_t low = 0, high = 0;
    bool operator==(const fingerprint& other) const {
        return low == other.low && high == other.high;
    }
    bool operator<(const fingerprint& other) const {
        return low != other.low ? low < other.low : high < other.high;
    }
};

// Open addressing, for a set of nodes spends two thirds of a search on waiting for memory. The
// fingerprint of zeros marks a free place.
class fingerprint_set {
public:
    // True if it was not there.
    bool insert(const fingerprint& print) {
        if (4 * ++count_ > 3 * places_.size()) grow();
        if (put(print)) return true;
        --count_;
        return false;
    }

private:
    bool put(const fingerprint& print) {
        std::size_t i = print.low & (places_.size() - 1);
        for (; !(places_[i] == fingerprint{}); i = (i + 1) & (places_.size() - 1))
            if (places_[i] == print) return false;
        places_[i] = print;
        return true;
    }
    void grow() {
        std::vector<fingerprint> old(2 * places_.size());
        old.swap(places_);
        for (const fingerprint& print : old)
            if (!(print == fingerprint{})) put(print);
    }

    std::vector<fingerprint> places_ = std::vector<fingerprint>(1024);
    std::size_t count_ = 0;
};

// Moves has each(state, emit): emit(next state, a call that tells what happened, what is wrong with
// that or nullptr); and wrong(state): a text or nullptr. State has normalize(), and
// each_part(naming, act), which gives every number that tells states apart. With Moves::symmetric
// the moves do not depend on the names of devices; then states that differ in these names only are
// visited once.
template <typename State, typename Moves>
class search {
public:
    // Empty, or what is wrong and how it came about.
    std::string run(const Moves& moves, State first) {
        visit(
            std::move(first), 0, [] { return std::string(); }, nullptr, moves);
        for (at_ = 0; !open_.empty() && found_.empty(); ++at_) {
            const State here = open_.front();
            open_.pop_front();
            moves.each(here, [&](const State& next, const auto& label, const char* wrong) {
                ++moved_;
                visit(next, static_cast<std::uint32_t>(at_), label, wrong, moves);
            });
        }
        return found_;
    }
    [[nodiscard]] std::size_t states() const { return arrivals_.size(); }
    [[nodiscard]] std::size_t moves() const { return moved_; }
    // How many states there are if names of devices tell them apart.
    [[nodiscard]] std::size_t named_states() const { return named_; }

private:
    struct arrival {
        std::uint32_t from;
        std::uint32_t label;
    };

    template <typename Label>
    void visit(State next, std::uint32_t from, const Label& label, const char* wrong,
               const Moves& moves) {
        next.normalize();
        if (!known_.insert(print_of(next)) || !found_.empty()) return;
        named_ += namings_of(next);
        arrivals_.push_back(
            {from,
             names_.try_emplace(label(), static_cast<std::uint32_t>(names_.size())).first->second});
        if (wrong == nullptr) wrong = moves.wrong(next);
        if (wrong != nullptr) found_ = std::string(wrong) + story();
        open_.push_back(std::move(next));
    }

    static fingerprint print_of(const State& state) {
        if constexpr (!Moves::symmetric) return print_of(state, State::own_names());
        fingerprint least{UINT64_MAX, UINT64_MAX};
        State::each_naming(
            [&](const auto& names) { least = std::min(least, print_of(state, names)); });
        return least;
    }
    // How many states it stands for.
    static std::size_t namings_of(const State& state) {
        if constexpr (!Moves::symmetric) return 1;
        std::vector<fingerprint> prints;
        State::each_naming([&](const auto& names) { prints.push_back(print_of(state, names)); });
        std::sort(prints.begin(), prints.end());
        return static_cast<std::size_t>(std::unique(prints.begin(), prints.end()) - prints.begin());
    }
    static fingerprint print_of(const State& state, const typename State::naming& names) {
        std::uint64_t a = 1, b = 2, word = 0;
        int filled = 0;
        const auto take = [&] {
            a = mix64(a ^ word);
            b = mix64(b + word) + a;
            word = 0, filled = 0;
        };
        state.each_part(names, [&](std::uint64_t part) {
            word = word << 8 | part;  // every part is below 256
            if (++filled == 8) take();
        });
        take();
        return {a, b};
    }

    [[nodiscard]] std::string story() const {
        std::unordered_map<std::uint32_t, std::string> name;
        for (const auto& [text, number] : names_) name[number] = text;
        std::string out;
        for (std::size_t i = arrivals_.size() - 1; i != 0; i = arrivals_[i].from)
            out = "\n  " + name[arrivals_[i].label] + out;
        return out;
    }

    fingerprint_set known_;
    std::unordered_map<std::string, std::uint32_t> names_;
    std::deque<arrival> arrivals_;  // a vector would need twice the memory when it grows
    std::deque<State> open_;
    std::size_t at_ = 0, moved_ = 0, named_ = 0;
    std::string found_;
};

}  // namespace penstock::consistency::model
