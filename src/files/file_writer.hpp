// The writer of a file: brings the write-backs of all service threads to it.
//
// The operating system lets one thread at a time write to a file, and takes long for each call. So
// service threads do not queue up for it: each puts the orders of its rings into the file's list. A
// thread that finds no thread writing takes the list and writes it, neighbouring pages in one call.
// The other threads go on with other requests; the writing thread gives the answers. While the list
// is long another thread writes too, so that the file is not idle while the first thread sorts its
// orders and gives its answers. A short list is left to grow: a call for one page takes nearly as
// long as for a hundred. After each list a thread looks at its rings: the orders that wait there
// may be neighbours of those in the next list.
//
// Thread-safe. An order is answered exactly once, by a thread that is inside run() of the same
// writer. Two lists that are written at the same time never share a page: the device posts a page
// again only when it has the answer (engine/dirty.hpp, invariant (2)).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "hub/hub.hpp"
#include "os/env.hpp"
#include "files/shared_handle.hpp"
#include "files/write_error_log.hpp"
#include "penstock/engine/layout.hpp"

namespace penstock::host {

// The page of a request: its bytes and marks lie in the staging area of its ring slot, which
// belongs to the order until it is answered.
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

// A piece of memory for a place of the file, and the order that it belongs to.
struct write_piece {
    const std::byte* from;
    std::uint64_t bytes, offset;
    std::size_t order;
};

// The orders that a writing thread has taken, and its working memory. The thread keeps it, so that
// it is not allocated anew each time.
struct write_scratch {
    std::vector<write_order> taken;
    std::vector<write_piece> pieces;
    struct progress {
        std::int64_t result;
        std::size_t pieces_left;
    };
    std::vector<progress> orders;  // as taken
    std::vector<memory_piece> call;
};

class file_writer {
public:
    static constexpr std::uint32_t most_threads = 2;
    static constexpr std::uint64_t long_list_bytes = 1 << 20;

    // `shared` is told of each write; `key` and `path` name the file in messages. `unwatched`: its
    // writes leave no event in a watch of the file, if the system has a way (environment::
    // write_unwatched). `stored_bytes`: the size of the file.
    file_writer(environment& env, hub& shared, std::shared_ptr<shared_handle> file,
                std::uint64_t page_bytes, const write_error_log::file_key& key, std::string path,
                bool unwatched = false, std::uint64_t stored_bytes = 0)
        : env_(env),
          hub_(shared),
          file_(std::move(file)),
          page_bytes_(page_bytes),
          key_(key),
          path_(std::move(path)),
          unwatched_(unwatched),
          stored_{stored_bytes, 0} {}

    [[nodiscard]] int fd() const { return file_->fd(); }
    [[nodiscard]] const std::shared_ptr<shared_handle>& file() const { return file_; }
    void put(const std::vector<write_order>& orders);
    // Writes the orders put so far, unless other threads are writing and there is too little work
    // for one more. True: there are more orders by now than the other threads are left with, and
    // the caller has to come again.
    [[nodiscard]] bool run(write_scratch& scratch, write_counters& counters,
                           write_error_log& write_errors);

    // How many bytes the file had when it was opened, or got by a write since: they are there,
    // unless another program cut the file. `cuts` changes whenever this runtime cuts it; while it
    // does so nothing is known, and `bytes` is 0.
    struct stored_part {
        std::uint64_t bytes = 0, cuts = 0;
    };
    [[nodiscard]] stored_part stored();
    // Before and after this runtime sets the size of the file.
    void begin_cut();
    void end_cut(std::uint64_t size_bytes);

private:
    void note_stored(std::uint64_t cuts_before, std::uint64_t end_bytes);
    [[nodiscard]] bool wants_another() const;
    void write_list(write_scratch& s, write_counters& counters, write_error_log& write_errors);
    void list_pieces(write_scratch& s) const;
    std::int64_t write(const std::vector<memory_piece>& pieces, std::uint64_t offset);
    static void answer(const write_order& of, std::int64_t result, write_counters& counters);
    void write_neighbours(write_scratch& s, std::size_t first, std::size_t end,
                          write_counters& counters, write_error_log& write_errors);

    environment& env_;
    hub& hub_;
    const std::shared_ptr<shared_handle> file_;
    const std::uint64_t page_bytes_;
    const write_error_log::file_key key_;
    const std::string path_;
    const bool unwatched_;

    std::mutex list_mutex_;  // guards list_ and threads_
    std::vector<write_order> list_;
    std::uint32_t threads_ = 0;  // how many threads write

    std::mutex stored_mutex_;  // guards stored_ and cutting_
    stored_part stored_;
    std::uint32_t cutting_ = 0;  // how many threads set the size
};

}  // namespace penstock::host
