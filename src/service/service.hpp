// A service thread takes requests from its rings, reads files, and answers.
//
// It has several rings, at which it looks in turn, because groups of a GPU that claim slots of one
// ring get in each other's way: with thousands of groups the exchanges of its tail fail nearly
// always (docs/protocol/ring.md has the figures).
//
// Batching is opportunistic: all requests posted since the last look go out together, new requests
// are taken while reads are in flight, and no request waits for a batch to fill. The thread takes
// the requests of a ring in ticket order and answers them in any order.
//
// The kernel may be wrong or hostile: the thread copies a request out of shared memory first, and
// checks the copy. No request can make the thread read outside the staging area of its own slot, or
// read a file that was not opened.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "os/env.hpp"
#include "os/patient_yield.hpp"
#include "files/file_registry.hpp"
#include "service/asked_chunks.hpp"
#include "service/crew.hpp"
#include "service/fills.hpp"
#include "service/idle_watch.hpp"
#include "service/ring_head.hpp"
#include "service/wishes.hpp"
#include "store/block_reader.hpp"
#include "os/registering_engine.hpp"
#include "files/write_error_log.hpp"
#include "penstock/engine/layout.hpp"
#include "penstock/engine/ring.hpp"
#include "penstock/group/doorbell.hpp"

namespace penstock::host {

// The handles that a service thread used last, so that a request for a file that it knows takes no
// lock.
//
// The cache holds each handle through a count of its own: otherwise the threads that read one file
// would pass the count of its handle to and fro. It lets all handles go as soon as the registry has
// parked or closed any (file_registry::handle_changes).
class handle_cache {
public:
    explicit handle_cache(file_registry& files) : files_(files) {}

    // As file_registry::handle_of.
    int find(std::uint32_t slot, std::uint32_t generation, std::shared_ptr<shared_handle>& out,
             std::uint64_t& size_bytes);
    void forget_stale();
    void forget_all() { places_ = {}; }

private:
    struct place {
        std::uint32_t slot = 0, generation = 0;
        std::uint64_t size_bytes = 0;
        std::shared_ptr<shared_handle> handle;
    };
    file_registry& files_;
    std::uint64_t seen_changes_ = 0;
    std::array<place, 16> places_{};
};

// Written by the service thread, read by any thread.
struct service_counters {
    write_counters file_writes;
    std::atomic<std::uint64_t> file_syncs{0};
    std::atomic<std::uint64_t> file_reads{0}, file_read_bytes{0}, file_read_errors{0},
        direct_reads{0}, registered_reads{0}, bad_requests{0}, batches{0};
    std::atomic<std::uint64_t> buffer_loads{0}, buffer_device_loads{0};
    std::atomic<std::uint64_t> wishes{0}, wishes_dropped{0};
    std::array<std::atomic<std::uint64_t>, 16> batch_size{};
};

struct service_settings {
    std::uint32_t page_shift = 16;
    // How often threads look at idle rings, where posters have no doorbell.
    idle_watch::limits idle;
    // The threads of a runtime share one watch.
    std::shared_ptr<idle_watch> watch = std::make_shared<idle_watch>();
    // The helpers of the threads, or null; and whether this thread is one of them.
    service_crew* crew = nullptr;
    bool is_helper = false;
    // Where posters have a doorbell: a thread is woken by its bell, so this bounds its sleep for no
    // other reason than that every wait has a bound.
    std::uint64_t sleep_ns = 1'000'000'000;
    // For a copy from device frames of a buffer; then the file is read, and such frames are not
    // asked for a while.
    std::uint64_t frame_copy_wait_ns = 2'000'000;
    host_tier tier;
    // At the end, for reads that storage has not answered.
    std::uint64_t drain_ns = 100'000'000'000;
    asked_chunks* asked = nullptr;         // null: no file has windows
    block_reader* blocks = nullptr;        // null: there is no store between nodes
    std::vector<memory_area> to_register;  // empty: none
    registering_engine::refusal register_refused;
    std::shared_ptr<write_error_log> write_errors = std::make_shared<write_error_log>(
        [](const std::string&) {});  // the threads of a runtime share one
};

class service {
public:
    // Needs at least one ring; all rings have the same number of slots. `doorbell` is rung by
    // every poster; null: they cannot ring.
    service(const std::vector<host_ring>& rings, file_registry& files, environment& env,
            std::unique_ptr<io_engine> io, host_doorbell* doorbell,
            const service_settings& settings);
    ~service();  // stops and joins

    void start();
    // The thread ends when its reads under way are answered, or drain_ns later. The destructor
    // waits for that.
    void begin_end();
    // Makes the thread end as if it had died; for tests of what happens then.
    void kill() {
        killed_.store(true, std::memory_order_relaxed);  // as stop_ in the destructor
        doorbell_->ring();
    }
    [[nodiscard]] bool alive() const { return alive_.load(std::memory_order_acquire); }
    // It found nothing to do for a while and sleeps, or is about to. By any thread.
    [[nodiscard]] bool is_asleep() const { return doorbell_->is_sleeping(); }
    // Grows while the thread runs, and stands still while a system call holds it. By any thread.
    [[nodiscard]] std::uint64_t rounds() const { return rounds_.load(std::memory_order_relaxed); }
    [[nodiscard]] bool any_is_posted() const;
    [[nodiscard]] const service_counters& counters() const { return counters_; }
    [[nodiscard]] const char* io_name() const { return io_->name(); }

private:
    // A read in flight, by ring and slot. A short read goes on where it stopped.
    struct flight {
        std::shared_ptr<shared_handle> file;
        engine::ring_ticket at{};
        std::uint64_t offset = 0;
        std::uint32_t wanted = 0;
        std::uint32_t done = 0;
        bool pads = false;                // bytes that the file does not have yet read as zeros
        file_writer::stored_part stored;  // when it was begun again; else nothing
        read_way way = read_way::queued;
        int attempts = 0;                  // one after the other that storage said to try again
        std::shared_ptr<frame_copy> copy;  // from device frames of a buffer, under way
        std::uint64_t copy_begun_ns = 0;
        std::uint32_t slot = 0, generation = 0;
        bool asked_store = false;
        std::shared_ptr<block_fetch> block;  // under way
        std::uint64_t block_begun_ns = 0;
    };
    // A request for pages of the host tier, whose blocks are under way.
    struct waiting_fill {
        fill_order order;
        std::shared_ptr<shared_handle> file;
        std::vector<std::shared_ptr<block_fetch>> blocks;
        std::uint64_t begun_ns = 0;
    };

    void run();
    [[nodiscard]] engine::ring_reply& reply_of(const engine::ring_ticket& at) const;
    [[nodiscard]] std::byte* staging_of(const engine::ring_ticket& at) const;
    [[nodiscard]] std::uint32_t flight_of(const engine::ring_ticket& at) const;
    [[nodiscard]] bool has_room_for_reads() const;
    std::uint32_t take_requests();
    std::uint32_t take_from(std::uint32_t ring);
    void serve(const engine::ring_request& request, const engine::ring_ticket& at);
    [[nodiscard]] std::string name_in(std::uint32_t name_bytes,
                                      const engine::ring_ticket& at) const;
    void serve_open(const engine::open_request& request, const engine::ring_ticket& at);
    void serve_unlink(const engine::unlink_request& request, const engine::ring_ticket& at);
    void serve_read(const engine::read_request& request, const engine::ring_ticket& at);
    void serve_fill(const engine::fill_request& request, const engine::ring_ticket& at);
    void serve_wish(const engine::wish_request& request, const engine::ring_ticket& at);
    void ask_for_wishes(std::uint32_t calls);
    // A request came for this range, so it lies in no window.
    void note_asked(std::uint32_t slot, std::uint32_t generation, std::uint64_t offset,
                    std::uint64_t bytes) const;
    void serve_write(const engine::write_request& request, const engine::ring_ticket& at);
    void run_writers();
    void serve_leaf(const engine::leaf_request& request, const engine::ring_ticket& at);
    void serve_sync(const engine::file_request& request, const engine::ring_ticket& at);
    void serve_truncate(const engine::file_request& request, const engine::ring_ticket& at);
    void serve_end(const engine::file_request& request, const engine::ring_ticket& at);
    void take_back_open(std::uint64_t lost, const engine::ring_ticket& at);
    void settle_files();
    void start_flight(std::uint32_t number);
    void start_at_frames(std::uint32_t number);
    bool take_from_frames(std::uint32_t number);
    void look_at_copies();
    void give_up_copies();
    // service/store_blocks.cpp: where there is a store.
    [[nodiscard]] bool has_store() const { return settings_.blocks != nullptr; }
    bool start_at_store(std::uint32_t number);
    bool take_from_block(std::uint32_t number);
    bool start_fill_at_store(const fill_order& order, std::uint32_t slot, std::uint32_t generation,
                             const std::shared_ptr<shared_handle>& file);
    void start_fill(const fill_order& order, std::shared_ptr<shared_handle> file);
    bool wish_from_store(const wish& wanted, const std::shared_ptr<shared_handle>& file);
    [[nodiscard]] bool awaits_blocks() const {
        return !awaiting_.empty() || !waiting_fills_.empty();
    }
    void look_at_blocks();
    void give_up_blocks();
    [[nodiscard]] frame_wish wish_of(const flight& f) const;
    [[nodiscard]] read_operation rest_of(std::uint32_t number) const;
    void finish_all(std::uint64_t wait_ns);
    [[nodiscard]] std::uint64_t read_wait_ns() const;
    void finish(const read_result& result);
    [[nodiscard]] bool may_pad(flight& f, bool& begin_again);
    void finish_fill(const read_result& result);
    void count_read(const read_result& result);
    void answer_read(const flight& f);  // with what it has
    void answer(const engine::ring_ticket& at, std::int64_t result, std::uint64_t whole_bit = 0);
    void refuse(const engine::ring_ticket& at, std::int64_t code);
    std::uint32_t rest(std::uint32_t idle_rounds);
    void sleep_until_rung();
    bool watch_or_sleep();
    std::uint32_t rest_as_helper(std::uint32_t idle_rounds);
    void note_backlog(std::uint32_t taken);
    [[nodiscard]] bool must_end() const {
        return stop_.load(std::memory_order_relaxed) || killed_.load(std::memory_order_relaxed);
    }

    std::vector<std::uint64_t> own_heads_;  // of rings that no other thread takes from
    const std::vector<host_ring> rings_;
    const std::uint32_t slots_;  // of each ring
    file_registry& files_;
    environment& env_;
    service_counters counters_;
    const std::unique_ptr<io_engine> io_;
    host_doorbell own_doorbell_;
    const bool posters_ring_;
    host_doorbell* const doorbell_;
    std::uint64_t watched_ns_ = 0;  // how long it has rested without a request, under a watch
    const service_settings settings_;
    std::uint32_t first_ring_ = 0;  // to look at next
    std::uint32_t in_flight_ = 0;   // reads and fills, those that wait for blocks or copies too
    // One after the other: rounds with several requests, and waits in which no read finished.
    std::uint32_t fruitless_waits_ = 0;
    patient_yield patient_;                             // while idle
    std::chrono::steady_clock::time_point idle_since_;  // of a helper
    std::uint32_t worth_helpers_ = 0;  // requests of this round for which more threads are of use
    // The end of the first round of several such requests since a helper was asked for.
    std::optional<std::chrono::steady_clock::time_point> crowded_since_;
    std::vector<flight> flights_;
    std::vector<std::uint32_t> copying_;  // flights that wait for a copy from device frames
    std::uint64_t no_copies_until_ns_ = 0;
    std::vector<std::uint32_t> awaiting_;  // flights that wait for a block
    std::vector<waiting_fill> waiting_fills_;
    fill_set fills_;
    handle_cache handles_;
    wish_set wishes_;
    // Writes that were taken for a file and are not written yet.
    struct write_batch {
        std::uint32_t slot, generation;
        std::shared_ptr<file_writer> writer;
        std::vector<write_order> orders;
    };
    std::vector<write_batch> batches_;
    std::vector<std::shared_ptr<file_writer>> writers_;  // that this thread has to run
    write_scratch scratch_;
    struct settling_file {
        engine::file_request request;
        engine::ring_ticket at;
    };
    std::vector<settling_file> settling_;
    std::vector<read_result> finished_;
    std::atomic<std::uint64_t> rounds_{0};
    std::atomic<bool> stop_{false}, killed_{false}, alive_{false};
    std::thread thread_;
};

}  // namespace penstock::host
