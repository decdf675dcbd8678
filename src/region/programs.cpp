#include "region/programs.hpp"

#include <algorithm>
#include <mutex>

#include "region/shared_home.hpp"

namespace penstock::region {

namespace {

struct views_of_process {
    std::mutex mutex;
    std::vector<std::shared_ptr<program_views>> all;
};
views_of_process& known() {
    static views_of_process one;
    return one;
}

}  // namespace

void add_views(std::shared_ptr<program_views> views) {
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

program_access::program_access(const file_key& file, kind how, std::uint64_t offset, std::uint64_t bytes) : file_(file), home_(shared_home::find(file)) {
    if (home_ != nullptr) home_->admit_program(how == kind::fetch, offset, bytes);
}

// A region that came meanwhile must be told: it may have read the file before it was written. One that comes after this reads what was written.
void program_access::wrote(std::uint64_t offset, std::uint64_t bytes) {
    const std::shared_ptr<shared_home> home = home_ != nullptr ? home_ : shared_home::find(file_);
    if (home != nullptr) home->wrote_by_program(offset, bytes);
}

std::int64_t program_access::write_back(const file_key& file, int fd, const std::byte* from, std::uint64_t bytes, std::uint64_t offset) {
    const std::shared_ptr<shared_home> home = shared_home::find(file);
    page_masks none;
    const std::int64_t written = (home != nullptr ? home->masks() : none).write_around(fd, from, bytes, offset);
    if (home != nullptr) home->wrote_by_program(offset, bytes);
    else program_access(file, kind::direct, offset, 0).wrote(offset, bytes);  // a region may have come meanwhile
    return written;
}

}  // namespace penstock::region
