// Descriptors that a child of fork() closes before it returns there: those by which another process
// or the kernel sees that this one has ended. One that a child kept would stand for a process that
// is gone.
//
// A child may not destroy what it inherited of their owners, nor may it close the number, which can
// be that of a file of its own by then.
#pragma once

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace penstock::host {

namespace detail {

// Never destroyed: the process may fork while it ends.
struct not_inherited_fds {
    std::mutex mutex;  // held by a fork
    std::vector<int> all;

    static not_inherited_fds& of_process() {
        static auto* const instance = new not_inherited_fds;
        static const int watching =
            ::pthread_atfork([] { of_process().mutex.lock(); }, [] { of_process().mutex.unlock(); },
                             [] {
                                 for (const int fd : of_process().all) ::close(fd);
                                 of_process().all.clear();
                                 of_process().mutex.unlock();
                             });
        static_cast<void>(watching);
        return *instance;
    }
};

}  // namespace detail

// From now on, until keep_in_children() of it.
inline void close_in_children(int fd) {
    auto& fds = detail::not_inherited_fds::of_process();
    const std::lock_guard lock(fds.mutex);
    fds.all.push_back(fd);
}

// Before it is closed: another file may get its number then. Does nothing if it is not one of them.
inline void keep_in_children(int fd) {
    auto& fds = detail::not_inherited_fds::of_process();
    const std::lock_guard lock(fds.mutex);
    fds.all.erase(std::remove(fds.all.begin(), fds.all.end(), fd), fds.all.end());
}

// By a thread that has a table of descriptors of its own: closes its copies of them.
inline void close_copies_of_not_inherited() {
    auto& fds = detail::not_inherited_fds::of_process();
    const std::lock_guard lock(fds.mutex);
    for (const int fd : fds.all) ::close(fd);
}

}  // namespace penstock::host
