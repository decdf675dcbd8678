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
// Another process of this machine may have been told the same facts earlier (rest_memory): then the
// rest began with its answer. Nothing else of it is believed: the last question is ours.
//
// What is relied on: no clock that dates changes of this file system is set back by more than the
// grain, or lags behind another one by that much, and none runs at half speed.
//
// linux_environment() asks the one of its process (one_of_process). Thread-safe. Forgets files when
// there are many; such a file has to rest once more.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "os/env.hpp"
#include "penstock/base/hash.hpp"

namespace penstock::host {

// Which facts another process of this machine knows. Asked by several threads at once.
class rest_memory {
public:
    static constexpr std::int64_t not_known = INT64_MAX;

    virtual ~rest_memory() = default;
    // When at the latest the file system had told the other process these facts, and none of this
    // file since that differ; by the clock of the caller. If it did not know them it does from now
    // on: the caller was told them. Waits a short time at most.
    virtual std::int64_t known_since_ns(const file_identity& facts) noexcept = 0;
};

class rested_files {
public:
    // Remembers between `most_files` and twice as many.
    explicit rested_files(std::size_t most_files = 65536) : most_files_(most_files) {}

    // From now on it is asked of facts that are new here.
    void ask_also(std::shared_ptr<rest_memory> memory) {
        const std::lock_guard lock(mutex_);
        others_.push_back(std::move(memory));
    }

    // The file system answered `now` to a question that was asked at `asked_ns` and answered at
    // `answered_ns`, by a clock that only moves forward. Gives for how long at least it has
    // answered so; 0 where there is no memory to remember it.
    std::int64_t note(const file_identity& now, std::int64_t asked_ns,
                      std::int64_t answered_ns) noexcept try {
        const key file{now.device, now.inode};
        std::unique_lock lock(mutex_);
        std::int64_t since_ns = known_since_ns(file, now);
        if (since_ns == rest_memory::not_known) {
            const std::vector<std::shared_ptr<rest_memory>> others = others_;
            lock.unlock();
            since_ns = answered_ns;
            for (const auto& other : others)
                since_ns = std::min(since_ns, other->known_since_ns(now));
            lock.lock();
            since_ns = std::min(since_ns, known_since_ns(file, now));
        }
        if (young_.size() >= most_files_ && !young_.contains(file)) {
            old_ = std::move(young_);
            young_ = {};
        }
        young_[file] = {now, since_ns};
        // Of two questions at once the one may have been asked before the other was answered.
        return std::max<std::int64_t>(asked_ns - since_ns, 0);
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

    [[nodiscard]] std::int64_t known_since_ns(const key& file,
                                              const file_identity& facts) const {  // lock held
        auto known = young_.find(file);
        if (known == young_.end() && (known = old_.find(file)) == old_.end())
            return rest_memory::not_known;
        return known->second.facts == facts ? known->second.since_ns : rest_memory::not_known;
    }

    const std::size_t most_files_;
    std::mutex mutex_;
    files young_, old_;
    std::vector<std::shared_ptr<rest_memory>> others_;
};

}  // namespace penstock::host
