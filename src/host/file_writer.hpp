// Write-backs of one file on their way to it, from all service threads.
//
// The operating system lets one thread at a time write to a file, and takes long for each call. So threads do not queue up for it: each
// puts what its rings brought into the file's list, and whoever finds nobody writing writes what is in the list, neighbouring pages in one
// call, until it is empty. The others go on with other requests; whoever writes gives the answers.
//
// Thread-safe. An order is answered exactly once, by a thread that is inside run() of the same writer.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "host/env.hpp"
#include "host/shared_handle.hpp"
#include "host/write_troubles.hpp"
#include "penstock/engine/layout.hpp"

namespace penstock::host {

// The page of a request: its bytes and marks lie in the staging area of its ring slot, which is the order's until it is answered.
struct write_order {
    const std::byte* page = nullptr;
    std::uint64_t offset = 0;
    bool whole = false;  // every byte is marked, whatever the marks say
    engine::ring_reply* reply = nullptr;
    std::uint64_t ticket = 0;
};

struct write_counters {
    std::atomic<std::uint64_t> writes{0}, bytes{0}, errors{0};
};

class file_writer {
public:
    // `key` and `path` say in messages which file it is.
    file_writer(environment& env, std::shared_ptr<shared_handle> file, std::uint64_t page_bytes, const write_troubles::file_key& key, std::string path)
        : env_(env), file_(std::move(file)), page_bytes_(page_bytes), key_(key), path_(std::move(path)) {}

    [[nodiscard]] int fd() const { return file_->fd(); }
    void put(const write_order& order);
    // Writes what was put, unless another thread is at it: then that one does.
    void run(write_counters& counters, write_troubles& troubles);

private:
    // A piece of memory for a place of the file.
    struct piece {
        const std::byte* from;
        std::uint64_t bytes, offset;
        std::size_t order;
    };

    bool take_list();
    void write_list(write_counters& counters, write_troubles& troubles);
    void list_pieces();
    void write_neighbours(std::size_t first, std::size_t end, write_counters& counters, write_troubles& troubles);

    environment& env_;
    const std::shared_ptr<shared_handle> file_;
    const std::uint64_t page_bytes_;
    const write_troubles::file_key key_;
    const std::string path_;

    std::mutex list_mutex_;  // guards list_ and writing_
    std::vector<write_order> list_;
    bool writing_ = false;

    // Of the thread that writes.
    std::vector<write_order> taken_;
    std::vector<piece> pieces_;
    std::vector<std::int64_t> results_;
    std::vector<memory_piece> call_;
};

}  // namespace penstock::host
