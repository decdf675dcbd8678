// What the runtimes of a process share: which files they have pages of, which of them can answer
// reads of FUSE clients, which mounts keep pages of files for programs, and which parts are told of
// writes. Everything else a runtime has to itself.
//
// A runtime is handed its hub when it is made and passes it down; a region and a mount have that of
// the runtime they are made from. Unless a test hands in its own, it is hub::of_process(). Layers
// above enter themselves through the interfaces of this file, so the hub knows none of them.
//
// Outside of it stay what the operating system and the driver have once for a process: signals
// (runtime/runtime.cpp), what happens at fork() (runtime/runtime_state.cpp), CUDA
// (device/gpu_context.cu).
#pragma once

#include <array>
#include <atomic>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "os/env.hpp"
#include "penstock/base/hash.hpp"

namespace penstock {

struct runtime_ref;

}  // namespace penstock

namespace penstock::host {

// A file, whatever its name is.
struct file_key {
    std::uint64_t device = 0, inode = 0;
    auto operator<=>(const file_key&) const = default;
};

inline file_key key_of(const file_identity& identity) { return {identity.device, identity.inode}; }

inline std::uint64_t hash_of(const file_key& file) { return mix64(file.inode ^ file.device << 32); }

// Of which files runtimes may have pages: a count for each of some thousand classes of files, so
// that a read of most other files finds that out by one relaxed load, and takes no lock. The files
// of a class that has some are looked up, since runtimes may know tens of thousands. Thread-safe. A
// registry adds a file when it gives it its first slot, and removes it with the last.
class known_files {
public:
    void add(const file_key& file) noexcept;
    void remove(const file_key& file);
    // True also for some that are not known: where a file is added or removed just now, or where
    // there was no memory to note one. Waits for nothing. A reader that misses a file which is
    // entered at the same time reads it from storage.
    [[nodiscard]] bool may_have(const file_key& file) const;

private:
    static constexpr std::size_t classes = 4096, parts = 64;
    struct hash_of_key {
        std::size_t operator()(const file_key& file) const { return hash_of(file); }
    };
    struct part {
        mutable std::shared_mutex mutex;  // guards the rest
        std::unordered_map<file_key, std::uint32_t, hash_of_key> files;
        bool is_whole = true;
    };
    static std::size_t class_of(const file_key& file) { return hash_of(file) % classes; }
    // Not by the bits that choose the class, so that a part has files of all classes.
    static std::size_t part_of(const file_key& file) { return (hash_of(file) >> 32) % parts; }
    std::array<std::atomic<std::uint32_t>, classes> counts_{};
    std::array<part, parts> parts_;
};

// Which files programs may be writing past a mount, because the kernel of the operating system
// passes them through (mount/pass_through.hpp): by classes, so a file may be taken for another,
// which only costs time. There are many, since a class remembers for ever: after 3,000 files that
// programs wrote, one in 22 others looks changed. Thread-safe.
//
// A mount begins before the program has the file open, and ends when it knows that no program has
// it open or mapped so. That may be late: without any writer (file_facts::writing) there are none
// of these either.
class passed_files {
public:
    struct seen {
        std::uint64_t opens = 0;    // for writing, ever: with another number it may have changed
        std::uint32_t writers = 0;  // that have it open now
    };
    void begin(const file_key& file) {
        of_class& all = all_[class_of(file)];
        ++all.writers;
        ++all.opens;
    }
    void end(const file_key& file) { --all_[class_of(file)].writers; }
    // Whatever is written after this was asked and while there were no writers comes with a higher
    // number of opens.
    [[nodiscard]] seen look(const file_key& file) const {
        const of_class& all = all_[class_of(file)];
        // First the opens: a program that comes in between is among the writers, or in the next
        // number.
        const std::uint64_t opens = all.opens;
        return {opens, all.writers};
    }

private:
    struct of_class {
        std::atomic<std::uint64_t> opens{0};
        std::atomic<std::uint32_t> writers{0};
    };
    static constexpr std::size_t classes = 65536;
    static std::size_t class_of(const file_key& file) { return hash_of(file) % classes; }
    // Not in the hub: a test may have one on its stack.
    const std::unique_ptr<of_class[]> all_ = std::make_unique<of_class[]>(classes);
};

// The admission lock of what answers reads of FUSE clients: it admits one request that changes it
// (moves pages of regions of a file; adds or takes away a runtime), or any number of reads.
// Requests wait; reads are refused while a request is under way or waits, so they neither wait for
// one nor keep one waiting for long.
//
// A lockable for std::lock_guard (requests) and std::shared_lock with std::try_to_lock (reads).
class request_turns {
public:
    void lock();
    void unlock() { turns_.unlock(); }
    bool try_lock_shared();
    void unlock_shared() { turns_.unlock_shared(); }
    void lock_shared() = delete;

private:
    std::atomic<int> wanted_{0};
    std::shared_mutex turns_;
};

// What a service thread wants for a kernel that misses a page: bytes of a file that it has open.
struct frame_wish {
    file_key file;
    environment& env;
    int fd;
    std::uint64_t offset = 0, bytes = 0;
};

// A copy from device frames of a buffer, which goes on while the service thread does other work.
class frame_copy {
public:
    virtual ~frame_copy() = default;
    [[nodiscard]] virtual bool has_ended() const = 0;
    // Once, when it has ended: how many bytes, from the begin of the wish on, are at `to` now, and
    // are what the file has. 0: the file has to be read.
    virtual std::uint64_t take(const frame_wish& wanted, std::byte* to) = 0;
};

// A buffer that lends pages of its frames (docs/protocol/frames.md). No call waits for a session of
// the buffer, for the disk or for a kernel: what cannot be had at once is not lent.
class frame_source {
public:
    virtual ~frame_source() = default;
    // From frames of the host: how many bytes, from the begin of the wish on, are at `to` now, and
    // are what the file has.
    virtual std::uint64_t copy(const frame_wish& wanted, std::byte* to) = 0;
    // From frames of the device, if they have the begin of the wish. Null: they have not.
    virtual std::shared_ptr<frame_copy> begin(const frame_wish& wanted) = 0;
};

// The buffers of a process. Thread-safe; service threads never wait here.
class frame_sources {
public:
    known_files known;  // of which a buffer may have pages

    // A source leaves before it ends, which waits for copies under way.
    void enter(frame_source& source) {
        const std::lock_guard request(turns_);
        sources_.push_back(&source);
        count_ = sources_.size();
    }
    void leave(const frame_source& source) {
        const std::lock_guard request(turns_);
        std::erase(sources_, &source);
        count_ = sources_.size();
    }
    // A relaxed load where there is no buffer. Relaxed: a reader that misses a buffer that comes
    // just now reads the file.
    [[nodiscard]] bool any() const { return count_.load(std::memory_order_relaxed) != 0; }
    // The first that use(source) gives something for, or nothing where a buffer comes or goes.
    template <typename Use>
    auto first_of(const Use& use) -> decltype(use(std::declval<frame_source&>())) {
        const std::shared_lock turn(turns_, std::try_to_lock);
        if (!turn.owns_lock()) return {};
        for (frame_source* const source : sources_)
            if (auto out = use(*source)) return out;
        return {};
    }

private:
    std::atomic<std::size_t> count_{0};
    request_turns turns_;  // guards sources_
    std::vector<frame_source*> sources_;
};

// Of a read: its bytes, how many they are, and how many of them did not come from the file.
using byte_sink = std::function<void(const std::byte*, std::uint64_t, std::uint64_t)>;

// A file whose pages a runtime lends to a reader that copies them by itself (engine/lend.hpp).
struct lent_file {
    const runtime_ref* runtime = nullptr;  // of the device that has the pages
    std::optional<int> gpu;                // CUDA's number of it; none: CPU threads
    std::uint32_t slot = 0, generation = 0;
    std::shared_ptr<const void> hold;  // while it is there, the file keeps its words
};

// The part of a runtime that hands out pages of its cache (peers/cached_reads.hpp).
class page_source {
public:
    virtual ~page_source() = default;
    // As hub::read_cached, of this runtime.
    virtual std::uint64_t read(int fd, std::uint64_t offset, std::uint64_t bytes,
                               const byte_sink& use) = 0;
    // False: the runtime has no pages of the file as it is now.
    virtual bool lend(const file_identity& now, lent_file& out) = 0;
    // Asked after the pages were copied. False: they may have been of an older file.
    virtual bool is_lent_as_is(const lent_file& lent) = 0;
};

// What a mount does about pages that the kernel keeps for programs (their view). Thread-safe, and
// called with no lock that an operation of a program takes. 0 or a negative errno; a file that its
// programs do not use is no error.
class program_views {
public:
    virtual ~program_views() = default;
    // What programs have stored to mapped pages of the file is in the file, and told as
    // region::program_write does, when it returns.
    virtual int collect(const file_key& file) = 0;
    // The same for a range, and the pages that the kernel had when this was called it has no more,
    // nor is anything of them under way to the file.
    virtual int take_away(const file_key& file, std::uint64_t offset, std::uint64_t bytes) = 0;
};
using view_list = std::vector<std::shared_ptr<program_views>>;

struct file_change {
    std::uint64_t offset = 0, bytes = 0;
    bool cuts = false;  // or lengthens: the file is to end at `offset`
};
using change_step = std::function<std::int64_t()>;

// An observer of what kernels change in files by write and truncate. Thread-safe.
class write_observer {
public:
    virtual ~write_observer() = default;
    // Does it, by `doing`, once, and returns what that returned, when all that this observer tells
    // know. Called with no lock that an operation of a program takes.
    virtual std::int64_t change(environment& env, int fd, const file_change& change,
                                const change_step& doing) = 0;
};

// What a layer above keeps for all runtimes of a hub. Made at its first use from the hub, destroyed
// with it.
class hub_part {
public:
    virtual ~hub_part() = default;
};

// Thread-safe. It outlives its runtimes, regions and mounts.
class hub {
public:
    hub() = default;
    hub(const hub&) = delete;
    hub& operator=(const hub&) = delete;
    // The hub of this process. A child of fork() begins with a new one: what it inherited may be
    // locked by threads that it does not have, and tells of things that are not its own. Never
    // destroyed, since a runtime may be one of the last things that go.
    static hub& of_process();

    known_files known;
    passed_files passed;
    // How many file registries there are, of all runtimes: they share the descriptors that files
    // may have. Relaxed: a registry that comes late to know of another gives descriptors up later.
    std::atomic<std::size_t> registries{0};
    // How many descriptors watch files with windows, of all runtimes.
    std::atomic<std::size_t> watched_files{0};
    frame_sources frames;

    // A source enters itself when its runtime is made, and leaves before that ends, which waits for
    // reads under way.
    void enter(page_source& source);
    void leave(page_source& source);
    // A part of a file that is open as `fd`, where the operating system would have to bring it from
    // storage and a runtime has pages of it: these by copies, the others from the file at the same
    // time. use(), once, with what there is of the part up to the file's end. Returns how much of
    // it came from a runtime; 0: use was not called, and the file has to be read. The caller asks
    // `known` before.
    std::uint64_t read_cached(int fd, std::uint64_t offset, std::uint64_t bytes,
                              const byte_sink& use);
    // Calls use(source, lent) for each runtime that lends pages of the file, one after the other,
    // none of which ends meanwhile. Like reads of programs, it does not wait where a runtime comes
    // or goes just now; then there are none. The caller asks `known` before.
    void visit_caches(const file_identity& now,
                      const std::function<void(page_source&, const lent_file&)>& use);

    void add_views(std::shared_ptr<program_views> views);
    void remove_views(const program_views& views);
    // A load where there are none.
    [[nodiscard]] view_list views() const;
    // Before an open: brings to the file what programs stored to mappings of it through mounts. Its
    // facts may change. 0: there are no mounts; 1: there are; or a negative errno: not all stores
    // came. Called with no lock that an operation of a program takes.
    [[nodiscard]] int bring_stores_home(const file_key& file) const;

    // An observer is removed only while no runtime of the hub changes files.
    void add_observer(write_observer& observer);
    void remove_observer(const write_observer& observer);
    // Changes a file by doing(), with all observers told. A load and the call where there are none.
    std::int64_t change_told(environment& env, int fd, const file_change& change,
                             const change_step& doing) const;

    template <typename Part>
    Part& part() {
        const std::lock_guard lock(parts_mutex_);
        for (const auto& [type, part] : parts_)
            if (type == &type_mark<Part>) return static_cast<Part&>(*part);
        parts_.emplace_back(&type_mark<Part>, std::make_unique<Part>(*this));
        return static_cast<Part&>(*parts_.back().second);
    }

private:
    template <typename Part>
    static constexpr char type_mark = 0;

    request_turns turns_;  // guards sources_
    std::vector<page_source*> sources_;

    mutable std::mutex mutex_;  // guards the next two
    view_list views_;
    std::vector<write_observer*> observers_;
    std::atomic<std::size_t> view_count_{0}, observer_count_{0};

    // Last, so that a part can still remove itself from what is above.
    std::mutex parts_mutex_;
    std::vector<std::pair<const void*, std::unique_ptr<hub_part>>> parts_;
};

}  // namespace penstock::host
