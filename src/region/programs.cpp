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

program_access::program_access(const file_key& file, std::uint64_t offset, std::uint64_t bytes) : file_(file), home_(shared_home::find(file)) {
    if (home_ != nullptr) home_->enter(offset, bytes);
}

program_access::~program_access() {
    if (home_ != nullptr) home_->leave_program();
}

// A region that came meanwhile must be told: it may have read the file before it was written. One that comes after this reads what was written.
void program_access::wrote(std::uint64_t offset, std::uint64_t bytes) {
    const std::shared_ptr<shared_home> home = home_ != nullptr ? home_ : shared_home::find(file_);
    if (home != nullptr) home->wrote_by_program(offset, bytes);
}

}  // namespace penstock::region
