// Two host threads that form one group, as two warps of a GPU form a block: so tests without a GPU
// see threads of one group that take different ways. Each collective call checks that both threads
// make the same one. On a GPU threads that differ there hang, or get each other's values.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <stdexcept>
#include <string>

#include "penstock/group/concept.hpp"
#include "penstock/group/lane.hpp"
#include "penstock/group/racing_lane.hpp"

namespace penstock::test {

// Where the two meet. A thread that meets the other in a different call throws, and so does the
// other.
class meeting {
public:
    // Returns what each of them gave.
    std::array<std::uint64_t, 2> meet(std::uint32_t rank, const char* call, std::uint64_t value) {
        std::unique_lock lock(mutex_);
        call_[rank] = call;
        given_[rank] = value;
        const std::uint64_t turn = turn_;
        if (++arrived_ == 2) {
            arrived_ = 0;
            apart_ = apart_ || std::strcmp(call_[0], call_[1]) != 0;
            told_ = given_;
            ++turn_;
            both_.notify_one();
        } else {
            both_.wait(lock, [&] { return turn_ != turn; });
        }
        if (apart_) throw std::logic_error(std::string("apart: ") + call_[0] + ", " + call_[1]);
        return told_;
    }

private:
    std::mutex mutex_;
    std::condition_variable both_;
    std::array<const char*, 2> call_{"", ""};
    std::array<std::uint64_t, 2> given_{}, told_{};
    std::uint64_t turn_ = 0;
    int arrived_ = 0;
    bool apart_ = false;
};

// A thread's side of the group.
class team {
public:
    team(meeting& at, std::uint32_t rank) : at_(&at), rank_(rank) {}

    [[nodiscard]] std::uint32_t size() const { return 2; }
    [[nodiscard]] std::uint32_t rank() const { return rank_; }
    [[nodiscard]] bool is_leader() const { return rank_ == 0; }
    void sync() const { at_->meet(rank_, "sync", 0); }
    // The last call of a thread that leaves: the other must leave too.
    void leave() const { at_->meet(rank_, "leave", 0); }
    template <typename T>
    [[nodiscard]] T broadcast(T value) const {
        static_assert(sizeof(T) <= 8);
        std::uint64_t sent = 0;
        std::memcpy(&sent, &value, sizeof value);
        sent = at_->meet(rank_, broadcasts[sizeof(T)], sent)[0];
        std::memcpy(&value, &sent, sizeof value);
        return value;
    }
    [[nodiscard]] bool all(bool flag) const {
        const auto flags = at_->meet(rank_, "all", flag ? 1 : 0);
        return flags[0] != 0 && flags[1] != 0;
    }
    [[nodiscard]] std::uint32_t home() const { return 7; }
    [[nodiscard]] std::uint64_t now_ns() const { return lane{}.now_ns(); }
    void pause(std::uint32_t looks) const { lane{}.pause(looks); }
    void wake(host_doorbell* bell) const { lane{}.wake(bell); }
    // As on a GPU, and under sanitizers too: else the engine has each thread pin for itself.
    static constexpr bool copies_race() { return true; }

    // Each thread has a half of every copy.
    void copy_out(std::byte* to, const std::byte* from, std::size_t bytes) const {
        halve(to, from, bytes, [](auto... half) { racing_lane{}.copy_out(half...); });
    }
    void copy_through(std::byte* to, const std::byte* from, std::size_t bytes) const {
        halve(to, from, bytes, [](auto... half) { racing_lane{}.copy_through(half...); });
    }
    void copy_in(std::byte* to, const std::byte* from, std::size_t bytes) const {
        halve(to, from, bytes, [](auto... half) { racing_lane{}.copy_in(half...); });
    }
    void copy_store(std::byte* to, const std::byte* from, std::size_t bytes) const {
        halve(to, from, bytes, [](auto... half) { racing_lane{}.copy_store(half...); });
    }
    void copy_written(std::byte* to, const std::byte* from, std::size_t bytes) const {
        halve(to, from, bytes, [](auto... half) { racing_lane{}.copy_written(half...); });
    }
    void copy_frame(std::byte* to, const std::byte* from, std::size_t bytes) const {
        halve(to, from, bytes, [](auto... half) { racing_lane{}.copy_frame(half...); });
    }
    void zero(std::byte* to, std::size_t bytes) const {
        const auto [begin, end] = half_of(bytes);
        if (end > begin) lane{}.zero(to + begin, end - begin);
    }

private:
    struct part {
        std::size_t begin, end;
    };
    [[nodiscard]] part half_of(std::size_t bytes) const {
        const std::size_t middle = bytes / 2 / 16 * 16;
        return rank_ == 0 ? part{0, middle} : part{middle, bytes};
    }
    template <typename Copy>
    void halve(std::byte* to, const std::byte* from, std::size_t bytes, const Copy& copy) const {
        const auto [begin, end] = half_of(bytes);
        if (end > begin) copy(to + begin, from + begin, end - begin);
    }

    // A broadcast of another size is another call.
    static constexpr std::array<const char*, 9> broadcasts{
        "", "broadcast 1", "", "", "broadcast 4", "", "", "", "broadcast 8"};
    meeting* at_;
    std::uint32_t rank_;
};

static_assert(group<team> && !narrow_group<team>);

}  // namespace penstock::test
