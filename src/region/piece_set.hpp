// A file in pieces: which of them are resident, in use, or outdated, and what comes and leaves.
//
//   absent     no memory; a copy of it may lie in host memory
//   resident   has a slot of memory, and the file's bytes as of `version`
//   in use     resident, and expected more often than done: it neither leaves nor changes
//
// The file's version is a count of its own that grows when the file differs from the look before
// (hub/file_version.hpp), or that look was no proof. It is looked at before a read, so a change
// that meets the read is found by the next look.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "hub/file_version.hpp"
#include "hub/hub.hpp"
#include "os/env.hpp"
#include "os/process_owner.hpp"
#include "penstock/pieces.hpp"
#include "region/piece_memory.hpp"

namespace penstock::region {

inline constexpr std::uint32_t no_place = ~0u;

class piece_set {
public:
    // Owns the descriptor.
    piece_set(host::environment& env, host::hub& shared, int fd, const host::file_facts& facts,
              std::unique_ptr<piece_memory> memory, const piece_shape& shape, std::string path,
              std::function<void(const std::string&)> say);
    // Not called in a child of fork() (belongs_here).
    ~piece_set();
    piece_set(const piece_set&) = delete;
    piece_set& operator=(const piece_set&) = delete;

    [[nodiscard]] bool belongs_here() const { return owner_.here(); }
    [[nodiscard]] const void* data() const {
        return memory_ == nullptr ? nullptr : memory_->data();
    }
    [[nodiscard]] std::uint64_t size_bytes() const { return size_bytes_; }
    [[nodiscard]] std::uint64_t piece_bytes() const { return piece_bytes_; }
    std::int64_t expect(std::span<const byte_range> ranges, void* stream);
    int done(std::span<const byte_range> ranges, void* stream);
    [[nodiscard]] bool is_resident(std::span<const byte_range> ranges) const;
    [[nodiscard]] status verify(std::span<const byte_range> ranges) const;
    [[nodiscard]] piece_traffic traffic() const;
    int close();

private:
    struct piece {
        std::uint32_t slot = no_place, host_place = no_place;
        std::uint64_t version = 0, host_version = 0;
        std::uint32_t uses = 0;
        std::uint64_t expected = 0;          // when, in the order of the calls
        stream_mark filled;                  // its bytes are there
        std::vector<stream_mark> last_uses;  // of streams whose work may use it still
    };
    static constexpr std::uint64_t no_piece = ~std::uint64_t{0};
    struct host_place {
        std::uint64_t piece = no_piece;
        std::uint64_t used = 0;  // when it was written or read
        stream_mark read;        // the last copy from it is through
    };
    using number_list = std::vector<std::uint64_t>;
    // What an expect has to do: pieces that leave, and pieces that come, those that are resident
    // and outdated too.
    struct plan {
        number_list leave, come;
    };

    bool numbers_of(std::span<const byte_range> ranges, number_list& out) const;
    int look();
    [[nodiscard]] bool is_current(const piece& p) const {
        return p.slot != no_place && (p.version == version_ || p.uses != 0);
    }
    bool make_plan(const number_list& wanted, plan& out) const;
    int carry_out(const plan& todo);
    int end_last_uses(piece& p);
    int drop(number_list leave);
    void forget(const std::vector<placed_piece>& gone);
    [[nodiscard]] std::uint32_t least_wanted_place() const;
    void keep_in_host(std::uint64_t number);
    int place(const number_list& come);
    int make_room(const plan& todo);
    int fill(const plan& todo);
    int finish(const number_list& come, const number_list& from_file, const stream_mark& filled);
    int bring_part(unsigned worker, unsigned which, std::uint64_t offset,
                   const std::atomic<int>& room);
    void give_up(const number_list& come);
    std::int64_t told(std::int64_t code, const char* operation);

    const host::process_owner owner_{};
    host::environment& env_;
    host::hub& hub_;
    const int fd_;  // until close()
    const host::file_key key_;
    const std::uint64_t size_bytes_, piece_bytes_;
    const std::string path_;
    const std::function<void(const std::string&)> say_;
    mutable std::mutex mutex_;              // one call at a time; guards all below
    std::unique_ptr<piece_memory> memory_;  // null: closed
    std::vector<piece> pieces_;
    std::vector<std::uint32_t> free_slots_;
    std::vector<std::uint64_t> residents_;  // the piece of each slot, or no_piece
    std::vector<host_place> host_places_;
    std::uint64_t clock_ = 0, version_ = 1;
    host::file_version known_;  // as it was at the last look; no proof before the first
    piece_traffic traffic_;
};

}  // namespace penstock::region
