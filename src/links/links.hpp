// Links between caches, the host half: which files any two caches share, and the words that tell
// their devices so (engine/neighbour.hpp has the protocol).
//
// The members are caches of this process, one on each device of a runtime, and guests: caches of
// other processes, which come and go, each at a place of its own (links/process_links.hpp). Each
// member's registry tells of the lives of its files; for a guest its link does. Two lives are
// shared if their files had the same identity when they were opened, neither of them uncertain, and
// no member has the file open for writing. For each such pair the devices of this process get an
// entry.
//
// A reader trusts an entry until it changes, so what ends a sharing takes the entry away before it
// happens: an open for writing is answered when settle() has returned. A slot that goes to another
// file need not wait, for the reader looks at the neighbour's file word too.
//
// Locks: a registry's, then the table's (events), or the uploads', then the table's (settle). An
// upload is made with that of uploads alone, except by withdraw_all: no event waits for a device.
//
// Thread-safe, except connect, which comes before any event. The calls for one guest come one after
// the other.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>
#include <utility>
#include <tuple>
#include <vector>

#include "device/device.hpp"
#include "files/life_observer.hpp"
#include "hub/hub.hpp"
#include "penstock/engine/layout.hpp"

namespace penstock::host {

constexpr engine::neighbour_distance distance_of(link_kind kind) {
    return kind == link_kind::same_memory ? engine::same_memory
           : kind == link_kind::nvlink    ? engine::by_nvlink
                                          : engine::by_bus;
}

class links {
public:
    // A cache of this process; `view` has room for its neighbours.
    struct member {
        cache_device* device;
        engine::cache_view view;
    };

    explicit links(std::vector<member> members, std::uint32_t guests = 0);
    ~links();
    links(const links&) = delete;
    links& operator=(const links&) = delete;

    // `reader` may read the memory of `owner` and finds it at the owner's own addresses. 0, or why
    // the reader's device did not take that.
    int connect(std::uint32_t reader, std::uint32_t owner, engine::neighbour_distance distance);
    // For the registry of that member. It lives as long as this.
    [[nodiscard]] life_observer& observer(std::uint32_t member);

    // A guest comes: the members find it where `view` says. 0, or why a device did not take that.
    // `connect_guest` follows when no reader is left that began before this: a reader that finds an
    // entry has to find the view too.
    int place(std::uint32_t guest, const engine::neighbour_view& view);
    void connect_guest(std::uint32_t guest);
    // A guest has this life, in place of what was in its slot.
    void guest_has(std::uint32_t guest, const file_life& life, bool is_written);
    void guest_has_none(std::uint32_t guest, std::uint32_t slot);
    // A guest goes: no entry leads to it when this returns. Groups may still be reading by what
    // they looked at before.
    void withdraw(std::uint32_t guest);
    // Every device has what was told before this call.
    void settle();

    // Takes all entries away. Groups may still be reading by what they looked at before.
    void withdraw_all();

    // In how many pairs of slots, each counted from both sides, files are shared now.
    [[nodiscard]] std::size_t shared_lives();
    // How many lives all calls have looked at to find what to upload.
    [[nodiscard]] std::uint64_t looks();

private:
    class member_observer;

    struct known_life {
        file_life life;
        bool is_written = false;
    };
    struct slot_of {
        std::uint32_t member, slot;
        auto operator<=>(const slot_of&) const = default;
    };
    // Of a file: size, modification time, change time.
    using version = std::tuple<std::uint64_t, std::int64_t, std::int64_t>;
    // There may be as many versions as slots. So a life that comes or goes leads to those of its
    // own version alone, and to all only where the first writer comes or the last one goes.
    struct known_file {
        std::map<version, std::set<slot_of>> versions;
        std::uint32_t writers = 0;
    };
    static version version_of(const file_life& life) {
        return {life.identity.size_bytes, life.identity.modified_ns, life.identity.changed_ns};
    }

    void note(std::uint32_t member, const file_life& life, bool is_written);
    void forget(std::uint32_t member, const file_life& life);
    // Table lock held.
    void forget_slot(const slot_of& of);
    void mark_changed(const std::set<slot_of>& lives);
    void mark_shared(const known_file& file);
    // What member `of` should find in its slot about each neighbour; table lock held.
    [[nodiscard]] std::vector<engine::neighbour_entry> entries_for(const slot_of& of);
    void upload(const slot_of& of, const std::vector<engine::neighbour_entry>& wanted);
    [[nodiscard]] std::uint32_t places() const;
    [[nodiscard]] std::uint32_t guest_member(std::uint32_t guest) const {
        return static_cast<std::uint32_t>(members_.size()) + guest;
    }
    [[nodiscard]] static std::uint32_t place_of(std::uint32_t reader, std::uint32_t owner) {
        return owner < reader ? owner : owner - 1;
    }

    const std::vector<member> members_;
    std::vector<std::unique_ptr<member_observer>> observers_;
    const std::uint32_t guests_;

    std::mutex uploads_mutex_;                                          // guards uploaded_
    std::map<slot_of, std::vector<engine::neighbour_entry>> uploaded_;  // what is not all zero

    std::mutex table_mutex_;                                            // guards the rest
    std::vector<std::vector<bool>> connected_;                          // [reader][owner]
    std::vector<std::unordered_map<std::uint32_t, known_life>> lives_;  // of each member, by slot
    std::map<file_key, known_file> files_;
    std::set<slot_of> changed_;
    std::uint64_t looks_ = 0;
    std::atomic<bool> any_changed_{false};
};

}  // namespace penstock::host
