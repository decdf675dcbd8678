// What a store keeps of a block: its bytes, and behind them a tail that says which block it is and
// what its bytes add up to. So a reader takes no torn object and no object of another key for the
// block. A store that makes up whole objects cannot be told from a right one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "os/env.hpp"
#include "store/block_store.hpp"

namespace penstock::host {

inline constexpr std::uint64_t block_bytes = std::uint64_t{2} << 20, block_tail_bytes = 64,
                               block_object_bytes = block_bytes + block_tail_bytes;

// Which file, in which version. The device is not in it: another node has another number for it.
// `path` is the place inside the file system (os/file_system.hpp).
struct block_file {
    std::string space;  // that files of different clusters do not mix
    std::string path;
    std::string file_system;  // type and source of a network file system; of a local one nothing
    std::uint64_t size_bytes = 0;
    std::int64_t modified_ns = 0, changed_ns = 0;
    // Of the inode, where all nodes see the same one; else 0. Two directories that exchange their
    // names leave the times of their files as they were, and this number alone tells those apart.
    std::uint64_t number = 0;
};

block_key key_of(const block_file& file, std::uint64_t number);

// How many bytes block `number` of a file of that size has.
std::uint64_t bytes_of_block(std::uint64_t size_bytes, std::uint64_t number);

// Writes the tail behind the block's bytes, for which there is room.
void write_tail(std::byte* block, std::uint64_t bytes, const block_key& key);

// Is it the whole object of that block? `checks_sum` false is for a test that shows what the sum is
// good for.
bool is_whole(std::span<const std::byte> object, std::uint64_t bytes, const block_key& key,
              bool checks_sum = true);

}  // namespace penstock::host
