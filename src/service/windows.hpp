// Windows, the host half: maps files whose pages the operating system has in memory anyway, makes
// the mappings reachable for the device, and tells the device by the two words of
// engine/window.hpp.
//
// A window opens only whole resident chunks (the last chunk of a file may be short). Opening other
// chunks would wait for the disk, and their pages come by request as well. A later call takes in
// the chunks that have become resident since, or of these only the ones that are named
// (service/asked_chunks.hpp).
//
// A file that is cut under its window keeps its old pages there, and its last page has zeros behind
// the cut that the file never had. So a window holds a read lease on its file. A program that opens
// the file for writing, or cuts it, waits until watch() has closed the window, and the bytes that
// groups have copied until then are the file's; groups look at the window word after the copy.
// Afterwards pages come by request, with short reads as -ESTALE. Sometimes the process gets no
// lease: the file is open for writing already; it belongs to another user and the process does not
// have CAP_LEASE; or the file system has files that are changed elsewhere too, like NFS and FUSE.
// Then watch() looks at the file's size, and bytes that groups copy between the cut and the next
// beat of the runtime's monitor, 20 ms, may be zeros behind the new end. The size of a file that is
// changed elsewhere is that of its server's last answer (service/size_asker.hpp). The same happens
// if this process stands still for longer than lease-break-time (45 s). A file has no window where
// so many files have some that handles for leases and sizes run short.
//
// On CPU threads a copy from a page that was cut off would end the process, so `window_rules` are
// stricter there: a file without a lease has no window, and the lease ends, and the mapping goes,
// only after every visit (service/window_visits.hpp) that may have found the window. That is at
// once if no thread copies rows, and else a beat or two of the monitor later.
//
// Of several devices each has a set of its own, with words and leases of its own; the memory behind
// the windows they share (service/window_runs.hpp).
//
// On a GPU every call but watch() blocks while a kernel waits for the host, so make these calls
// between kernels. Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "device/device.hpp"
#include "os/env.hpp"
#include "files/extent_allocator.hpp"
#include "penstock/engine/layout.hpp"
#include "service/size_asker.hpp"
#include "service/window_runs.hpp"
#include "service/window_visits.hpp"

namespace penstock::host {

// The file that a window belongs to, open on the device until `open` returns. The device takes down
// no file that has a window, so the file keeps slot and generation until close_all.
struct window_file {
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;
    int fd = -1;
    std::uint64_t size_bytes = 0;
};

// How the descriptors that a process may have are shared out: to the file registries of a runtime's
// devices, to their windows, and to the program, which keeps at least a fifth.

// For the registry of each of so many devices, and with one device for all registries of the
// process, which share it out while they live. Half of the limit, so that the program has the other
// half; or a third, where each file may have a second descriptor for direct reads.
inline std::size_t registry_handles(std::uint64_t limit, bool direct, std::size_t devices) {
    return std::max<std::size_t>(8, static_cast<std::size_t>(limit) / (direct ? 3 : 2) / devices);
}

// For each of so many sets of windows of a runtime: an eighth of the limit for all of them, of
// which other runtimes of the process take theirs too (window_rules::watched).
inline std::size_t window_handles(std::uint64_t limit, std::size_t sets) {
    constexpr std::uint64_t most = 4096;
    return static_cast<std::size_t>(std::min(most, limit / 8 / sets));
}

// What makes windows safe to read.
struct window_rules {
    // The memory of the windows, shared with the sets of other devices.
    std::shared_ptr<window_runs> runs = nullptr;
    // Of threads of this process that copy from windows; null: kernels of a GPU do.
    window_visits* visits = nullptr;
    // How many sets of the runtime share the descriptors that windows may have.
    std::size_t sets = 1;
    // How many of them all runtimes of the process have; null: there are no others.
    std::atomic<std::size_t>* watched = nullptr;
};

class window_set {
public:
    // `view` has room for the words.
    window_set(environment& env, cache_device& device, const engine::cache_view& view,
               std::uint64_t chunk_words, const window_rules& rules);
    ~window_set();
    window_set(const window_set&) = delete;
    window_set& operator=(const window_set&) = delete;

    // Opens the resident chunks of the byte range. Returns how many of its bytes lie in windows
    // then, or a negative errno; -ENOSPC: the budget allowed nothing; -EMFILE: no handle is left
    // to watch the file by. `note` says once what the system refused. `owner`: see close_of.
    std::int64_t open(const window_file& file, std::uint64_t offset, std::uint64_t bytes,
                      std::string& note, const void* owner = nullptr);
    // Opens those of the chunks, in order and each once, that are resident now. Returns how many
    // bytes it took in, or a negative errno as above. With `later`: asks the operating system for
    // the rest of chunks of which half is resident, as far as the budget would allow them, and adds
    // these to `later`; few in a call, which may take milliseconds.
    std::int64_t open_chunks(const window_file& file, const std::vector<std::uint64_t>& chunks,
                             std::string& note, const void* owner = nullptr,
                             std::vector<std::uint64_t>* later = nullptr);
    // With visits: closes the windows that no other owner opened. The owner keeps their files open
    // until then, and so keeps their slots.
    void close_of(const void* owner);
    void close_all();
    // When watch() comes no more: gives all leases back. No window is opened afterwards.
    void end_leases();
    // Closes the windows of files that other programs want to write or cut, or that became shorter.
    // The monitor calls it with each beat; it waits for nothing.
    void watch();
    [[nodiscard]] std::size_t open_files() const { return open_files_; }  // waits for nothing
    [[nodiscard]] std::uint64_t open_bytes();

private:
    struct opened {
        std::uint64_t first_chunk;
        std::vector<std::uint64_t> chunks;  // as on the device
        std::uint32_t generation;
        std::uint64_t size_bytes;
        int watch_fd = -1;  // a handle of its own, for the lease or to ask for the size
        bool leased = false;
        bool looked_after = false;  // by the environment, so there is no handle
        bool is_asked = false;      // it changes elsewhere: asker_ has the handle
        std::vector<std::shared_ptr<exposed_run>> runs = {};
        std::uint64_t open_bytes = 0;
        std::vector<const void*> owners = {};
        std::uint64_t free_from = 0;  // put aside: the round of visits in which its memory goes
    };

    // Of a call that opens windows, with the lock: where it ends by an exception, an entry that no
    // group has seen goes.
    struct admission {
        window_set& of;
        std::uint32_t slot;
        ~admission();
    };
    opened* entry_of(const window_file& file);  // lock held; null: no room for the chunk words
    // Lock held. The entry of a file that may have a window now. Null: it may not, for `code`.
    opened* admit(const window_file& file, std::string& note, std::int64_t& code);
    // May this entry share its runs with sets of other devices? If so, `facts` say under which
    // version of the file.
    bool may_share(const window_file& file, const opened& entry, file_facts& facts);
    // Lock held. Shows the device the entry's chunks, or drops an entry without any. 0; or what a
    // call returns that tried to open some, `code` from open_run.
    std::int64_t show(const window_file& file, opened& entry, const void* owner, int code);
    // Maps chunks [first, last) of the file and exposes the resident ones. `identity`: this version
    // of the file, to offer the run under; null: not to be offered. Lock held.
    int open_run(const window_file& file, opened& entry, std::uint64_t first, std::uint64_t last,
                 const file_identity* identity, std::string& note);
    // Takes over the chunks of [first, last) that sets of other devices have open. Lock held.
    void adopt(const file_identity& identity, opened& entry, std::uint64_t first,
               std::uint64_t last);
    [[nodiscard]] bool is_half_resident(const window_file& file, std::uint64_t chunk);
    void complete(const window_file& file, const opened& entry,
                  const std::vector<std::uint64_t>& chunks, std::vector<std::uint64_t>& later);
    int publish(const window_file& file, const opened& entry);
    status begin_watch(const window_file& file, opened& entry);
    bool take_share();  // of the descriptors; false: there is none left
    void give_share();
    [[nodiscard]] bool is_lost(const opened& entry);
    void end_watch(opened& entry);
    void clear_word(std::uint32_t slot);
    // Takes a window out of use that the device may still read; its memory and chunk words stay
    // until close_all, or until visits that began before have ended.
    void put_aside(std::uint32_t slot);
    // Frees what was put aside, if visits allow it.
    void free_aside();
    void release(opened& entry);
    void drop(std::uint32_t slot);
    [[nodiscard]] std::int64_t why_nothing(int code) const;

    environment& env_;
    cache_device& device_;
    const engine::cache_view view_;
    const window_rules rules_;
    size_asker asker_;
    std::atomic<std::size_t> open_files_{0};  // the size of files_
    std::mutex mutex_;                        // guards everything below
    extent_allocator chunk_words_;
    std::unordered_map<std::uint32_t, opened> files_;  // by slot
    std::vector<opened> aside_;                        // closed, and perhaps still being read
    std::size_t watched_ = 0;
    bool said_unwatched_ = false;
    std::uint64_t open_bytes_ = 0;  // of this device, shared ones too
};

}  // namespace penstock::host
