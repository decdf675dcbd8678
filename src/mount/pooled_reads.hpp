// Reads of a mount's programs from a pool that the program of this process uses too
// (mount_options::buffer; docs/protocol/frames.md).
//
// A thread that serves a program takes what frames of the pool have, as a service thread takes it
// for a kernel: it waits for no session. What it misses it reads from the source, and a thread of
// this class brings it to the pool afterwards, for the next read. So a program's read never waits
// for a kernel of the buffer. That must not be: the kernel of the operating system may hold a page
// locked for the read, and a service thread that writes for a kernel on the GPU waits for that
// page, while the buffer's kernel waits for room on the GPU.
//
// Nothing has to be told of changes: a page is taken only if it is of the version that the file
// has.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "buffer/pool/manager.hpp"
#include "hub/file_version.hpp"
#include "hub/hub.hpp"
#include "mount/file_numbers.hpp"
#include "mount/mount.hpp"
#include "os/shared_memory.hpp"

namespace penstock::mount {

// Thread-safe.
class pooled_reads {
public:
    // `note` is told what people should know, once each.
    static status make(const buffer_pool& pool, std::function<void(const std::string&)> note,
                       std::unique_ptr<pooled_reads>& out);
    // Waits for what its thread reads just now.
    ~pooled_reads();

    // So many bytes of the file that `fd` reads, all that were asked for up to its end; or 0: read
    // the source.
    std::uint64_t read(host::hub& shared, const inode_key& key, int fd, std::uint64_t offset,
                       std::byte* to, std::uint64_t bytes);
    // The file was closed, and has no name any more.
    void removed(const inode_key& key);

    // The kernel keeps copies of what is read.
    void say_copies();
    [[nodiscard]] buffer_report report() const;

private:
    struct order {
        inode_key key;
        host::owned_fd file;  // a descriptor that leads to it; none: it was removed
        std::uint64_t offset = 0, bytes = 0;
        const host::passed_files* passed = nullptr;  // of the hub; null: it was removed
    };
    struct pooled_file {
        int number = -1;
        host::owned_fd fd;  // that the pool reads
        host::file_version version;
        std::uint64_t used = 0;         // when, by orders
        std::uint64_t known_pages = 0;  // that the pool knows of it, at most
    };
    pooled_reads() = default;

    void post(const host::passed_files& passed, const inode_key& key, int fd, std::uint64_t offset,
              std::uint64_t bytes);
    void run();
    bool wait_for_order(order& next);
    void drop_removed();
    void carry_out(const order& wanted);
    pooled_file* find(const order& wanted);
    bool bring_up_to_date(pooled_file& file, const order& wanted);
    int open_source(int file);
    bool take_room(pooled_file& file, std::uint64_t bytes);
    bool drop_oldest(const pooled_file* but = nullptr);
    void drop(pooled_file& file);

    std::shared_ptr<buffer::manager> all_;
    std::function<void(const std::string&)> note_;
    bool on_gpu_ = false, direct_io_ = true;
    std::uint32_t most_files_ = 0;
    std::uint64_t page_bytes_ = 0, most_pages_ = 0;
    std::atomic<bool> cached_{false}, copies_{false};
    std::atomic<std::uint64_t> reads_outside_{0}, reads_{0};
    std::atomic<std::int64_t> no_copies_until_ns_{0};  // from device frames, which were late

    // Of the thread alone:
    std::unique_ptr<buffer::session> session_;
    std::unordered_map<inode_key, pooled_file, inode_key_hash> files_;
    std::uint64_t known_pages_ = 0;  // of all files
    std::vector<std::byte> room_;
    std::uint64_t orders_ = 0, orders_at_look_ = 0;

    std::mutex mutex_;
    std::condition_variable news_;
    std::deque<order> queue_;  // guarded by mutex_
    bool stops_ = false;       // guarded by mutex_
    std::thread thread_;
};

}  // namespace penstock::mount
