#include "mount/file_numbers.hpp"

namespace penstock::mount {

file_numbers::file_numbers(dev_t own) : own_(own) {
    used_[none_left] = true;
    used_[reserved_upper] = true;
}

// With the lock.
std::uint64_t file_numbers::upper_for(const inode_key& file) {
    const std::uint64_t wanted = file.inode >> rest_bits;
    if (file.device == own_ && !used_[wanted]) return wanted;
    while (next_ < used_.size() && used_[next_]) ++next_;
    return next_ < used_.size() ? next_ : none_left;
}

std::uint64_t file_numbers::of(const inode_key& file) {
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
