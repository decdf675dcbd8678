#include "files/shared_handle.hpp"

#include <cerrno>
#include <new>

#include "penstock/base/hash.hpp"
#include "penstock/error.hpp"

namespace penstock::host {

bool read_choice::is_warm() const {
    return lately_cached_.load(std::memory_order_relaxed) >= proof;
}

bool read_choice::is_time_to_try() {
    return tries_.fetch_add(1, std::memory_order_relaxed) % proof == 0;
}

void read_choice::found_cached() {
    const std::uint32_t so_far = lately_cached_.load(std::memory_order_relaxed);
    if (so_far < proof) lately_cached_.store(so_far + 1, std::memory_order_relaxed);
}

void read_choice::found_absent() {
    if (lately_cached_.load(std::memory_order_relaxed) != 0)
        lately_cached_.store(0, std::memory_order_relaxed);
}

bool read_choice::pays_to_go_past(std::uint64_t offset, std::uint32_t bytes) {
    const bool random = looks_random(offset);
    return random && bytes <= longest_random && is_first(offset);
}

// Many readers stride through one file at a time, so a read counts as sequential if it is near any
// of the last sixteen reads. A few sequential reads outweigh many random reads.
bool read_choice::looks_random(std::uint64_t offset) {
    bool near = false;
    for (const auto& recent : recent_) {
        const std::uint64_t other = recent.load(std::memory_order_relaxed);
        near = near ||
               (other != none && (offset > other ? offset - other : other - offset) <= near_bytes);
    }
    recent_[turn_.fetch_add(1, std::memory_order_relaxed) % recent_.size()].store(
        offset, std::memory_order_relaxed);
    const std::int32_t before = far_.load(std::memory_order_relaxed);
    const std::int32_t now = near ? before - 4 : before + 1;
    far_.store(now < 0 ? 0 : now > 64 ? 64 : now, std::memory_order_relaxed);
    return !near && now >= far_enough;
}

// Bits for the places of a file, made when they are first needed. Two places may share a bit, and
// then the second place counts as known. Without memory for the bits no read goes past the page
// cache.
bool read_choice::is_first(std::uint64_t offset) {
    std::uint64_t* bits = seen_.load(std::memory_order_acquire);
    if (bits == nullptr) {
        std::unique_ptr<std::uint64_t[]> fresh(new (std::nothrow) std::uint64_t[seen_words]());
        // Release: pairs with the load above and below; the zeros are there.
        if (fresh != nullptr &&
            seen_.compare_exchange_strong(bits, fresh.get(), std::memory_order_acq_rel))
            bits = fresh.release();
    }
    if (bits == nullptr) return false;
    const std::uint64_t place = mix64(offset / 4096) % (seen_words * 64),
                        bit = std::uint64_t{1} << place % 64;
    return (std::atomic_ref<std::uint64_t>(bits[place / 64])
                .fetch_or(bit, std::memory_order_relaxed) &
            bit) == 0;
}

shared_handle::~shared_handle() {
    if (const int direct = direct_fd_.load(); direct >= 0) env_.close(direct);
    env_.close(fd_);
}

read_way shared_handle::choose(read_operation& operation, const io_engine& io) {
    if (mode() == direct_mode::on && make_direct(operation)) return read_way::direct;
    const bool can = io.reads_at_once() && !at_once_refused_.load(std::memory_order_relaxed);
    bool at_once = can && choice_.is_warm();
    if (can && !at_once) {
        // Trying would make the kernel begin to read what is missing, so it is asked first where it
        // matters.
        const int cached = mode() == direct_mode::automatic
                               ? env_.in_page_cache(fd_, operation.offset, operation.bytes)
                               : -EOPNOTSUPP;
        if (cached == 0 && choice_.pays_to_go_past(operation.offset, operation.bytes) &&
            make_direct(operation))
            return read_way::direct;
        at_once = cached > 0 || (cached < 0 && choice_.is_time_to_try());
    }
    if (!at_once) return choose_other(operation);
    operation.fd = fd_;
    operation.at_once = true;
    return read_way::at_once;
}

read_way shared_handle::choose_other(read_operation& operation) const {
    operation.fd = fd_;
    operation.at_once = operation.direct = false;
    return read_way::queued;
}

bool shared_handle::must_go_another_way(read_way way, std::int64_t result) {
    if (way == read_way::queued) return false;
    if (way == read_way::direct) {
        // What a direct read may not do, or not into this memory, a plain one may.
        if (result != -EINVAL && result != -EFAULT && result != -EOPNOTSUPP) return false;
        refuse_direct(static_cast<int>(result));
        return true;
    }
    if (result >= 0) {
        choice_.found_cached();
        return false;
    }
    if (result == -EAGAIN) choice_.found_absent();
    // Not every file system and kernel can say what is in memory.
    else if (result == -EOPNOTSUPP || result == -EINVAL || result == -ENOSYS)
        at_once_refused_.store(true, std::memory_order_relaxed);
    else return false;
    return true;
}

// Pages are no smaller than the grain, so the last part of a file can be read to the end of its
// last grain and still stay within the place of a page; the file ends before that, and the read is
// short.
bool shared_handle::make_direct(read_operation& operation) {
    if (direct_refused_.load(std::memory_order_relaxed)) return false;
    const int direct = direct_fd();
    if (direct < 0 || grain_bytes_ > settings_->page_bytes) return false;
    const std::uint64_t in_grain = grain_bytes_ - 1;
    if (((operation.offset | reinterpret_cast<std::uintptr_t>(operation.to)) & in_grain) != 0)
        return false;
    operation.bytes = static_cast<std::uint32_t>((operation.bytes + in_grain) & ~in_grain);
    operation.fd = direct;
    operation.direct = true;
    return true;
}

int shared_handle::direct_fd() {
    int known = direct_fd_.load(std::memory_order_acquire);
    if (known != not_yet || !direct_fd_.compare_exchange_strong(known, opening)) return known;
    const int direct = env_.open_direct(fd_, grain_bytes_);
    // Release: pairs with the load above; a thread that sees the handle sees the grain.
    direct_fd_.store(direct >= 0 ? direct : refused, std::memory_order_release);
    if (direct < 0) refuse_direct(direct);
    return direct;
}

void shared_handle::refuse_direct(int code) {
    direct_refused_.store(true, std::memory_order_relaxed);
    if (settings_->said.exchange(true) || !settings_->say) return;
    settings_->say(
        "direct_io: reads of some files go through the page cache, since their file system refuses "
        "O_DIRECT: " +
        error_text(code));
}

}  // namespace penstock::host
