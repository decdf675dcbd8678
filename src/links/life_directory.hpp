// The lives that a runtime offers to other processes, in memory that they map for reading: one
// record for each file slot, and a list of which changed.
//
// One process writes, and there one thread at a time. A record has a number that is odd while it
// changes (a sequence lock). A change is listed, and then the version grows by one. A reader keeps
// the version that it has seen, and reads the records of what was listed since; if that is more
// than the list has, it reads all.
//
// The reader believes nothing: slots and generations have bounds, a record that stays odd has no
// life, and no loop depends on what it finds. Files are compared with its own.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "files/life_observer.hpp"
#include "os/shared_memory.hpp"

namespace penstock::host {

enum class offered : std::uint64_t { nothing, to_read, written };

struct life_record {
    std::uint64_t number;  // odd: under change
    std::uint64_t state;   // an `offered`
    std::uint64_t generation;
    std::uint64_t table;
    std::uint64_t two_level;
    std::uint64_t device, inode, size_bytes, modified_ns, changed_ns;
    std::uint64_t reserved[6];
};
static_assert(sizeof(life_record) == 128);

inline constexpr std::uint64_t listed_changes = 4096;

struct life_header {
    std::uint64_t version;  // how many changes there were
    std::uint64_t reserved[15];
    std::uint64_t changed[listed_changes];  // change v is of the slot in changed[v % size]
};

constexpr std::uint64_t directory_bytes(std::uint64_t file_slots) {
    return sizeof(life_header) + file_slots * sizeof(life_record);
}

class life_directory {
public:
    // 0, or a negative errno.
    int make(std::uint32_t file_slots) { return memory_.make(directory_bytes(file_slots)); }
    // The version with that change.
    std::uint64_t set(const file_life& life, offered state);
    [[nodiscard]] std::uint64_t version() const;
    [[nodiscard]] const shared_memory& memory() const { return memory_; }

private:
    shared_memory memory_;
};

class life_reader {
public:
    struct bounds {
        std::uint32_t file_slots;
        std::uint64_t word_count;
    };
    // `begin`: directory_bytes(file_slots) of another process.
    life_reader(const std::byte* begin, const bounds& of)
        : begin_(begin), of_(of), version_(0), is_new_(true) {}

    using taker = std::function<void(offered state, const file_life& life)>;
    // Gives all that changed since the last call, of a slot perhaps more than once. Returns the
    // version up to which everything was given.
    std::uint64_t read(const taker& take);
    [[nodiscard]] std::uint64_t version() const { return version_; }

private:
    [[nodiscard]] const life_header& header() const {
        return *reinterpret_cast<const life_header*>(begin_);
    }
    bool read_slot(std::uint32_t slot, const taker& take);
    void read_all(const taker& take);

    const std::byte* begin_;
    const bounds of_;
    std::uint64_t version_;
    bool is_new_;
    std::vector<std::uint32_t> again_;  // records that were under change at the last call
};

}  // namespace penstock::host
