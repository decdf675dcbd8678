#include "region/programs.hpp"

#include <algorithm>
#include <array>
#include <mutex>

#include "peers/cached_reads.hpp"
#include "hub/known_files.hpp"
#include "os/process_owner.hpp"
#include "penstock/base/hash.hpp"
#include "region/kernel_writes.hpp"
#include "region/shared_home.hpp"

namespace penstock::region {

namespace {

struct views_of_process {
    std::mutex mutex;
    std::vector<std::shared_ptr<program_views>> all;
};
views_of_process& known() { return host::one_of_process<views_of_process>(); }

// Also of files of which there is no region yet: one may come while they are written.
std::atomic<std::uint32_t>& count_of(const file_key& file) {
    static std::array<std::atomic<std::uint32_t>, 64> counts{};
    return counts[mix64(file.inode ^ file.device << 32) % counts.size()];
}

}  // namespace

void add_views(std::shared_ptr<program_views> views) {
    watch_kernel_writes();
    std::lock_guard lock(known().mutex);
    known().all.push_back(std::move(views));
}

void remove_views(const program_views& views) {
    std::lock_guard lock(known().mutex);
    std::erase_if(known().all, [&](const auto& one) { return one.get() == &views; });
}

std::vector<std::shared_ptr<program_views>> all_views() {
    std::lock_guard lock(known().mutex);
    return known().all;
}

program_access::program_access(const file_key& file, kind how, std::uint64_t offset,
                               std::uint64_t bytes)
    : file_(file), home_(shared_home::find(file)) {
    if (home_ != nullptr) home_->admit_program(offset, bytes);
    if (how != kind::fetch) return;
    const page_range whole{(offset + page_bytes - 1) / page_bytes, (offset + bytes) / page_bytes};
    if (whole.empty()) return;
    if (const std::shared_ptr<page_masks> masks = masks_in_use(file); masks != nullptr)
        masks->forget_settled(whole);
}

std::uint64_t program_access::read_devices(int fd, std::uint64_t offset, std::uint64_t bytes,
                                           const byte_sink& use) const {
    if (home_ != nullptr)
        if (const std::uint64_t got = home_->read_for_program(fd, offset, bytes, use); got != 0)
            return got;
    if (!host::known_files::may_have(file_.device, file_.inode) || !write_count::is_zero(file_))
        return 0;
    return host::cached_reads::read(fd, offset, bytes, use);
}

write_count::write_count(const file_key& file) : count_(count_of(file)) { ++count_; }
write_count::~write_count() { --count_; }
bool write_count::is_zero(const file_key& file) { return count_of(file) == 0; }

program_write::program_write(const file_key& file, kind how, std::uint64_t offset,
                             std::uint64_t bytes)
    : program_access(file, how, offset, bytes), counted_(file) {}

// A region that came meanwhile must be told: it may have read the file before it was written. One
// that comes after this reads what was written.
void program_write::wrote(std::uint64_t offset, std::uint64_t bytes) {
    const std::shared_ptr<shared_home> home = home_ != nullptr ? home_ : shared_home::find(file_);
    if (home != nullptr) home->wrote_by_program(offset, bytes);
}

std::int64_t program_write::write_back(const file_key& file, int fd, const std::byte* from,
                                       std::uint64_t bytes, std::uint64_t offset) {
    const write_count counted(file);
    const std::shared_ptr<shared_home> home = shared_home::find(file);
    // Those that come while it is written wait for it: the same for all.
    const std::int64_t written = masks_of(file)->write_around(fd, from, bytes, offset);
    if (home != nullptr) home->wrote_by_program(offset, bytes);
    else
        program_write(file, kind::direct, offset, 0)
            .wrote(offset, bytes);  // a region may have come meanwhile
    return written;
}

}  // namespace penstock::region
