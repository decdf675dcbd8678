// The files of a mount that is read through a buffer (docs/guide/mount.md): which is which in the
// buffer, and when its pages are still right.
//
// Everything is written to the source, and afterwards the pages concerned leave the buffer; so
// nothing of it is ever dirty, and a reader that comes after a write has returned has what was
// written. A file gets its number with its first read and keeps it, and its pages, over closes;
// when it is opened it is looked whether it is still as it was when they were loaded. While no
// program has it open, its descriptor leads to /dev/null, so that a file that is removed takes no
// room.
//
// Locks, in this order: a file's `changing`, the table's, a file's `in_use` (which is only tried
// for, where it is taken alone).
#pragma once

#include <sys/stat.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "buffer/pool/manager.hpp"
#include "mount/mount.hpp"
#include "mount/tree.hpp"

namespace penstock::mount {

// The buffer's sessions, one for each thread that serves, lent for as long as a request takes.
// Thread-safe. Ends before its manager, with nothing lent.
class session_pool {
public:
    // False: the manager does not give so many.
    bool fill(buffer::manager& all, unsigned count) {
        for (unsigned i = 0; i < count; ++i) {
            idle_.push_back(all.open_session());
            if (idle_.back() == nullptr) return false;
        }
        return true;
    }

    class lent {
    public:
        explicit lent(session_pool& from) : from_(from), session_(from.take()) {}
        ~lent() { from_.give(std::move(session_)); }
        lent(const lent&) = delete;
        lent& operator=(const lent&) = delete;
        buffer::session* operator->() const { return session_.get(); }

    private:
        session_pool& from_;
        std::unique_ptr<buffer::session> session_;
    };

    // The counts are complete then, but for requests that are under way.
    void tell_hits() {
        const std::lock_guard hold(lock_);
        for (const auto& session : idle_) buffer::manager::tell_hits(*session);
    }

private:
    std::unique_ptr<buffer::session> take() {
        std::unique_lock hold(lock_);
        given_back_.wait(hold, [&] { return !idle_.empty(); });
        auto out = std::move(idle_.back());
        idle_.pop_back();
        return out;
    }
    void give(std::unique_ptr<buffer::session> session) {
        {
            const std::lock_guard hold(lock_);
            idle_.push_back(std::move(session));
        }
        given_back_.notify_one();
    }

    std::mutex lock_;
    std::condition_variable given_back_;
    std::vector<std::unique_ptr<buffer::session>> idle_;  // guarded by lock_
};

struct buffered_file {
    const inode_key key;
    // Shared by users of the number; alone by the thread that takes it away.
    std::shared_mutex in_use;
    std::atomic<int> number{-1};       // in the buffer
    std::atomic<bool> outside{false};  // it is read from the source: has no number, or what the
                                       // buffer has of it may be old
    std::atomic<std::uint64_t> read_to{0};  // where the last read ended: a hint
    std::mutex changing;
    // Odd while its size and pages change. Read before and after a read of the buffer, which counts
    // only if it is even and stays the same.
    std::atomic<std::uint64_t> steps{0};
    // Guarded by changing:
    // When the first of its pages was loaded; device 0: not known.
    host::file_identity version;
    std::uint64_t size_bytes = 0;  // that the buffer knows
    int fd = -1;  // what the buffer reads: one number as long as the file has a number
    // Guarded by the table's lock:
    std::uint64_t room = 0;  // pages that there are words for
    std::uint32_t opens = 0;
    std::atomic<bool> stale{false};  // was changed while it was not open
    bool is_parked = false;
    std::list<std::shared_ptr<buffered_file>>::iterator
        place{};  // then: among those that are not open

    explicit buffered_file(const inode_key& which) : key(which) {}
};

// Thread-safe.
class file_buffer {
public:
    // `note` is told what people should know, once each.
    static status make(const buffer_options& wanted, unsigned threads,
                       std::function<void(const std::string&)> note,
                       std::unique_ptr<file_buffer>& out);
    ~file_buffer();

    // A regular file was opened, by `fd`, or closed. One for which there is no memory is read from
    // the source.
    void opened(node& file_node, int fd);
    void closed(node& file_node);
    // Null: it is not open.
    static std::shared_ptr<buffered_file> file_of(node& file_node);
    // So many bytes, less at the end, or a negative errno: read the source. Only of what is open;
    // `fd` reads the source.
    std::int64_t read(buffered_file& file, const node& file_node, int fd, std::uint64_t offset,
                      std::byte* to, std::uint64_t bytes);
    // A program that reads in order will want what comes next. The file may be closed meanwhile.
    void read_ahead(buffered_file& file, std::uint64_t offset, std::uint64_t bytes);
    // These bytes of the source may be others now, or its size: before anybody is told so.
    void changed(const node& file_node, std::uint64_t offset, std::uint64_t bytes);

    // Tries whether files in this directory can be read past the operating system's page cache.
    void try_directory(const std::string& path);
    void count_outside() { ++reads_outside_; }
    // The kernel keeps copies of what is read.
    void say_copies();
    [[nodiscard]] buffer_report report();

private:
    using file_pointer = std::shared_ptr<buffered_file>;
    file_buffer() = default;

    file_pointer find_changed(const node& file_node);
    int open_source(const node& file_node);
    bool enter(buffered_file& file, const node& file_node);
    int add(int fd, std::uint64_t bytes);
    bool take_room(buffered_file& file, std::uint64_t bytes);
    bool give_up_another();
    bool drop(buffered_file& file);
    void park(const file_pointer& file);
    void wake(buffered_file& file, const node& file_node);
    void look_again(buffered_file& file, const node& file_node, int fd);
    bool take_over_size(buffered_file& file, std::uint64_t size_bytes);
    void say_cached(const std::string& path);
    void say_no_memory();

    buffer_options options_;
    std::unique_ptr<buffer::device_frames> frames_;
    std::unique_ptr<buffer::manager> all_;
    session_pool sessions_;
    std::function<void(const std::string&)> note_;
    int nowhere_ = -1;  // /dev/null
    bool on_gpu_ = false;
    std::uint64_t most_pages_ = 0;     // of all files in the buffer: there is a word for each
    std::atomic<bool> cached_{false};  // some file cannot be read past the page cache
    std::atomic<bool> copies_{false}, no_memory_{false};
    std::atomic<std::uint64_t> reads_outside_{0};

    std::mutex table_;
    // Guarded by table_:
    std::unordered_map<inode_key, file_pointer, inode_key_hash> files_;
    // Those that are not open, with a number; the one closed longest ago first.
    std::list<file_pointer> parked_;
    std::uint64_t pages_ = 0;  // of all that have a number
};

}  // namespace penstock::mount
