// The host's half of the file table: the files that are open or remembered, and the rules for
// opening more.
//
// A slot stands for one version of one file: (device, inode, size, times). Opening an unchanged
// file finds its slot again, whatever name leads there; opening a changed one takes a fresh slot
// and a fresh table. Slots and tables come back only when the device takes a closed file down
// (retire), since only the device knows its references.
//
// File handles are few and files may be many: the registry keeps at most `max_handles` open and
// opens the others again by path when they are read; if that path leads elsewhere by then, the read
// fails with -ESTALE. Of a file whose name was taken away here the handle is kept, for up to half
// of `max_handles` such files.
//
// A name without links and without ".." is its own real path: whether it may be opened is judged by
// its letters, and the file is opened with the kernel's word that no link was in the way. Every
// other name, and every error, goes the long way (look_up).
//
// Pages of a file are also lent to readers that open nothing (peers/cached_reads.hpp). Meanwhile
// its slot and table go to no other file: if the device takes it down, they come back when the last
// loan ends.
//
// Thread-safe; system calls are made outside the lock.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hub/hub.hpp"
#include "os/env.hpp"
#include "files/extent_allocator.hpp"
#include "files/file_writer.hpp"
#include "files/shared_handle.hpp"
#include "penstock/base/hash.hpp"
#include "penstock/engine/layout.hpp"
#include "penstock/error.hpp"

namespace penstock::host {

// A mutex whose waiters look again for a moment before they sleep: for locks that are held for less
// than a microsecond and that all service threads want. With one that puts waiters to sleep at
// once, sixteen threads that opened files took eight times as long for each as one thread alone:
// what they waited for was being woken (bench/results/h100/2026-11-24-opens.txt).
//
// A lockable for std::lock_guard. glibc's own kind of mutex; elsewhere an ordinary one.
class adaptive_mutex {
public:
    adaptive_mutex() {
        pthread_mutexattr_t kind;
        pthread_mutexattr_init(&kind);
#if defined(__GLIBC__)
        pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ADAPTIVE_NP);
#endif
        pthread_mutex_init(&mutex_, &kind);
        pthread_mutexattr_destroy(&kind);
    }
    ~adaptive_mutex() { pthread_mutex_destroy(&mutex_); }
    adaptive_mutex(const adaptive_mutex&) = delete;
    adaptive_mutex& operator=(const adaptive_mutex&) = delete;

    void lock() { pthread_mutex_lock(&mutex_); }
    void unlock() { pthread_mutex_unlock(&mutex_); }

private:
    pthread_mutex_t mutex_;
};

// The slots whose files have a handle of the host, for a hand that goes round them in search of one
// to park. Slots without one are not met: of tens of thousands of files most may be parked. Not
// thread-safe: the file registry's lock guards it.
class handle_round {
public:
    explicit handle_round(std::size_t slots) : place_(slots, none) {}

    [[nodiscard]] std::size_t size() const { return order_.size(); }

    // A slot that is not in yet.
    void add(std::uint32_t slot) {
        place_[slot] = static_cast<std::uint32_t>(order_.size());
        order_.push_back(slot);
    }

    // A slot that is in. The last takes its place, and is next if that is where the hand is.
    void remove(std::uint32_t slot) {
        const std::uint32_t at = place_[slot];
        order_[at] = order_.back();
        place_[order_[at]] = at;
        order_.pop_back();
        place_[slot] = none;
        if (at + 1 == hand_) --hand_;
    }

    // Where the hand comes next; there must be one.
    std::uint32_t next() {
        if (hand_ >= order_.size()) hand_ = 0;
        return order_[hand_++];
    }

private:
    static constexpr std::uint32_t none = UINT32_MAX;
    std::vector<std::uint32_t> order_;
    std::vector<std::uint32_t> place_;  // of each slot in it
    std::uint32_t hand_ = 0;
};

struct registry_limits {
    std::uint32_t file_slots = 0;
    std::uint32_t page_shift = 0;
    std::uint32_t leaf_shift = 0;
    std::uint64_t word_count = 0;  // page-word arena
    std::uint64_t path_units = 0;  // path arena, 8-byte units
    std::size_t max_handles = 0;
    direct_mode direct = direct_mode::off;
    bool writable = false;             // may files be opened for writing?
    std::uint64_t growth_entries = 0;  // leaves by which a file may grow while it is open
};

// A slot, in one of its lives; generation 0: none.
struct slot_life {
    std::uint32_t slot = 0, generation = 0;
};

struct written_file {
    std::string path;
    std::uint64_t size_bytes = 0;  // of the file as the operating system has it
};

struct open_reply {
    std::int64_t result = 0;
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
    file_identity identity;
    std::uint64_t table = 0;
    bool two_level = false;
    std::uint32_t path_extent = 0;  // + 1; 0: none
    std::uint32_t epoch = 0;        // the how many-th answer to an open of this file
};

// What handle_of gives as the size of a file that is being written: the device knows it, and the
// host does not.
inline constexpr std::uint64_t size_of_written = INT64_MAX;

class file_registry {
public:
    // `shared` hears which files are known here. `say` takes lines for the log, from any thread.
    file_registry(environment& env, hub& shared, const registry_limits& limits,
                  std::function<void(const std::string&)> say = {});
    ~file_registry();
    [[nodiscard]] hub& shared() const { return hub_; }

    // Sets the roots; each must be a directory. Relative names start at the first. Once, before
    // anything is opened.
    status set_roots(const std::vector<std::string>& roots);
    // Lets this one file be opened wherever it lies. Also checks that it is a readable regular
    // file. With `flags` for writing it may be written as well; with engine::flag_create it is made
    // if it is not there.
    int allow(const std::string& path, std::uint32_t flags = 0);

    // Take names away, or give a file another. With `check_roots` only below the roots, and what
    // the host allowed to be written.
    int unlink(const std::string& name, bool check_roots);
    int rename(const std::string& from, const std::string& to, bool check_roots);

    // Serves the device's requests. -ENFILE: no slot left; engine::no_table_room; taking down a
    // closed file may help. `old_extent` is a path extent + 1 of `old_units` to take back first, or
    // 0. A file that is opened for writing keeps its slot, whatever its size and times say, until
    // it is settled. `open_now` is what the device has open by this name: if the name still leads
    // to that file, it is that version.
    open_reply open(const std::string& name, std::uint64_t old_extent, std::uint64_t old_units,
                    std::uint32_t flags = 0, slot_life open_now = {});
    // The device closed a written file, and all of it is written back: what the cache has of it
    // counts as old from now on, since the device's own changes cannot be told from those of other
    // writers. Unless an open was answered since, which `epoch` tells.
    void settle(std::uint32_t slot, std::uint32_t generation, std::uint64_t epoch);
    // The writer of the file. -EBADF: it was not opened for writing.
    int writer_of(std::uint32_t slot, std::uint32_t generation, std::shared_ptr<file_writer>& out);
    // Takes back what was not taken of an answer to open; packed as in engine/lost_open.hpp. What
    // is not out is ignored.
    void give_back_path(std::uint64_t lost_extent);
    std::int64_t retire(std::uint32_t slot, std::uint32_t generation);
    // `kind` is an engine::leaf_kind.
    std::int64_t leaf(std::uint32_t slot, std::uint32_t generation, std::uint64_t kind,
                      std::uint64_t number, std::uint64_t& word_index);

    // The handle to read from and the size at open. Negative errno: not a live file, or it cannot
    // be opened again.
    int handle_of(std::uint32_t slot, std::uint32_t generation, std::shared_ptr<shared_handle>& out,
                  std::uint64_t& size_bytes);

    // Grows whenever a handle that handle_of gave out is parked or its file taken down: until then
    // it may be used again without asking. Acquire with the release of the change.
    [[nodiscard]] std::uint64_t handle_changes() const {
        return handle_changes_.load(std::memory_order_acquire);
    }

    // The slot whose pages are those of the file as it looks `now`, if no writer has it open
    // through this registry. Not if it may have changed without looking different. Ends with
    // end_loan, once no group looks at the slot's words for it any more.
    bool lend(const file_identity& now, slot_life& out);
    // Is it still so? Then no group can have changed a page of it since lend().
    bool is_lent_as_is(const slot_life& lent);
    void end_loan(const slot_life& lent);

    // For messages: where the file of a slot lies, or an empty string.
    std::string path_of(std::uint32_t slot, std::uint32_t generation);
    std::string path_in(std::uint32_t slot);  // whatever its life
    // Those that were opened for writing and are not settled.
    std::vector<written_file> written_files();
    [[nodiscard]] std::size_t live_files();
    [[nodiscard]] std::uint64_t free_path_units();

private:
    std::atomic<std::uint64_t> handle_changes_{0};

    struct entry {
        std::uint32_t generation = 0;
        bool live = false;
        // Changed so recently when opened that an equal identity proves nothing.
        bool uncertain = false;
        bool two_level = false;
        std::uint64_t table = 0;
        std::uint64_t table_words = 0;
        file_identity identity;
        std::string path;
        std::shared_ptr<shared_handle> handle;
        std::unordered_map<std::uint64_t, std::uint64_t> leaves;
        std::unordered_map<std::uint64_t, std::uint64_t> growth_leaves;
        std::uint64_t growth = 0;  // its directory; no growth: 0, and growth_words is 0 too
        std::uint64_t growth_words = 0;
        std::shared_ptr<file_writer> writer;  // null: not being written
        std::uint32_t epoch = 0;
        std::uint32_t loans = 0;
        bool used_lately = false;  // read since the parking hand last came by
        bool nameless = false;     // its handle could not be opened again by path
    };

    struct found_file {
        std::shared_ptr<shared_handle> handle;
        std::shared_ptr<shared_handle> writer;  // only of an open for writing
        file_facts facts;
        std::string path;
    };

    using handles = std::vector<std::shared_ptr<shared_handle>>;

    int look_up(const std::string& name, bool check_roots, found_file& out);
    int bring_home(found_file& file);
    int look_up_to_write(const std::string& name, bool check_roots, std::uint32_t flags,
                         found_file& out);
    // Where a name is, or is to be: a find handle for its directory, to be closed, and the rest of
    // the name.
    struct place {
        int directory = -1;
        std::string base, path;
    };
    int find_place(const std::string& name, bool check_roots, place& out);
    int create(const std::string& name, bool check_roots);
    void keep_without_name(const std::string& name);
    void note_rename(const file_identity& before, const file_identity& after,
                     const std::string& path);
    bool look_up_plain(const std::string& name, bool check_roots, found_file& out);
    int look_up_thoroughly(const std::string& name, bool check_roots, found_file& out);
    [[nodiscard]] bool permitted(const std::string& real_path, bool for_writing = false);
    static std::int64_t take_leaf(std::unordered_map<std::uint64_t, std::uint64_t>& leaves,
                                  std::uint64_t number, extent_allocator& words,
                                  std::uint64_t leaf_words, std::uint64_t& word_index);
    // These with the lock held. What is parked is added to `parked`, to be closed without it.
    open_reply enter(found_file& file, const slot_life& open_now, handles& parked);
    open_reply join(entry& e, std::uint32_t slot, const found_file& file);
    bool take_table(entry& e);
    void keep_handle(std::uint32_t slot, std::shared_ptr<shared_handle> handle, handles& parked);
    std::shared_ptr<shared_handle> take_handle(std::uint32_t slot);
    void give_back_slot(entry& e, std::uint32_t slot);
    entry* live_entry(std::uint32_t slot, std::uint32_t generation);  // lock held

    environment& env_;
    hub& hub_;
    const registry_limits limits_;
    read_settings reads_;
    int first_root_ = -1;
    std::string first_root_path_;     // its real path; written by set_roots only
    std::vector<std::string> roots_;  // likewise
    adaptive_mutex paths_mutex_;      // guards the next; never taken with the other
    extent_allocator paths_;
    adaptive_mutex mutex_;  // guards everything below
    std::set<std::string> allowed_, allowed_to_write_;
    std::vector<entry> entries_;
    std::vector<std::uint32_t> free_slots_;
    struct hash_of_key {
        std::size_t operator()(const std::pair<std::uint64_t, std::uint64_t>& key) const {
            return mix64(key.first * 31 + key.second);
        }
    };
    // (device, inode) -> slot of its newest version.
    std::unordered_map<std::pair<std::uint64_t, std::uint64_t>, std::uint32_t, hash_of_key>
        current_;
    extent_allocator words_;
    handle_round handles_;      // slots whose entries have one
    std::size_t nameless_ = 0;  // entries that are, which have handles
};

}  // namespace penstock::host
