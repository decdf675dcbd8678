#include "os/own_mounts.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <utility>

#include "os/process_owner.hpp"

namespace penstock::host {

own_mounts& own_mounts::of_process() { return one_of_process<own_mounts>(); }

std::uint64_t own_mounts::enter(std::uint64_t device, std::string source) {
    const std::lock_guard lock(mutex_);
    all_.push_back({++last_, device, std::move(source)});
    count_ = all_.size();
    return last_;
}

void own_mounts::leave(std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    std::erase_if(all_, [&](const entry& each) { return each.number == number; });
    count_ = all_.size();
}

std::optional<std::string> own_mounts::source_of(std::uint64_t device) const {
    if (!any()) return std::nullopt;
    const std::lock_guard lock(mutex_);
    for (const entry& each : all_)
        if (each.device == device) return each.source;
    return std::nullopt;
}

int check_not_own(std::uint64_t device) {
    return own_mounts::of_process().source_of(device) ? -EDEADLK : 0;
}

int check_handle_not_own(int handle) {
    if (!own_mounts::of_process().any()) return 0;
    struct stat facts {};
    return ::fstat(handle, &facts) == 0 ? check_not_own(facts.st_dev) : 0;
}

std::string why_own(const std::string& path) {
    struct stat facts {};
    std::optional<std::string> source;
    if (::stat(path.c_str(), &facts) == 0)
        source = own_mounts::of_process().source_of(facts.st_dev);
    return "is a file of a mount that this process serves; name the file in the source folder" +
           (source ? " (" + *source + ")" : std::string());
}

}  // namespace penstock::host
