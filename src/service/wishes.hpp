// Wishes that wait: ranges of files that kernels will need (engine/wish.hpp), until the operating
// system is asked to read them into its page cache. One service thread owns a set.
//
// A call that asks may take a moment: the operating system starts the reads in it, and waits for
// room in the disk's queue. So the thread asks for a few ranges at a time, and looks at its rings
// in between.
//
// The device may be wrong or hostile: a wish for what is no part of an open file is passed over.
#pragma once

#include <cstdint>
#include <map>

#include "files/file_registry.hpp"

namespace penstock::host {

struct wish {
    std::uint32_t slot = 0, generation = 0;
    std::uint64_t offset = 0, bytes = 0;
};

class wish_set {
public:
    // Of the ranges of one set.
    static constexpr std::size_t most_wishes = 65536;
    // The operating system takes no more than about this much of one call.
    static constexpr std::uint64_t most_call_bytes = 128 << 10;

    explicit wish_set(environment& env, std::size_t most = most_wishes) : env_(env), most_(most) {}

    // Wishes for all pages of the operating system that the range touches. False: there is no room,
    // and the wish is dropped. A range that the set has already takes no room.
    bool add(const wish& wanted);
    [[nodiscard]] bool empty() const { return wishes_.empty(); }
    // Asks for the next ranges of the set, in the order of their places in files, in up to `calls`
    // calls; neighbours go together, and what lies in memory is left out. find(slot, generation,
    // handle, size_bytes) gives the file. Returns how many calls it made.
    template <typename Find>
    std::uint32_t ask(std::uint32_t calls, const Find& find) {
        std::uint32_t made = 0;
        for (std::uint32_t i = 0; i < calls && !empty(); ++i) {
            const wish next = take();
            std::shared_ptr<shared_handle> file;
            std::uint64_t size_bytes = 0;
            if (find(next.slot, next.generation, file, size_bytes) == 0)
                made += ask_for(next, *file, size_bytes);
        }
        return made;
    }

private:
    struct place {
        std::uint32_t slot, generation;
        std::uint64_t offset;
        auto operator<=>(const place&) const = default;
    };
    // Up to most_call_bytes, from the hand on.
    wish take();
    std::uint32_t ask_for(const wish& range, const shared_handle& file, std::uint64_t size_bytes);

    environment& env_;
    const std::size_t most_;
    std::map<place, std::uint64_t> wishes_;  // to their lengths in bytes
    place hand_{};                           // where the last one ended
};

}  // namespace penstock::host
