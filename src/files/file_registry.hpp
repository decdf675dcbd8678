// The file registry, the host's half of the file table: the files that are open or remembered, and
// the rules for opening more.
//
// A slot stands for one version of one file: (device, inode, size, times). Opening an unchanged
// file finds its slot again, under any name; opening a changed file takes a fresh slot and a fresh
// table. Slots and tables come back only when the device takes a closed file down (retire), since
// only the device knows its references.
//
// File handles are few and files may be many: the registry keeps at most `max_handles` handles
// open, and no more than its share of what all registries of the process may have, and opens a file
// without a handle again by path when it is read: by that of the last open or rename here. If that
// path leads to another file by then, the read fails with -ESTALE. If this registry took a file's
// name away, it keeps the file's handle, for up to half of `max_handles` such files. Those of
// closed files without a name it gives up soon (files/deleted_files.hpp).
//
// A name without links and without ".." is its own real path: the registry decides by its text
// whether it may be opened, and the kernel assures at the open that no link was in the way. Every
// other name, and every error, goes the long way (look_up).
//
// The registry also lends pages of a file to readers that open nothing (peers/cached_reads.hpp).
// Meanwhile the file's slot and table go to no other file: if the device takes the file down, they
// come back when the last loan ends.
//
// Thread-safe; system calls are made outside the lock.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "hub/hub.hpp"
#include "os/env.hpp"
#include "files/extent_allocator.hpp"
#include "files/file_writer.hpp"
#include "files/life_observer.hpp"
#include "files/shared_handle.hpp"
#include "files/write_watch.hpp"
#include "penstock/base/hash.hpp"
#include "penstock/engine/layout.hpp"
#include "penstock/error.hpp"

namespace penstock::host {

// A mutex whose waiters look again for a moment before they sleep: for locks that are held for less
// than a microsecond and that all service threads want. With a mutex that puts waiters to sleep at
// once, sixteen threads that opened files took eight times as long for each file as one thread
// alone: they mostly waited to be woken (bench/results/h100/2026-11-24-opens.txt).
//
// A lockable for std::lock_guard. With glibc it is glibc's own adaptive mutex; elsewhere an
// ordinary mutex.
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

// The slots whose files have a handle of the host, for a hand that goes round them in search of a
// handle to park. The hand does not meet slots without a handle: of tens of thousands of files most
// may be parked. Not thread-safe: the file registry's lock guards it.
class handle_round {
public:
    explicit handle_round(std::size_t slots) : place_(slots, none) {}

    [[nodiscard]] std::size_t size() const { return order_.size(); }

    // Adds a slot that is not in the round yet.
    void add(std::uint32_t slot) {
        place_[slot] = static_cast<std::uint32_t>(order_.size());
        order_.push_back(slot);
    }

    // Removes a slot that is in the round. The last slot takes its place, and is next if the hand
    // is there.
    void remove(std::uint32_t slot) {
        const std::uint32_t at = place_[slot];
        order_[at] = order_.back();
        place_[order_[at]] = at;
        order_.pop_back();
        place_[slot] = none;
        if (at + 1 == hand_) --hand_;
    }

    // For a walk beside the hand, which may miss slots that are moved meanwhile.
    [[nodiscard]] std::uint32_t slot_at(std::size_t place) const { return order_[place]; }

    // The next slot of the hand; the round must have a slot.
    std::uint32_t next() {
        if (hand_ >= order_.size()) hand_ = 0;
        return order_[hand_++];
    }

private:
    static constexpr std::uint32_t none = UINT32_MAX;
    std::vector<std::uint32_t> order_;
    std::vector<std::uint32_t> place_;  // of each slot in the round
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
    bool writable = false;                       // may files be opened for writing?
    std::uint64_t growth_entries = 0;            // leaves by which a file may grow while it is open
    std::uint64_t flat_pages = UINT64_MAX;       // a file of more pages has a directory and leaves
    std::uint64_t most_kept_bytes = UINT64_MAX;  // of a written file whose pages outlive its close
    trust_mode trust_times = trust_mode::automatic;
    std::size_t shared_handles = SIZE_MAX;  // of all registries of the hub together
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
    std::uint32_t epoch = 0;        // the number of this answer among those to opens of this file
};

// The size that handle_of gives for a file that is being written: the device knows the size, and
// the host does not.
inline constexpr std::uint64_t size_of_written = INT64_MAX;

class file_registry {
public:
    // `shared` is told which files are known here. `say` takes lines for the log, from any thread.
    file_registry(environment& env, hub& shared, const registry_limits& limits,
                  std::function<void(const std::string&)> say = {});
    ~file_registry();
    [[nodiscard]] hub& shared() const { return hub_; }

    // Sets the roots; each must be a directory. Relative names start at the first. Call it once,
    // before anything is opened.
    status set_roots(const std::vector<std::string>& roots);
    // Tells `observer` of the lives of files from now on. Call it once, before anything is opened;
    // the observer outlives the last request.
    void tell(life_observer& observer) { observer_ = &observer; }
    // Lets this one file be opened wherever it lies. Also checks that it is a readable regular
    // file. With `flags` for writing the file may be written as well; with engine::flag_create it
    // is made if it does not exist. Until the host takes the name away.
    int allow(const std::string& path, std::uint32_t flags = 0);

    // unlink takes a name away; rename gives a file another name. With `check_roots` this is
    // allowed only below the roots, and for files that the host allowed to be written.
    // `path` gets what after_unlink of another registry needs.
    int unlink(const std::string& name, bool check_roots, std::string* path = nullptr);
    // The host made the file by an exclusive open, and then it could not be opened: takes its name
    // away if it is still empty, so that the next such open does not meet it.
    void take_back_new(const std::string& name);
    // `done` gets what after_rename of another registry needs.
    struct renamed_file {
        bool is_known = false;  // the facts are
        file_facts before, after;
        std::string from, to;  // real paths
    };
    int rename(const std::string& from, const std::string& to, bool check_roots,
               renamed_file* done = nullptr);
    // The same for a registry of another device of the runtime: the first takes the name away, or
    // gives it to another file. before_name_goes: a reader that has the file open reads on.
    // after_unlink: the path is no longer allowed. after_rename: nor is the old one, and open files
    // are found by their new paths.
    void before_name_goes(const std::string& name) {
        if (limits_.writable && !name.empty()) keep_without_name(name);
    }
    void after_unlink(const std::string& path) { forbid(path, false); }
    void after_rename(const renamed_file& done);

    // Serves the device's requests. -ENFILE: no slot left; engine::no_table_room; taking down a
    // closed file may help. `old_extent` is a path extent + 1 of `old_units` to take back first, or
    // 0. A file that is opened for writing keeps its slot, whatever its size and times say, until
    // it is settled. `open_now` is the version that the device has open by this name: if the name
    // still leads to that file, the answer is that version.
    open_reply open(const std::string& name, std::uint64_t old_extent, std::uint64_t old_units,
                    std::uint32_t flags = 0, slot_life open_now = {});
    // Settles a written file that the device closed after all of it was written back. If it is
    // proved that the device alone changed the file (docs/protocol/closed_files.md), and the file
    // is as long as `size_bytes`, its pages stay valid. Otherwise they count as old from now on.
    // `taken` says how many answers to opens of the file groups had taken. If there are others that
    // are not known to be lost, a group may have the file by one: then this is noted and no more.
    // False: handles of this registry are in the way of the proof, and threads are about to let
    // them go; call again, which comes to an end within a tenth of a second.
    [[nodiscard]] bool settle(std::uint32_t slot, std::uint32_t generation, std::uint64_t taken,
                              std::uint64_t size_bytes);
    // The device cut the file to size 0, and no group had it open to write meanwhile.
    void cut_to_nothing(std::uint32_t slot, std::uint32_t generation);
    // How many written files were settled so that their pages stay valid.
    [[nodiscard]] std::uint64_t kept_files() const {
        return kept_files_.load(std::memory_order_relaxed);
    }
    // The writer of the file. -EBADF: it was not opened for writing.
    int writer_of(std::uint32_t slot, std::uint32_t generation, std::shared_ptr<file_writer>& out);
    // The handle by which the file is brought to its storage: the writer's; without a writer the
    // one to read from, which does as well. Errors as of handle_of.
    int handle_to_sync(std::uint32_t slot, std::uint32_t generation,
                       std::shared_ptr<shared_handle>& out);
    // Takes back the path extent of an answer to open that no group took; packed as in
    // engine/lost_open.hpp. An extent that is not given out is ignored.
    void give_back_path(std::uint64_t lost_extent);
    // No group took the answer `epoch` to an open of this file. If none can be writing it now, it
    // is settled, without a proof.
    void take_back_open(const slot_life& of, std::uint32_t epoch, bool to_write);
    std::int64_t retire(std::uint32_t slot, std::uint32_t generation);
    // `kind` is an engine::leaf_kind.
    std::int64_t leaf(std::uint32_t slot, std::uint32_t generation, std::uint64_t kind,
                      std::uint64_t number, std::uint64_t& word_index);

    // Gives the handle to read from and the size at open. Negative errno: the file is not live, or
    // it cannot be opened again.
    int handle_of(std::uint32_t slot, std::uint32_t generation, std::shared_ptr<shared_handle>& out,
                  std::uint64_t& size_bytes);

    // The version of the file that the slot's pages are of. Nothing: the file is not live, it is
    // being written here, or its facts did not tell its version when it was opened.
    struct opened_version {
        file_identity identity;
        bool is_settled;  // no other state of the file has these facts
    };
    std::optional<opened_version> version_of(std::uint32_t slot, std::uint32_t generation);

    // Grows whenever a handle that handle_of gave out is parked or its file is taken down: until
    // then a caller may use the handle again without asking. Acquire: pairs with the release of the
    // change.
    [[nodiscard]] std::uint64_t handle_changes() const {
        return handle_changes_.load(std::memory_order_acquire);
    }

    // For files/deleted_files.hpp. Up to `count` handles of files of local file systems that are
    // not being written, from a place in the round on, which moves on.
    struct held_handle {
        slot_life of;
        std::uint32_t epoch = 0;  // of the last answer to an open
        std::shared_ptr<shared_handle> handle;
        bool is_older = false;  // the file changed since: no open joins this version any more
    };
    [[nodiscard]] std::size_t held_handles();
    std::vector<held_handle> some_handles(std::size_t& place, std::size_t count);
    // Adds up to `count` handles beyond this registry's share, which it gives up: registries that
    // were made later may have theirs then.
    void give_up_excess(std::vector<std::shared_ptr<shared_handle>>& out, std::size_t count);
    // Gives them back. Those that the registry has given up meanwhile stay in `some`: theirs may be
    // the last share, which closes the file.
    void give_back(std::vector<held_handle>& some);
    // The file has no name, or another version followed this one, and no group had it open after
    // this answer to an open. Gives its handle up, unless there was another answer since. Its pages
    // count as old from now on: no open joins this life any more, and its other pages are -ESTALE.
    void let_go(const slot_life& of, std::uint32_t epoch);

    // Begins a loan of the slot whose pages are those of the file as it looks `now`. False if a
    // writer has the file open through this registry, or if the file may have changed without
    // looking different. The loan ends with end_loan, once no group looks at the slot's words for
    // it any more.
    bool lend(const file_identity& now, slot_life& out);
    // Is the loan still valid? Then no group can have changed a page of the file since lend().
    bool is_lent_as_is(const slot_life& lent);
    void end_loan(const slot_life& lent);

    // For messages: where the file of a slot lies, or an empty string.
    std::string path_of(std::uint32_t slot, std::uint32_t generation);
    std::string path_in(std::uint32_t slot);  // whatever its life
    // The files that were opened for writing and are not settled.
    std::vector<written_file> written_files();
    [[nodiscard]] std::size_t live_files();
    // Slots from this one on never had a file.
    [[nodiscard]] std::uint32_t used_slots();
    [[nodiscard]] std::uint64_t free_path_units();
    // How many older versions of files all calls have looked at.
    [[nodiscard]] std::uint64_t older_looks();

private:
    std::atomic<std::uint64_t> handle_changes_{0};
    std::mutex told_mutex_;
    std::set<std::uint64_t> told_file_systems_;  // by device; guarded by told_mutex_

    struct entry {
        std::uint32_t generation = 0;
        bool live = false;
        // The file had changed so recently when it was opened, or may have been written by others
        // while it was written here, that an equal identity proves nothing.
        bool uncertain = false;
        // Let go as a deleted file (let_go): by its name and its inode there is another file now.
        bool gone = false;
        bool is_local = false;       // it lies on a local file system
        bool tells_version = false;  // host::tells_version, when it was opened; also if uncertain
        std::uint64_t passed_opens = 0;  // host::passed_files, when it was opened
        bool two_level = false;
        std::uint64_t table = 0;
        std::uint64_t table_words = 0;
        file_identity identity;
        std::int64_t made_ns = 0;  // host::file_facts
        std::string path;
        std::uint64_t renamed_at = 0;  // renames_, when a rename here gave it this path; 0: none
        std::shared_ptr<shared_handle> handle;
        std::unordered_map<std::uint64_t, std::uint64_t> leaves;
        std::unordered_map<std::uint64_t, std::uint64_t> growth_leaves;
        std::uint64_t growth = 0;  // its directory; no growth: 0, and growth_words is 0 too
        std::uint64_t growth_words = 0;
        std::shared_ptr<file_writer> writer;  // null: not being written
        // While it is being written: the watch, and whether the pages that the slot had when the
        // watch began were those of the file.
        watch_hold watch;
        bool was_as_file = false;
        // The last answer before that; how many since then that are not lost let a group write; and
        // how many answers were taken when the last close came that could not settle the file.
        std::uint32_t written_from = 0;
        std::uint64_t writers_answered = 0, closed_taken = 0;
        std::vector<std::uint32_t> lost;        // answers to opens in this life that no group took
        std::weak_ptr<const void> last_handle;  // the mark of the one that settling took away
        // Since when its last close with so many answers taken is being settled.
        struct {
            std::uint64_t taken = 0;
            std::int64_t since_ns = 0;
            std::uint32_t attempts = 0;       // beside which names were looked up
            std::uint64_t looks_awaited = 0;  // so many end before the next attempt
        } settling;
        // The last answer to an open, counted through all lives of the slot, since a generation
        // comes again; and the last one before this life.
        std::uint32_t epoch = 0, born = 0;
        std::uint32_t loans = 0;
        bool written_while_lent = false;
        bool used_lately = false;   // read since the parking hand last came by
        bool nameless = false;      // its handle could not be opened again by path
        bool wants_handle = false;  // of an older version: a proof took it, and gives it back
    };

    struct found_file {
        std::shared_ptr<shared_handle> handle;
        std::shared_ptr<shared_handle> writer;  // only of an open for writing
        file_facts facts;
        std::string path;
        watch_hold watch;                  // only of an open for writing
        std::uint64_t passed_opens = 0;    // before the facts
        std::uint64_t renames_before = 0;  // renames_, before the name was looked up
        bool is_as_told = false;           // since the watch began the file is still as `facts` say
    };
    // A thread that looks a file up may have it open for a moment. Where nothing is written there
    // is no need to know.
    class looking {
    public:
        explicit looking(file_registry& files) : files_(files) {
            if (files_.limits_.writable) ++files_.looks_begun_;
        }
        ~looking() {
            if (files_.limits_.writable) ++files_.looks_ended_;
        }
        looking(const looking&) = delete;
        looking& operator=(const looking&) = delete;

    private:
        file_registry& files_;
    };

    using handles = std::vector<std::shared_ptr<shared_handle>>;

    // Says once for each file system what cannot be known of its files.
    void tell_of_file_system(const found_file& file);

    // A handle that is closed with its owner, whatever the owner has no memory for.
    struct own_handle {
        environment& env;
        int fd = -1;
        explicit own_handle(environment& of, int opened = -1) : env(of), fd(opened) {}
        ~own_handle() {
            if (fd >= 0) env.close(fd);
        }
        own_handle(const own_handle&) = delete;
        own_handle& operator=(const own_handle&) = delete;
    };
    // Takes over what was opened.
    std::shared_ptr<shared_handle> share(int fd, read_settings* reads) {
        own_handle opened(env_, fd);
        auto out = std::make_shared<shared_handle>(env_, fd, reads);
        opened.fd = -1;
        return out;
    }

    int look_up(const std::string& name, bool check_roots, found_file& out);
    int bring_home(found_file& file);
    int look_up_to_write(const std::string& name, bool check_roots, std::uint32_t flags,
                         found_file& out);
    // The place of a name, or of a new name: its directory, and the rest of the name.
    struct place {
        own_handle directory;
        std::string base, path;
        explicit place(environment& of) : directory(of) {}
    };
    int find_place(const std::string& name, bool check_roots, place& out);
    // Was the name at `path` that the handle was found by a link to another file?
    bool was_link(int handle, const std::string& path);
    int create(const std::string& name, bool check_roots);
    void keep_without_name(const std::string& name);
    bool note_rename(const file_identity& before, const file_facts& after, const std::string& path);
    void note_renamed_directory(const std::string& from, const std::string& to);
    int open_to_write(found_file& file);
    std::shared_ptr<shared_handle> handle_in_use(const file_key& file);
    // How an attempt to prove that the pages of a written file are still those of the file ended.
    enum class proof { given, none, not_yet };
    struct closing {
        std::uint32_t slot, generation;
        std::uint64_t taken, size_bytes;
    };
    static bool none_under_way(const entry& e, std::uint64_t taken);
    entry* closing_entry(const closing& of);  // lock held
    [[nodiscard]] bool was_passed(const entry& e) const;
    proof begin_proof(const closing& of, std::shared_ptr<file_writer>& writer,
                      write_watch::mark& seen, handles& parked);
    proof try_proof(const closing& of, std::shared_ptr<file_writer>& writer,
                    const write_watch::mark& seen);
    proof keep(const closing& of, const file_identity& now,
               const std::shared_ptr<file_writer>& writer);
    bool take_for_proof(std::uint32_t slot, handles& parked);  // lock held
    void give_to_older(const slot_life& of, std::shared_ptr<file_writer> writer);
    bool is_held_here(const closing& of);
    bool was_looked_up(const closing& of, std::uint64_t looks_before);
    // What goes without the lock.
    struct written_end {
        std::shared_ptr<file_writer> writer;
        watch_hold watch;
    };
    written_end forget_pages(entry& e, std::uint32_t slot);  // lock held
    bool look_up_plain(const std::string& name, bool check_roots, found_file& out);
    int look_up_thoroughly(const std::string& name, bool check_roots, found_file& out);
    [[nodiscard]] bool is_below_root(const std::string& real_path) const;
    [[nodiscard]] bool permitted(const std::string& real_path, bool for_writing = false);
    void forbid(const std::string& path, bool with_all_below);
    static std::int64_t take_leaf(std::unordered_map<std::uint64_t, std::uint64_t>& leaves,
                                  std::uint64_t number, extent_allocator& words,
                                  std::uint64_t leaf_words, std::uint64_t& word_index);
    // Called with the lock held. Parked handles are added to `parked`, so that they are closed
    // without the lock.
    bool ensure_free_slot();
    open_reply enter(found_file& file, const slot_life& open_now, handles& parked);
    open_reply join(entry& e, std::uint32_t slot, found_file& file, bool is_fresh);
    void renew_path(entry& e, found_file& file);
    void renew_older_paths(const entry& newest);
    // Calls act(slot) for each older version of the file. There may be as many as slots, so no open
    // does it without need. Lock held.
    template <typename Act>
    void for_each_older(const file_identity& of, const Act& act) {
        const file_key file = key_of(of);
        for (auto at = older_.lower_bound({file, 0}); at != older_.end() && at->first == file;
             ++at) {
            ++older_looks_;
            act(at->second);
        }
    }
    void begin_writing(entry& e, std::uint32_t slot, found_file& file, bool is_fresh);
    bool take_table(entry& e);
    void keep_handle(std::uint32_t slot, std::shared_ptr<shared_handle> handle, handles& parked);
    [[nodiscard]] std::size_t most_handles() const;
    void take_excess(const entry* kept, handles& out, std::size_t count);  // lock held
    std::shared_ptr<shared_handle> take_handle(std::uint32_t slot);
    void give_back_slot(entry& e, std::uint32_t slot);
    entry* live_entry(std::uint32_t slot, std::uint32_t generation);  // lock held
    // For the observer, with the lock held.
    static file_life life_of(const entry& e, std::uint32_t slot) {
        return {slot, e.generation, e.table, e.two_level, e.identity};
    }
    void settle_lives() const {  // without the lock
        if (observer_ != nullptr) observer_->settle();
    }

    environment& env_;
    hub& hub_;
    life_observer* observer_ = nullptr;  // null: the cache is linked with none
    const registry_limits limits_;
    read_settings reads_;
    write_watch watch_;
    std::atomic<std::uint64_t> looks_begun_{0}, looks_ended_{0}, kept_files_{0};
    std::atomic<std::uint64_t> renames_{0};  // that were noted; grows with the lock held
    int first_root_ = -1;
    std::string first_root_path_;     // its real path; written by set_roots only
    std::vector<std::string> roots_;  // likewise
    adaptive_mutex paths_mutex_;      // guards paths_; never taken with mutex_
    extent_allocator paths_;
    adaptive_mutex mutex_;                              // guards everything below
    std::set<std::string> allowed_, allowed_to_write_;  // not below a root
    // By slot, of those that ever had a file: a runtime that opens few pays for few. References to
    // entries stay good.
    std::deque<entry> entries_;
    std::vector<std::uint32_t> free_slots_;  // of those in entries_
    struct hash_of_key {
        std::size_t operator()(const file_key& key) const {
            return mix64(key.device * 31 + key.inode);
        }
    };
    // (device, inode) -> slot of its newest version.
    std::unordered_map<file_key, std::uint32_t, hash_of_key> current_;
    // The slots of older versions, which groups may still have open, but for those that were let
    // go. Versions of the same file (file_facts::made_ns) have the path of the newest.
    std::set<std::pair<file_key, std::uint32_t>> older_;
    std::uint64_t older_looks_ = 0;
    std::size_t wanted_handles_ = 0;  // entries that want theirs back
    extent_allocator words_;
    handle_round handles_;      // slots whose entries have a handle
    std::size_t nameless_ = 0;  // entries that are nameless, which have handles
};

}  // namespace penstock::host
