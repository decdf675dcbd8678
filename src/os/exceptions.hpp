// Exceptions that reach the border of the library, as errors. None crosses it.
#pragma once

#include <sys/resource.h>

#include <cerrno>
#include <exception>
#include <new>
#include <string>
#include <system_error>

#include "penstock/error.hpp"

namespace penstock::host {

// No thread could be made: which limits there are, and the cure.
inline std::string thread_refusal() {
    rlimit limit{};
    const bool known = ::getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY;
    return "no thread could be made: " + error_text(-EAGAIN) +
           "; raise RLIMIT_NPROC (ulimit -u), now " +
           (known ? std::to_string(limit.rlim_cur) : std::string("unlimited")) +
           ", or the pids.max of the process's control group, or end other processes of this user";
}

// For a catch (...): -EAGAIN, no thread could be made; -ENOMEM; what the operating system said;
// -EIO.
inline status status_of_exception(const std::string& subject) noexcept try {
    try {
        throw;
    } catch (const std::bad_alloc&) {
        return {-ENOMEM,
                subject + "the host has no memory left; free some, or raise the limit (ulimit -v)"};
    } catch (const std::system_error& error) {
        if (error.code() == std::errc::resource_unavailable_try_again)
            return {-EAGAIN, subject + thread_refusal()};
        const int code = error.code().value();
        return {code > 0 && code < 4096 ? -code : -EIO, subject + error.what()};
    } catch (const std::exception& error) {
        return {-EIO, subject + error.what()};
    }
} catch (...) {
    return {-ENOMEM, {}};
}

// The same about a file.
inline status status_of_exception_about(const std::string& path) noexcept try {
    return status_of_exception(path + ": ");
} catch (...) {
    return {-ENOMEM, {}};
}

}  // namespace penstock::host
