// The inode numbers that a mount shows: one for each device and inode of the source, unique on the
// mount.
//
// A mount is one file system to programs, but its source may hold several, whose inodes have equal
// numbers. Programs that walk a tree (find, du, cp -a) take two folders of equal number for one.
//
// A number has upper bits (16) and a rest (48). Each pair of a device and upper bits gets upper
// bits of its own; the rest stays. The source's own device keeps its upper bits where they are
// free, so most sources show their own numbers. File systems whose numbers are hashes can use up
// all upper bits. After that a file gets the next number of a reserved range.
//
// A number stays as long as the mount lives, also while the kernel has forgotten the file.
#pragma once

#include <sys/types.h>

#include <bitset>
#include <cstdint>
#include <mutex>
#include <unordered_map>

namespace penstock::mount {

// The identity of a file, independent of its names.
struct inode_key {
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const inode_key&) const = default;
};
struct inode_key_hash {
    std::size_t operator()(const inode_key& k) const {
        return (k.device * 0x9e3779b97f4a7c15ull) ^ (k.inode * 0xff51afd7ed558ccdull);
    }
};

// Thread-safe.
class file_numbers {
public:
    // `own` is the device of the source directory.
    explicit file_numbers(dev_t own);

    // Throws std::bad_alloc.
    std::uint64_t of(const inode_key& file);

private:
    static constexpr unsigned rest_bits = 48;
    static constexpr std::uint64_t rest_mask = (std::uint64_t{1} << rest_bits) - 1;
    static constexpr std::uint64_t reserved_upper = 0xfffe;  // of files that are numbered singly
    static constexpr std::uint64_t none_left = 0;  // no pair gets these: the own device has them

    std::uint64_t upper_for(const inode_key& file);

    const dev_t own_;
    std::mutex lock_;
    // Guarded by lock_. Upper bits are found by a device and its own upper bits.
    std::unordered_map<inode_key, std::uint64_t, inode_key_hash> uppers_;
    std::bitset<1u << 16> used_;
    std::uint64_t next_ = 1;  // from where on upper bits may be free
    std::unordered_map<inode_key, std::uint64_t, inode_key_hash> single_;
};

inline file_numbers::file_numbers(dev_t own) : own_(own) {
    used_[none_left] = true;
    used_[reserved_upper] = true;
}

// With the lock.
inline std::uint64_t file_numbers::upper_for(const inode_key& file) {
    const std::uint64_t wanted = file.inode >> rest_bits;
    if (file.device == own_ && !used_[wanted]) return wanted;
    while (next_ < used_.size() && used_[next_]) ++next_;
    return next_ < used_.size() ? next_ : none_left;
}

inline std::uint64_t file_numbers::of(const inode_key& file) {
    if (file.device == own_ && file.inode >> rest_bits == 0) return file.inode;
    const std::lock_guard hold(lock_);
    const inode_key pair{file.device, file.inode >> rest_bits};
    auto known = uppers_.find(pair);
    if (known == uppers_.end()) {
        const std::uint64_t upper = upper_for(file);
        known = uppers_.emplace(pair, upper).first;
        used_[upper] = true;
    }
    if (known->second != none_left) return known->second << rest_bits | (file.inode & rest_mask);
    const auto [single, is_new] = single_.try_emplace(file, 0);
    if (is_new) single->second = reserved_upper << rest_bits | single_.size();
    return single->second;
}

}  // namespace penstock::mount
