#include "host/windows.hpp"

#include <algorithm>
#include <cerrno>

#include "penstock/engine/window.hpp"

namespace penstock::host {

namespace {

constexpr std::uint64_t chunk_bytes = engine::window_chunk_bytes;
constexpr std::uint64_t os_page_bytes = 4096;
// Mappings of this size at most: one registration of a very large range is reported to fail on some drivers.
constexpr std::uint64_t run_chunks = 512;

std::uint64_t chunks_of(std::uint64_t bytes) { return (bytes + chunk_bytes - 1) / chunk_bytes; }

}  // namespace

window_set::window_set(environment& env, cache_device& device, const engine::cache_view& view, std::uint64_t chunk_words,
                       std::uint64_t budget_bytes)
    : env_(env), device_(device), view_(view), budget_bytes_(budget_bytes), chunk_words_(chunk_words) {}

window_set::~window_set() { close_all(); }

window_set::opened* window_set::entry_of(const window_file& file) {
    if (const auto known = files_.find(file.slot); known != files_.end()) return &known->second;
    const std::uint64_t chunks = chunks_of(file.size_bytes);
    const auto first = chunk_words_.take(chunks);
    if (!first) return nullptr;
    return &files_.emplace(file.slot, opened{*first, std::vector<std::uint64_t>(chunks, 0)}).first->second;
}

int window_set::publish(const window_file& file, const opened& entry) {
    // The chunk words first: who sees the window word finds them in place.
    int code = device_.upload(view_.window_chunks + entry.first_chunk, entry.chunks.data(), entry.chunks.size() * 8);
    const std::uint64_t word = engine::make_window_word(file.generation, entry.first_chunk);
    if (code == 0) code = device_.upload(view_.windows + file.slot, &word, 8);
    return code;
}

int window_set::open_run(const window_file& file, opened& entry, std::uint64_t first, std::uint64_t last, std::string& note) {
    const std::uint64_t begin = first * chunk_bytes, bytes = std::min(last * chunk_bytes, file.size_bytes) - begin;
    void* address = nullptr;
    if (const int code = env_.map_file(file.fd, begin, bytes, address); code != 0) return code;
    std::vector<bool> resident;
    int code = env_.resident(address, bytes, chunk_bytes, resident);
    std::size_t exposed = 0;
    for (std::uint64_t at = first; code == 0 && at < last;) {
        std::uint64_t end = at;
        while (end < last && entry.chunks[end] == 0 && resident[end - first] &&
               open_bytes_ + (end + 1 - at) * chunk_bytes <= budget_bytes_)
            ++end;
        if (end == at) {
            ++at;
            continue;
        }
        std::byte* const from = static_cast<std::byte*>(address) + (at - first) * chunk_bytes;
        const std::uint64_t length = std::min(end * chunk_bytes, file.size_bytes) - at * chunk_bytes;
        // Up to the end of the last page: groups fetch 16 bytes at a time, also where the file ends.
        if (!device_.expose(from, (length + os_page_bytes - 1) / os_page_bytes * os_page_bytes, note)) {
            refused_ = true;
            break;
        }
        pieces_.push_back({from, length, true});
        for (std::uint64_t chunk = at; chunk < end; ++chunk)
            entry.chunks[chunk] = reinterpret_cast<std::uintptr_t>(from + (chunk - at) * chunk_bytes);
        open_bytes_ += length;
        ++exposed;
        at = end;
    }
    if (exposed == 0) env_.unmap_file(address, bytes);
    else pieces_.push_back({address, bytes, false});
    return code;
}

std::int64_t window_set::open(const window_file& file, std::uint64_t offset, std::uint64_t bytes, std::string& note) {
    if (offset >= file.size_bytes || bytes == 0) return 0;
    bytes = std::min(bytes, file.size_bytes - offset);
    const std::lock_guard lock(mutex_);
    opened* const entry = entry_of(file);
    if (entry == nullptr) return -ENOSPC;
    const std::uint64_t first = offset / chunk_bytes, last = chunks_of(offset + bytes);
    int code = 0;
    for (std::uint64_t at = first; at < last && code == 0 && !refused_; at += run_chunks)
        if (const std::uint64_t end = std::min(at + run_chunks, last);
            std::any_of(entry->chunks.begin() + static_cast<std::ptrdiff_t>(at),
                        entry->chunks.begin() + static_cast<std::ptrdiff_t>(end), [](std::uint64_t c) { return c == 0; }))
            code = open_run(file, *entry, at, end, note);
    // A file of which nothing is open has no window: a window would keep its slot from other files.
    if (std::all_of(entry->chunks.begin(), entry->chunks.end(), [](std::uint64_t c) { return c == 0; })) {
        chunk_words_.give(entry->first_chunk, entry->chunks.size());
        files_.erase(file.slot);
        return code != 0 ? code : refused_ ? -EOPNOTSUPP : open_bytes_ + chunk_bytes > budget_bytes_ ? -ENOSPC : 0;
    }
    if (const int published = publish(file, *entry); published != 0) return published;
    std::uint64_t inside = 0;
    for (std::uint64_t chunk = first; chunk < last; ++chunk)
        if (entry->chunks[chunk] != 0)
            inside += std::min((chunk + 1) * chunk_bytes, offset + bytes) - std::max(chunk * chunk_bytes, offset);
    if (inside > 0) return static_cast<std::int64_t>(inside);
    return code != 0 ? code : refused_ ? -EOPNOTSUPP : open_bytes_ + chunk_bytes > budget_bytes_ ? -ENOSPC : 0;
}

void window_set::close_all() {
    const std::lock_guard lock(mutex_);
    const std::uint64_t nothing = 0;
    for (const auto& [slot, entry] : files_) {
        device_.upload(view_.windows + slot, &nothing, 8);
        chunk_words_.give(entry.first_chunk, entry.chunks.size());
    }
    files_.clear();
    // A mapping stands behind the pieces of it that were exposed.
    for (const piece& p : pieces_) {
        if (p.exposed) device_.conceal(p.address);
        else env_.unmap_file(p.address, p.bytes);
    }
    pieces_.clear();
    open_bytes_ = 0;
}

std::uint64_t window_set::open_bytes() {
    const std::lock_guard lock(mutex_);
    return open_bytes_;
}

}  // namespace penstock::host
