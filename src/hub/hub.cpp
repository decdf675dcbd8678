// The hub: enters what layers above hand in, and asks or tells each of them.
#include "hub/hub.hpp"

#include <new>

#include "os/process_owner.hpp"

namespace penstock::host {

namespace {

// The observers from `next` on, each around those that come after it.
std::int64_t told_from(const std::vector<write_observer*>& observers, std::size_t next,
                       environment& env, int fd, const file_change& change,
                       const change_step& doing) {
    if (next == observers.size()) return doing();
    return observers[next]->change(
        env, fd, change, [&] { return told_from(observers, next + 1, env, fd, change, doing); });
}

}  // namespace

void known_files::add(const file_key& file) noexcept {
    part& its = parts_[part_of(file)];
    {
        const std::lock_guard lock(its.mutex);
        try {
            ++its.files[file];
        } catch (const std::bad_alloc&) {
            its.is_whole = false;
        }
    }
    ++counts_[class_of(file)];
}

void known_files::remove(const file_key& file) {
    --counts_[class_of(file)];
    part& its = parts_[part_of(file)];
    const std::lock_guard lock(its.mutex);
    const auto known = its.files.find(file);
    if (known != its.files.end() && --known->second == 0) its.files.erase(known);
}

bool known_files::may_have(const file_key& file) const {
    if (counts_[class_of(file)].load(std::memory_order_relaxed) == 0) return false;
    const part& its = parts_[part_of(file)];
    const std::shared_lock lock(its.mutex, std::try_to_lock);
    return !lock.owns_lock() || !its.is_whole || its.files.contains(file);
}

void request_turns::lock() {
    ++wanted_;
    turns_.lock();
    --wanted_;
}

bool request_turns::try_lock_shared() { return wanted_ == 0 && turns_.try_lock_shared(); }

hub& hub::of_process() { return one_of_process<hub>(); }

void hub::enter(page_source& source) {
    const std::lock_guard request(turns_);
    sources_.push_back(&source);
}

void hub::leave(page_source& source) {
    const std::lock_guard request(turns_);
    std::erase(sources_, &source);
}

std::uint64_t hub::read_cached(int fd, std::uint64_t offset, std::uint64_t bytes,
                               const byte_sink& use) {
    const std::shared_lock turn(turns_, std::try_to_lock);
    if (!turn.owns_lock()) return 0;
    for (page_source* const source : sources_)
        if (const std::uint64_t got = source->read(fd, offset, bytes, use); got != 0) return got;
    return 0;
}

void hub::visit_caches(const file_identity& now,
                       const std::function<void(page_source&, const lent_file&)>& use) {
    const std::shared_lock turn(turns_, std::try_to_lock);
    if (!turn.owns_lock()) return;
    for (page_source* const source : sources_)
        if (lent_file lent; source->lend(now, lent)) use(*source, lent);
}

void hub::add_views(std::shared_ptr<program_views> views) {
    const std::lock_guard lock(mutex_);
    views_.push_back(std::move(views));
    view_count_ = views_.size();
}

void hub::remove_views(const program_views& views) {
    const std::lock_guard lock(mutex_);
    std::erase_if(views_, [&](const auto& entered) { return entered.get() == &views; });
    view_count_ = views_.size();
}

view_list hub::views() const {
    if (view_count_ == 0) return {};
    const std::lock_guard lock(mutex_);
    return views_;
}

int hub::bring_stores_home(const file_key& file) const {
    const view_list mounts = views();
    for (const auto& mount : mounts)
        if (const int code = mount->collect(file); code != 0) return code;
    return mounts.empty() ? 0 : 1;
}

void hub::add_observer(write_observer& observer) {
    const std::lock_guard lock(mutex_);
    observers_.push_back(&observer);
    observer_count_ = observers_.size();
}

void hub::remove_observer(const write_observer& observer) {
    const std::lock_guard lock(mutex_);
    std::erase(observers_, &observer);
    observer_count_ = observers_.size();
}

std::int64_t hub::change_told(environment& env, int fd, const file_change& change,
                              const change_step& doing) const {
    if (observer_count_ == 0) return doing();
    std::vector<write_observer*> observers;
    {
        const std::lock_guard lock(mutex_);
        observers = observers_;
    }
    return told_from(observers, 0, env, fd, change, doing);
}

}  // namespace penstock::host
