#include "files/write_watch.hpp"

namespace penstock::host {

write_watch::~write_watch() {
    if (watch_ >= 0) env_.close(watch_);
}

void write_watch::take_events() {
    told_.clear();
    env_.read_watch(watch_, told_);
    for (const int number : told_) {
        if (number == environment::all_files)
            for (auto& file : files_) ++file.second.events;
        else if (const auto file = files_.find(number); file != files_.end()) ++file->second.events;
    }
}

write_watch::mark write_watch::begin(int fd) {
    const std::lock_guard lock(mutex_);
    if (refused_) return {};
    if (watch_ < 0) watch_ = env_.open_watch();
    if (watch_ < 0) {
        refused_ = true;
        return {};
    }
    const int number = env_.watch_file(watch_, fd);
    if (number < 0) return {};
    watched& file = files_[number];
    ++file.holders;
    take_events();
    return {number, file.events};
}

std::uint64_t write_watch::events_of(int number) {
    const std::lock_guard lock(mutex_);
    take_events();
    const auto file = files_.find(number);
    return file != files_.end() ? file->second.events : UINT64_MAX;
}

void write_watch::end(int number) {
    const std::lock_guard lock(mutex_);
    const auto file = files_.find(number);
    if (file == files_.end() || --file->second.holders != 0) return;
    files_.erase(file);
    env_.end_watch(watch_, number);
}

}  // namespace penstock::host
