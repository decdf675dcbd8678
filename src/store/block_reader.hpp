// Blocks of files, from a store between nodes where it has them: worker threads ask the store, read
// whole blocks that it does not have from the file, and put these. Service threads take pages from
// blocks that came, and wait for none: they look again until a block is there, or read the file
// (service/store_blocks.cpp).
//
// A file has blocks in the version that it had when it was opened, and only while its facts say
// that it is in this version and settled (may_change_unseen). A block is put only if that was so
// before it was read and after. Its name is of a path that led to the file in this version at some
// moment (version_place).
//
// The reader leaves a store alone that fails: after three failures one after the other for some
// seconds, and after that, until it works again, at each failure. Meanwhile files are read as
// without a store. Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "files/shared_handle.hpp"
#include "hub/hub.hpp"
#include "os/env.hpp"
#include "store/block_object.hpp"
#include "store/version_place.hpp"

namespace penstock::host {

struct block_settings {
    std::string space;                         // options::block_store_namespace
    std::uint64_t wait_ns = 50'000'000;        // for the answer to a get
    bool local_files = false;                  // files that change on this machine only, too
    trust_mode trust = trust_mode::automatic;  // options::trust_times
    std::uint32_t workers = 8;                 // each with a store object of its own
    std::uint32_t most_blocks = 32;            // kept here, of 2 MiB
    std::uint64_t pause_ns = 10'000'000'000;
    // For so long the store is not asked again for a block that it does not have and will not get.
    std::uint64_t absent_ns = 1'000'000'000;
    bool checks_sums = true;  // false: for a test that shows what the sums are good for
    std::function<void(const std::string&)> say = [](const std::string&) {};
};

struct block_counters {
    std::atomic<std::uint64_t> hits{0}, misses{0}, errors{0}, bad{0}, bytes{0}, puts{0}, pauses{0},
        file_reads{0}, file_read_bytes{0};
};

// A block on its way. Its bytes are there as long as one holds it.
class block_fetch {
public:
    enum class state : std::uint8_t { under_way, there, failed };
    // Acquire: pairs with the release of the worker; the bytes are there.
    [[nodiscard]] state look() const { return state_.load(std::memory_order_acquire); }
    [[nodiscard]] std::span<const std::byte> bytes() const { return {memory_.get(), size_}; }

private:
    friend class block_reader;
    std::shared_ptr<const std::byte[]> memory_;
    std::uint64_t size_ = 0;
    bool reads_file_ = false;  // what the store does not have; the reader's mutex guards it
    std::atomic<state> state_{state::under_way};
};

class block_reader {
public:
    using store_maker = std::function<std::unique_ptr<block_store>()>;

    block_reader(environment& env, block_settings settings, const store_maker& make_store);
    ~block_reader();  // waits for what the workers do just now
    block_reader(const block_reader&) = delete;
    block_reader& operator=(const block_reader&) = delete;

    // Are blocks of this file looked for at all?
    [[nodiscard]] bool serves(const shared_handle& file) const {
        return settings_.local_files || file.changes_elsewhere();
    }
    // True: these bytes are not in the memory of the operating system, or that cannot be told; and
    // the store is not left alone now.
    [[nodiscard]] bool wants(const shared_handle& file, std::uint64_t offset,
                             std::uint64_t bytes) const {
        return !is_paused() && serves(file) && env_.in_page_cache(file.fd(), offset, bytes) <= 0;
    }
    // Block `number` of an open file that had this version when it was opened. Null: read the file;
    // the workers have enough to do, or the store is left alone.
    // `is_settled`: no other state of the file has these facts. If not, a block that the store does
    // not have comes from nowhere, since what is read now must not get the name of the version.
    std::shared_ptr<block_fetch> fetch(const std::shared_ptr<shared_handle>& file,
                                       const file_identity& version, bool is_settled,
                                       std::uint64_t number);
    // A fetch that takes longer than this is not waited for any more.
    [[nodiscard]] std::uint64_t most_wait_ns() const { return settings_.wait_ns + 450'000'000; }

    [[nodiscard]] const block_counters& counters() const { return counters_; }
    [[nodiscard]] bool is_paused() const;

private:
    struct block_id {
        std::uint64_t device, inode, size_bytes;
        std::int64_t modified_ns, changed_ns;
        std::uint64_t number;
        auto operator<=>(const block_id&) const = default;
    };
    struct job {
        std::shared_ptr<block_fetch> fetch;
        std::shared_ptr<block_fetch> known;  // the block, if only its file has to be looked at
        std::shared_ptr<shared_handle> file;
        file_identity version;
        bool is_settled = false;
        std::uint64_t number = 0;
    };
    struct kept_block {
        std::shared_ptr<block_fetch> fetch;
        std::uint64_t used = 0, checked_ns = 0;
    };
    struct named_block {
        version_place place;
        block_key key;
    };
    enum class source { store, file, neither };

    void end_workers();
    void work(block_store& store);
    void bring(block_store& store, const job& j);
    source read(block_store& store, const job& j, const named_block& block, std::byte* to,
                std::uint64_t bytes, bool& was_bad);
    void put(block_store& store, const block_key& key, std::span<const std::byte> object,
             bool was_bad);
    bool would_read_file(const job& j);
    bool may_read_file(const job& j);
    [[nodiscard]] bool is_as_opened(const job& j) const;
    [[nodiscard]] bool name_of(const job& j, named_block& out) const;
    void drop_oldest();  // lock held
    void count_failure(const char* verb, std::int64_t code);

    environment& env_;
    const block_settings settings_;
    block_counters counters_;
    std::atomic<std::uint32_t> failures_{0};  // one after the other
    std::atomic<std::uint64_t> paused_until_ns_{0};
    std::atomic<bool> said_{false};

    std::mutex mutex_;  // guards everything below
    std::condition_variable wake_;
    std::deque<job> jobs_;
    std::map<block_id, kept_block> blocks_;
    std::uint64_t uses_ = 0;
    bool stop_ = false;
    std::vector<std::unique_ptr<block_store>> stores_;
    std::vector<std::thread> threads_;
};

}  // namespace penstock::host
