#include "table/table_windows.hpp"

#include <algorithm>
#include <cerrno>

namespace penstock::host {

namespace {

// A look takes as long for so many pages of the operating system as one row's system call.
constexpr std::uint64_t pages_a_row = 32, os_page_bytes = 4096;

constexpr std::uint64_t most_factor = 64;

// So many chunks are looked at together, and so many rows pay for that.
constexpr std::uint64_t chunks_a_growth = 64, rows_a_growth = 1024;

}  // namespace

table_windows::table_windows(runtime_state& state, std::vector<part> parts)
    : state_(state), parts_(std::move(parts)), growth_due_(rows_a_growth) {
    std::uint64_t pages = 0;
    for (const part& p : parts_) pages += p.bytes / os_page_bytes + 1;
    price_rows_ = pages / pages_a_row + 1;
    due_ = price_rows_;
}

table_windows::~table_windows() {
    // A child of fork() leaves the parent's windows alone.
    if (state_.owner.here()) state_.windows_of_rows.set->close_of(this);
}

std::int64_t table_windows::open_locked() {
    spent_ = 0;
    std::int64_t sum = 0, all = 0, first_error = 0;
    bool any = false;
    for (const part& p : parts_) {
        const std::int64_t inside =
            state_.open_windows(*state_.windows_of_rows.set, p.fd, p.offset, p.bytes, this);
        all += static_cast<std::int64_t>(p.bytes);
        any = any || inside >= 0;
        if (inside > 0) sum += inside;
        if (inside < 0 && first_error == 0) first_error = inside;
    }
    is_whole_ = sum == all;
    factor_ = is_whole_ || sum > inside_ ? 1 : std::min(2 * factor_, most_factor);
    inside_ = sum;
    ++looks_;
    due_ = factor_ * price_rows_;
    return any ? sum : first_error;
}

std::int64_t table_windows::open() {
    const std::lock_guard lock(mutex_);
    return open_locked();
}

std::int64_t table_windows::grow_locked(std::size_t most_chunks, bool completes) {
    spent_on_growth_ = 0;
    const auto chunks = state_.asked->take(
        [this](const asked_chunks::chunk& c) {
            return std::any_of(parts_.begin(), parts_.end(), [&](const part& p) {
                return engine::descriptor_slot(state_.ref.view, p.fd) == c.slot;
            });
        },
        most_chunks);
    const std::int64_t taken =
        state_.grow_windows(*state_.windows_of_rows.set, chunks, this, completes);
    growth_factor_ = taken > 0 || chunks.empty() ? 1 : std::min(2 * growth_factor_, most_factor);
    growth_due_ = growth_factor_ * rows_a_growth;
    return taken;
}

std::int64_t table_windows::grow() {
    const std::lock_guard lock(mutex_);
    return grow_locked(SIZE_MAX, true);
}

void table_windows::spend(std::uint64_t rows) {
    spent_ += rows;
    spent_on_growth_ += rows;
    const auto is_due = [this] { return spent_ >= due_; };
    const auto may_grow = [this] { return looks_ != 0 && spent_on_growth_ >= growth_due_; };
    if (!is_due() && !may_grow()) return;
    const std::unique_lock lock(mutex_, std::try_to_lock);
    if (!lock.owns_lock()) return;
    try {
        if (is_due()) open_locked();
        else if (may_grow()) grow_locked(chunks_a_growth, false);  // its caller waits for rows
    } catch (...) {  // no memory for it: system calls go on
    }
}

}  // namespace penstock::host
