// For how long files of network file systems have rested: since when their file system has given
// the same facts whenever it was asked.
//
// Why: equal facts prove equal bytes only once the times have moved on, since two changes within
// one tick of a server's clock leave equal times. Whether they have moved on cannot be told from
// our clock, which may differ from the server's by any amount. Two equal answers tell it: when the
// first was given the server's clock was at the change time, at least. If the second question was
// asked `grain` later by our monotonic clock, the server's clock is past that time by about as
// much, and a change from then on leaves another time.
//
// What is relied on: no clock that dates changes of this file system is set back by more than the
// grain, or lags behind another one by that much, and none runs at half speed.
//
// Thread-safe. Forgets files when there are many; such a file has to rest once more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "os/env.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::host {

class rested_files {
public:
    // Remembers between `most_files` and twice as many.
    explicit rested_files(std::size_t most_files = 65536) : most_files_(most_files) {}

    // The file system answered `now` to a question that was asked at `asked_ns` and answered at
    // `answered_ns`, by a clock that only moves forward. Gives for how long at least it has
    // answered so; 0 where there is no memory to remember it.
    std::int64_t note(const file_identity& now, std::int64_t asked_ns,
                      std::int64_t answered_ns) noexcept try {
        const key file{now.device, now.inode};
        const std::lock_guard lock(mutex_);
        const auto known = young_.find(file);
        const rest* before = known != young_.end() ? &known->second : nullptr;
        if (before == nullptr)
            if (const auto old = old_.find(file); old != old_.end()) before = &old->second;
        const bool rests = before != nullptr && before->facts == now;
        const rest noted = rests ? *before : rest{now, answered_ns};
        if (known != young_.end()) {
            known->second = noted;
        } else {
            if (young_.size() >= most_files_) {
                old_ = std::move(young_);
                young_ = {};
            }
            young_.emplace(file, noted);
        }
        // Of two questions at once the one may have been asked before the other was answered.
        return rests && asked_ns > noted.since_ns ? asked_ns - noted.since_ns : 0;
    } catch (...) {
        return 0;
    }

private:
    struct key {
        std::uint64_t device, inode;
        bool operator==(const key&) const = default;
    };
    struct hash_of_key {
        std::size_t operator()(const key& file) const {
            return mix64(file.inode ^ file.device << 32);
        }
    };
    struct rest {
        file_identity facts;
        std::int64_t since_ns = 0;
    };
    using files = std::unordered_map<key, rest, hash_of_key>;

    const std::size_t most_files_;
    std::mutex mutex_;
    files young_, old_;
};

}  // namespace penstock::host
