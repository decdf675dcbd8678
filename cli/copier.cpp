#include "copier.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "command.hpp"
#include "os/env.hpp"
#include "os/patient_open.hpp"

namespace penstock::cli {

using apps::shown;
using apps::unique_fd;
using apps::with_commas;
using cp::file_range;
using cp::open_copy;

std::string bytes_text(std::uint64_t bytes) {
    return with_commas(bytes) + (bytes == 1 ? " byte" : " bytes");
}

std::uint64_t data_bytes_of(const open_copy& copy) {
    std::uint64_t out = 0;
    for (const file_range& part : copy.data) out += part.bytes;
    return out;
}

void count(const open_copy& copy, bool good, copy_totals& totals) {
    ++(good ? totals.files : totals.failed);
    totals.bytes += good ? copy.bytes : 0;
    totals.hole_bytes += good ? copy.bytes - data_bytes_of(copy) : 0;
}

std::string reach_of(const planned_copy& plan, const open_copy& copy) {
    return "the first " + with_commas(copy.reached_bytes) + " of " + bytes_text(copy.bytes) +
           " are in " + shown(plan.to);
}

status copying_failed(const planned_copy& plan, const open_copy& copy,
                      const std::string& reason_of_writing) {
    if (copy.code == -ECANCELED) return {copy.code, "interrupted; " + reach_of(plan, copy)};
    std::string place = plan.to, reason = error_text(copy.code),
                cure = apps::cure_for(copy.code, "make room, or give another place");
    if (copy.reading) {
        place = plan.from;
        cure = cure_of_reading(copy.code, "cp");
        if (copy.code == -ESTALE) {
            reason = "it became shorter while it was copied (ESTALE)";
            cure = "run again when no program writes to it";
        }
    } else if (!reason_of_writing.empty()) {
        reason = reason_of_writing;
    }
    return {copy.code, shown(place) + ": " + reason + "; " + reach_of(plan, copy) + "; " + cure};
}

status open_place(const planned_copy& plan, unique_fd& out) {
    const int flags = (plan.is_new ? O_CREAT | O_EXCL : 0) | O_WRONLY | flags_of_any;
    out = unique_fd(host::open_past_leases(plan.to, flags, 0600));
    return out >= 0 ? status{} : place_failed(plan, -errno, "give another name");
}

status place_failed(const planned_copy& plan, int code, const char* cure) {
    return {code, shown(plan.to) + ": " + error_text(code) + "; " + apps::cure_for(code, cure)};
}

namespace {

std::string octal_text(unsigned mode) {
    char text[16];
    std::snprintf(text, sizeof text, "%04o", mode);
    return text;
}

}  // namespace

void set_mode(const planned_copy& plan, int place) {
    if (!plan.is_new || ::fchmod(place, static_cast<mode_t>(plan.mode)) == 0) return;
    const int code = -errno;
    struct stat now {};
    const bool is_known = ::fstat(place, &now) == 0;
    const unsigned has = now.st_mode & 07777u;
    if (is_known && has == plan.mode) return;  // it has them all the same
    apps::say(shown(plan.to) + ": its permissions " + octal_text(plan.mode) +
              " could not be set: " + error_text(code) +
              (is_known ? "; the copy is whole, and has " + octal_text(has)
                        : std::string("; the copy is whole")));
}

int sync_directory_of(const std::string& path) {
    const unique_fd directory(
        ::open(directory_of(path).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return directory >= 0 ? host::sync_file(host::linux_environment(), directory) : -errno;
}

status ending_failed(const planned_copy& plan, const open_copy& copy, int code,
                     const std::string& reason) {
    return {code, shown(plan.to) + ": " + (reason.empty() ? error_text(code) : reason) +
                      "; not all of its " + bytes_text(copy.bytes) + " can be relied on; " +
                      apps::cure_for(code, "make room, or give another place")};
}

status comparing_failed(const planned_copy& plan, const open_copy& copy) {
    const std::string at = "byte " + with_commas(copy.reached_bytes);
    if (copy.code == -EILSEQ)
        return {copy.code, shown(plan.to) + ": " + at + " differs from " + shown(plan.from) +
                               "; copy it again when no program writes to either"};
    const std::string place = shown(copy.reading ? plan.from : plan.to);
    if (copy.code == -ESTALE)
        return {copy.code, place + ": it became shorter while it was compared, and ends before " +
                               at + " (ESTALE); copy it again when no program writes to it"};
    return {copy.code, place + ": reading it " + (copy.reading ? "again" : "back") +
                           " stopped at " + at + ": " + error_text(copy.code) + "; run again"};
}

status length_differs(const planned_copy& plan, std::uint64_t bytes, std::uint64_t wanted) {
    return {-EILSEQ, shown(plan.to) + ": has " + bytes_text(bytes) + " and not " +
                         with_commas(wanted) + "; copy it again when no program writes to it"};
}

}  // namespace penstock::cli
