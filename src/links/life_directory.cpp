#include "links/life_directory.hpp"

#include "penstock/base/atomic.hpp"
#include "penstock/engine/file_word.hpp"

namespace penstock::host {

namespace {

life_record* records_of(std::byte* begin) {
    return reinterpret_cast<life_record*>(begin + sizeof(life_header));
}
const life_record* records_of(const std::byte* begin) {
    return reinterpret_cast<const life_record*>(begin + sizeof(life_header));
}

void put(std::uint64_t& word, std::uint64_t value) { atomic_store<order::relaxed>(&word, value); }
std::uint64_t get(const std::uint64_t& word) { return atomic_load<order::relaxed>(&word); }

}  // namespace

// Order: the odd number comes before what changes (a fence, which pairs with that of read_slot),
// what changes before the even number, and the list before the version (releases, which pair with
// the reader's acquires).
std::uint64_t life_directory::set(const file_life& life, offered state) {
    life_record& record = records_of(memory_.data())[life.slot];
    auto& header = *reinterpret_cast<life_header*>(memory_.data());
    const std::uint64_t number = get(record.number);
    put(record.number, number + 1);
    atomic_fence();
    put(record.state, static_cast<std::uint64_t>(state));
    put(record.generation, life.generation);
    put(record.table, life.table);
    put(record.two_level, life.two_level ? 1 : 0);
    put(record.device, life.identity.device);
    put(record.inode, life.identity.inode);
    put(record.size_bytes, life.identity.size_bytes);
    put(record.modified_ns, static_cast<std::uint64_t>(life.identity.modified_ns));
    put(record.changed_ns, static_cast<std::uint64_t>(life.identity.changed_ns));
    atomic_store<order::release>(&record.number, number + 2);
    const std::uint64_t version = get(header.version);
    put(header.changed[version % listed_changes], life.slot);
    atomic_store<order::release>(&header.version, version + 1);
    return version + 1;
}

std::uint64_t life_directory::version() const {
    return atomic_load<order::acquire>(
        &reinterpret_cast<const life_header*>(memory_.data())->version);
}

// False: it is under change, and was given as one without a life.
bool life_reader::read_slot(std::uint32_t slot, const taker& take) {
    constexpr int tries = 64;
    const life_record& record = records_of(begin_)[slot];
    file_life life;
    life.slot = slot;
    for (int i = 0; i < tries; ++i) {
        const std::uint64_t number = atomic_load<order::acquire>(&record.number);
        if ((number & 1) != 0) continue;
        const std::uint64_t state = get(record.state), generation = get(record.generation);
        life.generation = static_cast<std::uint32_t>(generation);
        life.table = get(record.table);
        life.two_level = get(record.two_level) != 0;
        life.identity = {get(record.device), get(record.inode), get(record.size_bytes),
                         static_cast<std::int64_t>(get(record.modified_ns)),
                         static_cast<std::int64_t>(get(record.changed_ns))};
        atomic_fence();
        if (get(record.number) != number) continue;
        const bool is_sound = (state == static_cast<std::uint64_t>(offered::to_read) ||
                               state == static_cast<std::uint64_t>(offered::written)) &&
                              generation != 0 && generation <= engine::file_generation_mask &&
                              life.table < of_.word_count;
        take(is_sound ? static_cast<offered>(state) : offered::nothing, life);
        return true;
    }
    take(offered::nothing, life);
    return false;
}

void life_reader::read_all(const taker& take) {
    again_.clear();
    for (std::uint32_t slot = 0; slot < of_.file_slots; ++slot)
        if (get(records_of(begin_)[slot].number) != 0 && !read_slot(slot, take))
            again_.push_back(slot);
}

std::uint64_t life_reader::read(const taker& take) {
    const std::uint64_t now = atomic_load<order::acquire>(&header().version);
    if (now == version_ && again_.empty() && !is_new_) return version_;
    // Also a version that went back: it is a lie, and reading all does no harm.
    if (is_new_ || now - version_ >= listed_changes) {
        read_all(take);
    } else {
        const std::vector<std::uint32_t> before = std::move(again_);
        again_.clear();
        const auto read = [&](std::uint64_t slot) {
            if (slot < of_.file_slots && !read_slot(static_cast<std::uint32_t>(slot), take))
                again_.push_back(static_cast<std::uint32_t>(slot));
        };
        for (const std::uint32_t slot : before) read(slot);
        for (std::uint64_t v = version_; v < now; ++v)
            read(get(header().changed[v % listed_changes]));
        // The list may have come round meanwhile, over places that were read after that. The fence
        // pairs with the release of the version: what is read of a later change comes with it.
        atomic_fence();
        if (get(header().version) - version_ >= listed_changes) read_all(take);
    }
    is_new_ = false;
    return version_ = now;
}

}  // namespace penstock::host
