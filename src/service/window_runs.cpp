#include "service/window_runs.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "penstock/engine/layout.hpp"

namespace penstock::host {

using engine::window_chunk_bytes;

exposed_run::exposed_run(window_runs& owner, void* address, std::uint64_t bytes,
                         std::uint64_t first_chunk)
    : owner_(owner), address_(address), bytes_(bytes), first_chunk_(first_chunk) {
    PENSTOCK_ASSERT(bytes <= most_run_chunks * window_chunk_bytes);
}

exposed_run::~exposed_run() {
    owner_.withdraw(*this);
    std::uint64_t exposed = 0;
    for (const piece& p : pieces_) {
        owner_.device_.conceal(p.address);
        exposed += p.bytes;
    }
    owner_.env_.unmap_file(address_, bytes_);
    const std::lock_guard lock(owner_.mutex_);
    owner_.exposed_bytes_ -= exposed;
}

bool exposed_run::expose(std::uint64_t chunk, std::uint64_t bytes, std::string& why) {
    std::byte* const from =
        static_cast<std::byte*>(address_) + (chunk - first_chunk_) * window_chunk_bytes;
    constexpr std::uint64_t os_page_bytes = 4096;
    pieces_.reserve(pieces_.size() + 1);  // what is exposed is noted
    // Exposes up to the end of the last page: groups fetch 16 bytes at a time, also at the end of
    // the file.
    if (!owner_.device_.expose(from, (bytes + os_page_bytes - 1) / os_page_bytes * os_page_bytes,
                               owner_.are_shared(), why))
        return false;
    pieces_.push_back({from, chunk, bytes});
    const std::lock_guard lock(owner_.mutex_);
    owner_.exposed_bytes_ += bytes;
    return true;
}

std::uint64_t exposed_run::address_of(std::uint64_t chunk) const {
    for (const piece& p : pieces_)
        if (chunk >= p.first_chunk && (chunk - p.first_chunk) * window_chunk_bytes < p.bytes)
            return reinterpret_cast<std::uintptr_t>(p.address +
                                                    (chunk - p.first_chunk) * window_chunk_bytes);
    return 0;
}

std::uint64_t window_runs::exposed_bytes() {
    const std::lock_guard lock(mutex_);
    return exposed_bytes_;
}

std::uint64_t window_runs::room() {
    const std::lock_guard lock(mutex_);
    return budget_bytes_ - std::min(budget_bytes_, exposed_bytes_);
}

void window_runs::offer(const file_identity& file, const std::shared_ptr<exposed_run>& run) {
    const std::lock_guard lock(mutex_);
    const std::uint64_t first = run->first_chunk_, key = key_of(file, block_of(first)),
                        end = first + (run->bytes_ + window_chunk_bytes - 1) / window_chunk_bytes;
    offered_.emplace(key, offered_run{file, run.get(), first, end, run});
    run->offered_under_ = key;
}

std::shared_ptr<exposed_run> window_runs::find(const file_identity& file, std::uint64_t chunk) {
    // A run that is looked at here may lose its last other owner meanwhile, and its end takes the
    // lock.
    std::vector<std::shared_ptr<exposed_run>> looked_at;
    const std::lock_guard lock(mutex_);
    const std::uint64_t block = block_of(chunk);
    for (std::uint64_t before = 0; before <= std::min<std::uint64_t>(block, 1); ++before) {
        auto [at, end] = offered_.equal_range(key_of(file, block - before));
        looked_at.reserve(looked_at.size() + static_cast<std::size_t>(std::distance(at, end)));
        for (; at != end; ++at) {
            const offered_run& of = at->second;
            if (chunk < of.first_chunk || chunk >= of.end_chunk || !(of.file == file)) continue;
            std::shared_ptr<exposed_run> run = of.run.lock();
            if (run == nullptr) continue;
            if (run->address_of(chunk) != 0) return run;
            looked_at.push_back(std::move(run));
        }
    }
    return nullptr;
}

void window_runs::withdraw(exposed_run& run) {
    const std::lock_guard lock(mutex_);
    if (!run.offered_under_) return;
    auto [at, end] = offered_.equal_range(*run.offered_under_);
    while (at != end && at->second.address != &run) ++at;
    if (at != end) offered_.erase(at);
    run.offered_under_.reset();
}

}  // namespace penstock::host
