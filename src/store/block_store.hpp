// The seam to a store of blocks between nodes: a block of a file, under a key that stands for one
// version of it. What moves, places and evicts the blocks is the store's affair
// (docs/protocol/block_store.md).
//
// A block never changes: another version of the file has other keys. So a store may forget blocks
// whenever it likes, and there is nothing to keep coherent. What it hands out is checked by the
// reader (store/block_object.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "store/hashes.hpp"

namespace penstock::host {

using block_key = sha256_digest;

// Of one thread, which waits in its calls, never longer than about `wait_ns`.
class block_store {
public:
    virtual ~block_store() = default;
    // The bytes of the object, which are in `to` now. -ENOENT: the store does not have it.
    // -ETIMEDOUT: it did not answer in time. Other negative errnos: it does not work.
    // `reads_file`: what the store does not have, the caller reads from the file and puts. While
    // one caller does so, the store may make others wait for it that would do so too, each for half
    // of its wait at most, so that the file server is asked once.
    virtual std::int64_t get(const block_key& key, std::span<std::byte> to, std::uint64_t wait_ns,
                             bool reads_file) = 0;
    // 0 or a negative errno as above; -ENOSPC: the store is full. `replaces`: an object that it has
    // under this key was bad.
    virtual int put(const block_key& key, std::span<const std::byte> from, bool replaces,
                    std::uint64_t wait_ns) = 0;
};

}  // namespace penstock::host
