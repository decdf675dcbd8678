// The host of an explored program: a fiber that answers requests as the service thread does, at
// once, late or never.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "explore/world.hpp"

namespace penstock::explore_kit {

// What word `word` of page `page` of inode `inode` holds.
constexpr std::uint64_t content(std::uint64_t inode, std::uint64_t page, std::uint64_t word) {
    return inode << 32 | (page + 1) << 16 | (word + 1);
}

struct host_file {
    std::string name;
    std::uint64_t inode;
    std::uint64_t size_bytes;
    bool two_level = false;
};

enum class timing {
    at_once,
    late,
    never
};  // late: when all waiting lanes have run out of patience

struct plan {
    timing when = timing::at_once;
    std::int64_t error = 0;
    bool twist = false;         // read: one byte short of what was asked
    std::uint64_t late_ns = 1;  // of the clock, which jumps by 1000 when all lanes wait
};

class host {
public:
    explicit host(world& w) : world_(w) {}

    std::vector<host_file> files;
    std::uint64_t written_bytes = 0;  // how far the file reaches that is written
    std::function<plan(const engine::ring_request&)> decide = [](const auto&) { return plan{}; };

    struct counts {
        std::uint32_t opens, reads, retires, leaves, fills, writes, cuts;
        std::uint32_t lost_opens, lost_writes;  // that it heard of
    };
    counts asked{};

    void reset() {
        asked = {};
        path_next_ = 0;
        for (auto& s : slots_) s = {};
        for (auto& e : extents_) e = {};
    }

    // Has the host no writer for the file in that slot any more?
    [[nodiscard]] bool settled(std::uint32_t slot) const { return slots_[slot].is_settled; }

    // As if `inode` had been given the slot already (world::open_now does the other half).
    void given_already(std::uint32_t slot, std::uint64_t inode, std::uint32_t generation = 1) {
        slots_[slot] = {inode, generation, true};
    }

    // As if a later life of the slot had ended already.
    void taken_back_already(std::uint32_t slot, std::uint32_t generation) {
        slots_[slot] = {0, generation, false};
    }

    // Room for a name of one unit that was given out before the scenario begins; its place + 1.
    std::uint32_t path_given_already() {
        extents_[0] = {path_next_, 1};
        return ++path_next_;
    }

    // Is the slot, in this generation, the inode's?
    bool gave(std::uint32_t slot, std::uint32_t generation, std::uint64_t inode) const {
        return slots_[slot].in_use && slots_[slot].generation == generation &&
               slots_[slot].inode == inode;
    }

    // The body of the service fiber.
    void serve() {
        std::uint64_t late[engine_tickets], late_count = 0;
        std::uint64_t due[engine_tickets];
        plan planned_late[engine_tickets];
        for (std::uint64_t next = world_.memory.tail;;) {
            const std::uint64_t now = explore::explorer::current()->now();
            for (std::uint64_t i = 0; i < late_count; ++i) {
                if (now < due[i] || due[i] == 0) continue;
                due[i] = 0;
                answer(late[i], planned_late[i]);
            }
            const engine::ring_request& slot = request(next);
            if (atomic_load<order::acquire, scope::system>(&slot.published) != next + 1) {
                explore::explorer::current()->pause();
                continue;
            }
            const plan planned = decide(slot);
            if (planned.when == timing::at_once) answer(next, planned);
            if (planned.when == timing::late) {
                explore::require(late_count < engine_tickets, "the test needs a longer list");
                late[late_count] = next;
                planned_late[late_count] = planned;
                due[late_count++] = now + planned.late_ns;
            }
            ++next;
        }
    }

    // Extents of the path arena that were given out and did not come back.
    std::uint32_t paths_out() const {
        std::uint32_t out = 0;
        for (const auto& e : extents_) out += e.units != 0;
        return out;
    }

private:
    static constexpr std::uint64_t engine_tickets = 8;
    struct given_slot {
        std::uint64_t inode = 0;
        std::uint32_t generation = 0;
        bool in_use = false;
        bool is_settled = false;  // the host has no writer for it any more
        std::uint64_t epoch = 0;  // how many opens were answered with it
        std::uint64_t lost = 0;   // of these, that no lane took
    };
    struct extent {
        std::uint32_t at = 0, units = 0;
    };

    static bool is_about_written(engine::op operation) {
        return operation == engine::op::write || operation == engine::op::truncate;
    }
    const engine::ring_request& request(std::uint64_t ticket) const {
        return world_.memory.requests[engine::slot_of(world_.view.rings[0], ticket)];
    }

    void answer(std::uint64_t ticket, const plan& planned);
    std::int64_t write_page(const engine::ring_request& posted, const std::byte* staging,
                            const plan& planned);
    std::int64_t read_page(const engine::ring_request& posted, std::byte* staging,
                           const plan& planned);
    std::int64_t cut(const engine::file_request& asked_for, const plan& planned);
    void fill_pages(const engine::ring_request& posted, const std::byte* staging,
                    const plan& planned);
    std::int64_t open_name(const engine::ring_request& posted, const std::byte* staging,
                           engine::ring_reply& reply);
    void take_path_back(std::uint64_t at, std::uint64_t units);
    const host_file* file_of(std::uint64_t inode) const;

    world& world_;
    given_slot slots_[max_files];
    extent extents_[16];
    std::uint32_t path_next_ = 0;
};

inline const host_file* host::file_of(std::uint64_t inode) const {
    for (const host_file& f : files)
        if (f.inode == inode) return &f;
    return nullptr;
}

inline void host::answer(std::uint64_t ticket, const plan& planned) {
    const engine::ring_request& posted = request(ticket);
    const std::uint32_t slot = engine::slot_of(world_.view.rings[0], ticket);
    std::byte* const staging = world_.memory.staging + slot * staging_bytes;
    engine::ring_reply& reply = world_.memory.replies[slot];
    const bool of_file =
        posted.operation != engine::op::open && posted.operation != engine::op::ping;
    explore::require(atomic_load<order::relaxed, scope::system>(&posted.published) == ticket + 1,
                     "a request changed before it was answered");
    explore::require(!of_file || (posted.file_slot < max_files && slots_[posted.file_slot].in_use &&
                                  slots_[posted.file_slot].generation == posted.generation),
                     "the host was asked about a file that it did not give");
    explore::require(!is_about_written(posted.operation) || !slots_[posted.file_slot].is_settled,
                     "a file was settled while a group wrote it");
    if ((posted.lost_extent & engine::lost_open_bit) != 0) {
        ++asked.lost_opens;
        const std::uint64_t of = reply.words[engine::reply_slot_and_generation];
        given_slot& lost = slots_[of % max_files];
        if (lost.generation == of >> 32) ++lost.lost;
        if ((posted.lost_extent & engine::lost_write_bit) != 0) ++asked.lost_writes;
    }
    if (static_cast<std::uint32_t>(posted.lost_extent) != 0)
        take_path_back(
            static_cast<std::uint32_t>(posted.lost_extent) - 1,
            (posted.lost_extent & ~(engine::lost_open_bit | engine::lost_write_bit)) >> 32);
    for (auto& w : reply.words) w = ~std::uint64_t{0};
    reply.result = planned.error;
    if (posted.operation == engine::op::read) {
        ++asked.reads;
        reply.result = read_page(posted, staging, planned);
    } else if (posted.operation == engine::op::write) {
        ++asked.writes;
        reply.result = write_page(posted, staging, planned);
    } else if (posted.operation == engine::op::truncate) {
        ++asked.cuts;
        reply.result = cut(engine::file_request::of(posted), planned);
    } else if (posted.operation == engine::op::settle) {
        const engine::file_request settled = engine::file_request::of(posted);
        given_slot& s = slots_[settled.file_slot];
        if (s.epoch - s.lost == settled.answers) s.is_settled = true;
    } else if (posted.operation == engine::op::fill) {
        ++asked.fills;
        fill_pages(posted, staging, planned);
    } else if (posted.operation == engine::op::open) {
        ++asked.opens;
        if (posted.offset != 0) take_path_back(posted.offset - 1, posted.argument);
        reply.words[engine::reply_path_and_flags] = 0;
        reply.result = planned.error != 0 ? planned.error : open_name(posted, staging, reply);
    } else if (posted.operation == engine::op::retire) {
        ++asked.retires;
        slots_[posted.file_slot].in_use = false;
    } else if (posted.operation == engine::op::leaf) {
        ++asked.leaves;
        reply.words[0] = 16 + posted.file_slot * 4 + (posted.offset << world_.view.leaf_shift);
    }
    if (posted.operation == engine::op::ping) reply.words[0] = posted.offset;  // an echo
    atomic_store<order::release, scope::system>(&reply.completed, ticket + 1);
}

inline std::int64_t host::read_page(const engine::ring_request& posted, std::byte* staging,
                                    const plan& planned) {
    if (planned.error != 0) return planned.error;
    for (std::uint64_t i = 0; i < words_per_page; ++i) {
        std::uint64_t value =
            content(slots_[posted.file_slot].inode, posted.offset >> page_shift, i);
        if (posted.argument == 1) {
            explore::point(&world_.memory.disk[posted.offset / 8 + i], false);
            value = world_.memory.disk[posted.offset / 8 + i];
        }
        const std::uint64_t from = i * 8, left = from < posted.bytes ? posted.bytes - from : 0;
        explore::point(staging + from, true);
        std::memset(staging + from, 0xee, 8);  // leftovers behind the end of the file
        std::memcpy(staging + from, &value, left < 8 ? left : 8);
    }
    return static_cast<std::int64_t>(posted.bytes) - (planned.twist ? 1 : 0);
}

// Only the marked bytes.
inline std::int64_t host::write_page(const engine::ring_request& posted, const std::byte* staging,
                                     const plan& planned) {
    if (planned.error != 0) return planned.error;
    std::uint64_t marks = 0;
    std::memcpy(&marks, staging + page_bytes, 8);
    for (std::uint64_t i = 0; i < words_per_page; ++i) {
        if ((marks >> (8 * i) & 0xff) == 0) continue;
        explore::point(staging + i * 8, false);
        explore::point(&world_.memory.disk[posted.offset / 8 + i], true);
        for (std::uint64_t k = 0; k < 8; ++k)
            if ((marks >> (8 * i + k) & 1) != 0)
                reinterpret_cast<std::byte*>(&world_.memory.disk[posted.offset / 8 + i])[k] =
                    staging[i * 8 + k];
        written_bytes = std::max(written_bytes, posted.offset + (i + 1) * 8);
    }
    return 0;
}

inline std::int64_t host::cut(const engine::file_request& asked_for, const plan& planned) {
    if (planned.error != 0) return planned.error;
    for (std::uint64_t at = asked_for.size_bytes; at < written_bytes; at += 8) {
        explore::point(&world_.memory.disk[at / 8], true);
        world_.memory.disk[at / 8] = 0;
    }
    written_bytes = asked_for.size_bytes;
    return 0;
}

inline void host::fill_pages(const engine::ring_request& posted, const std::byte* staging,
                             const plan& planned) {
    const std::uint32_t pages = (posted.bytes + page_bytes - 1) / page_bytes;
    for (std::uint32_t p = 0; p < pages; ++p) {
        const std::uint32_t frame = reinterpret_cast<const std::uint32_t*>(staging)[p];
        explore::require(frame < world_.view.tier.frame_count,
                         "a fill names a frame that does not exist");
        for (std::uint64_t i = 0; i < words_per_page; ++i) {
            const std::uint64_t value =
                planned.error != 0
                    ? 0xeeeeeeee
                    : content(slots_[posted.file_slot].inode, (posted.offset >> page_shift) + p, i);
            std::byte* const to = world_.memory.tier_frames + frame * page_bytes + i * 8;
            explore::point(to, true);
            std::memcpy(to, &value, 8);
        }
        atomic_store<order::release, scope::system>(
            &world_.memory.done_marks[frame],
            posted.argument | (planned.error != 0 ? engine::fill_failed : 0));
    }
}

inline void host::take_path_back(std::uint64_t at, std::uint64_t units) {
    for (auto& e : extents_) {
        if (e.units == 0 || e.at != at || e.units != units) continue;
        e = {};
        return;
    }
    explore::violation("a path extent came back that was not out");
}

inline std::int64_t host::open_name(const engine::ring_request& posted, const std::byte* staging,
                                    engine::ring_reply& reply) {
    const std::string name(reinterpret_cast<const char*>(staging), posted.bytes);
    for (auto& e : extents_) {
        if (e.units != 0) continue;
        e = {path_next_, (posted.bytes + 7) / 8};
        path_next_ += e.units;
        reply.words[engine::reply_path_and_flags] = e.at + 1;
        break;
    }
    const host_file* file = nullptr;
    for (const host_file& f : files)
        if (f.name == name) file = &f;
    if (file == nullptr) return -ENOENT;
    std::uint32_t slot = world_.view.file_slots;
    for (std::uint32_t i = 0; i < world_.view.file_slots; ++i)
        if (slots_[i].in_use && slots_[i].inode == file->inode) slot = i;
    for (std::uint32_t i = 0; i < world_.view.file_slots && slot == world_.view.file_slots; ++i)
        if (!slots_[i].in_use) {
            slot = i;
            slots_[i] = {file->inode, (slots_[i].generation + 1) & engine::file_generation_mask,
                         true};
        }
    if (slot == world_.view.file_slots) return -ENFILE;
    reply.words[engine::reply_slot_and_generation] = slot | std::uint64_t{slots_[slot].generation}
                                                                << 32;
    reply.words[engine::reply_size_bytes] = file->size_bytes;
    reply.words[engine::reply_table] = slot * 8;
    if (file->two_level) reply.words[engine::reply_path_and_flags] |= std::uint64_t{1} << 32;
    if ((engine::open_request::of(posted).flags & engine::access_mask) != engine::may_read)
        slots_[slot].is_settled = false;  // an open to read brings no writer
    reply.words[engine::reply_path_and_flags] |= ++slots_[slot].epoch << 33;
    reply.words[engine::reply_inode] = file->inode;
    reply.words[engine::reply_modified_ns] = 0;
    return 0;
}

}  // namespace penstock::explore_kit
