// Plans which file goes where, and opens, copies and settles the files of one kernel.
#include "copy_batch.hpp"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <map>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "common/message.hpp"
#include "copy_job.hpp"
#include "os/env.hpp"
#include "source_file.hpp"

namespace penstock::cp {

namespace {

using identity = std::pair<dev_t, ino_t>;

identity identity_of(const struct stat& facts) { return {facts.st_dev, facts.st_ino}; }

std::string without_slashes(std::string path) {
    while (path.size() > 1 && path.back() == '/') path.pop_back();
    return path;
}

std::string directory_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_in(const std::string& directory, const std::string& source) {
    const std::size_t slash = source.rfind('/');
    return directory + (directory.back() == '/' ? "" : "/") +
           (slash == std::string::npos ? source : source.substr(slash + 1));
}

status about(const std::string& path, int code, const std::string& cure) {
    return {code, apps::shown(path) + ": " + error_text(code) + "; " + cure};
}

bool is_directory(const std::string& path) {
    struct stat facts {};
    return ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

// The destination has to be a directory, and is not.
status no_directory(const std::string& destination) {
    struct stat facts {};
    const int code = ::stat(destination.c_str(), &facts) != 0 ? -errno : -ENOTDIR;
    return about(destination, code,
                 "give a directory that exists, or one file and the name of its copy");
}

// Nothing is made where a link that leads nowhere points, as with cp.
status look_at_new(const planned_copy& copy) {
    struct stat facts {};
    if (::lstat(copy.to.c_str(), &facts) == 0)
        return about(copy.to, -ELOOP,
                     "it is a link that leads nowhere; remove it, or give another name");
    const std::string directory = directory_of(copy.to);
    if (::faccessat(AT_FDCWD, directory.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return {};
    const int code = -errno;
    return about(copy.to, code,
                 code == -ENOENT || code == -ENOTDIR
                     ? "make its directory first, or name one that exists"
                     : "name a directory that can be written");
}

status look_at_destination(planned_copy& copy, std::map<identity, std::string>& taken) {
    struct stat facts {};
    if (::stat(copy.to.c_str(), &facts) != 0) {
        if (errno != ENOENT) return about(copy.to, -errno, "give another name");
        copy.is_new = true;
        return look_at_new(copy);
    }
    if (S_ISDIR(facts.st_mode))
        return about(copy.to, -EISDIR, "give another name, or remove the directory");
    if (!S_ISREG(facts.st_mode))
        return about(copy.to, -EOPNOTSUPP, "it is no regular file; use cp for this one");
    const auto found = taken.find(identity_of(facts));
    if (found != taken.end() && found->second == copy.from)
        return {-EINVAL, apps::shown(copy.from) + " and " + apps::shown(copy.to) +
                             " are the same file; give another name"};
    if (found != taken.end())
        return {-EINVAL,
                apps::shown(copy.to) + " is the same file as " + apps::shown(found->second) +
                    ", which is copied too; copy them one after the other, or give another name"};
    if (::faccessat(AT_FDCWD, copy.to.c_str(), W_OK, AT_EACCESS) != 0)
        return about(copy.to, -errno, "change its permissions, or give another name");
    taken.emplace(identity_of(facts), copy.to);
    return {};
}

unsigned mask_of_new_files() {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    return mask;
}

constexpr std::uint64_t least_hole_bytes = 64 << 10;  // shorter ones are copied as zeros

// How far it came, for the end of a message.
std::string reach_of(const planned_copy& plan, const open_copy& copy) {
    return "the first " + apps::with_commas(copy.reached_bytes) + " of " + bytes_text(copy.bytes) +
           " are in " + apps::shown(plan.to);
}

status reading_failed(const planned_copy& plan, const open_copy& copy) {
    const std::string cure = copy.code == -ESTALE ? "run again when no program writes to it"
                                                  : apps::cure_of_reading(copy.code, instead);
    const std::string reason = copy.code == -ESTALE
                                   ? "it became shorter while it was copied (ESTALE)"
                                   : error_text(copy.code);
    return {copy.code,
            apps::shown(plan.from) + ": " + reason + "; " + reach_of(plan, copy) + "; " + cure};
}

// The runtime knows which bytes it was. If another file was the first to fail, its range would
// mislead.
status writing_failed(runtime& rt, const planned_copy& plan, const open_copy& copy) {
    const status first = rt.write_status();
    const bool known =
        !first.ok() && first.code == copy.code &&
        first.message.find(plan.to.substr(plan.to.rfind('/') + 1)) != std::string::npos;
    return {copy.code, apps::shown(plan.to) + ": " +
                           (known ? first.message : error_text(copy.code)) + "; " +
                           reach_of(plan, copy) + "; make room, or give another place"};
}

std::uint64_t hole_bytes_of(const open_copy& copy) {
    std::uint64_t holes = copy.bytes;
    for (const file_range& part : copy.data) holes -= part.bytes;
    return holes;
}

// A new name is on storage once its directory is.
int sync_directory_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    const handle directory(
        ::open(slash == std::string::npos ? "." : path.substr(0, slash + 1).c_str(),
               O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return directory.fd >= 0 ? host::sync_file(host::linux_environment(), directory.fd) : -errno;
}

}  // namespace

status plan_copies(const std::vector<std::string>& sources, const std::string& destination,
                   std::vector<planned_copy>& out) {
    if (destination.empty()) return about(destination, -ENOENT, "give the copy a name");
    const bool into = is_directory(destination);
    if (!into && (sources.size() > 1 || (!destination.empty() && destination.back() == '/')))
        return no_directory(destination);
    const unsigned mask = mask_of_new_files();
    // A source may be given twice, but is no place for a copy; what is put somewhere is no place
    // for another.
    std::map<identity, std::string> taken;
    for (const std::string& source : sources) {
        struct stat facts {};
        if (status failed = apps::look_at_source(source, instead, facts); !failed) return failed;
        if (static_cast<std::uint64_t>(facts.st_size) > most_bytes)
            return about(source, -EFBIG, "it is longer than 2 PiB; use cp for this one");
        taken.emplace(identity_of(facts), source);
        out.push_back({source, into ? name_in(without_slashes(destination), source) : destination,
                       facts.st_mode & 0777 & ~mask});
    }
    std::map<std::string, std::string> new_names;
    for (planned_copy& copy : out) {
        if (status failed = look_at_destination(copy, taken); !failed) return failed;
        if (!copy.is_new) continue;
        const auto [place, first] = new_names.emplace(copy.to, copy.from);
        if (!first)
            return {-EEXIST, apps::shown(copy.to) + ": " + apps::shown(place->second) + " and " +
                                 apps::shown(copy.from) +
                                 " would both go there; copy them to two directories"};
    }
    return {};
}
std::string bytes_text(std::uint64_t bytes) {
    return apps::with_commas(bytes) + (bytes == 1 ? " byte" : " bytes");
}

int cut::make() const {
    const handle file(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    struct stat now {};
    if (file.fd < 0 || ::fstat(file.fd, &now) != 0) return errno == ENOENT ? 0 : -errno;
    if (now.st_dev != device || now.st_ino != inode) return 0;
    return ::ftruncate(file.fd, static_cast<off_t>(bytes)) == 0 ? 0 : -errno;
}

status batch::add(const planned_copy& plan) {
    open_copy copy;
    handle place, source(::open(plan.from.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (source.fd < 0) return apps::about_source(plan.from, -errno, instead);
    copy.from = rt_.open(plan.from);
    file_stat facts{};
    const int code = copy.from < 0 ? copy.from : rt_.stat(copy.from, &facts);
    if (code < 0) return apps::about_source(plan.from, code, instead);
    copy.bytes = facts.size_bytes;
    copy.data =
        data_of(source.fd, copy.bytes, std::max(least_hole_bytes, rt_.settings().page_bytes));
    if (status failed = open_copy_of(plan, copy.bytes, place, copy.to); !failed) {
        if (plan.is_new && place.fd >= 0) ::unlink(plan.to.c_str());
        rt_.close(copy.from);
        return failed;
    }
    if (wanted_.windows && rt_.where() == backend::gpu)
        rt_.open_windows(copy.from);  // what has none comes by request
    plans_.push_back(&plan);
    copies_.push_back(std::move(copy));
    places_.push_back(std::move(place));
    sources_.push_back(std::move(source));
    return {};
}

status batch::copy(copy_totals& sum) {
    if (status failed = copy_open_files(rt_, copies_); !failed) return failed;
    std::vector<bool> good;
    for (std::size_t i = 0; i < copies_.size(); ++i) {
        const status failed = conclude(*plans_[i], copies_[i], sources_[i].fd, places_[i]);
        good.push_back(failed.ok());
        if (!failed.ok()) apps::say(failed.message);
    }
    sum.seconds += watch_.lap();
    if (wanted_.verify && !was_interrupted()) {
        if (status failed = verify(good); !failed) return failed;
        sum.verify_seconds += watch_.lap();
    }
    for (std::size_t i = 0; i < copies_.size(); ++i) {
        rt_.close(copies_[i].from);
        sum.files += good[i] ? 1 : 0;
        sum.bytes += good[i] ? copies_[i].bytes : 0;
        sum.hole_bytes += good[i] ? hole_bytes_of(copies_[i]) : 0;
        sum.failed += good[i] ? 0 : 1;
    }
    if (wanted_.windows && rt_.where() == backend::gpu) rt_.close_windows();
    return {};
}

// How far a file may grow while the runtime has it open (docs/guide/settings.md), or less.
std::uint64_t batch::growth_bytes() const {
    constexpr std::uint64_t most = std::uint64_t{1} << 39, most_leaf_pages = 1u << 15;
    const std::uint64_t words = rt_.settings().table_bytes / 8;
    return std::min(
        most, words / 256 * std::min(most_leaf_pages, words / 128) * rt_.settings().page_bytes);
}

// No other user may read a new file before it has its source's permissions. A copy that is to
// become longer than files may grow gets its length before the runtime opens it.
status batch::open_copy_of(const planned_copy& plan, std::uint64_t bytes, handle& place, int& fd) {
    place.fd = ::open(
        plan.to.c_str(),
        (plan.is_new ? O_CREAT | O_EXCL : 0) | O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0600);
    const auto failed = [&](int code, const char* cure) {
        return status{code, apps::shown(plan.to) + ": " + error_text(code) + "; " +
                                apps::cure_for(code, cure)};
    };
    if (place.fd < 0) return failed(-errno, "give another name");
    const bool is_long = bytes > growth_bytes();
    if (is_long &&
        (::ftruncate(place.fd, 0) != 0 || ::ftruncate(place.fd, static_cast<off_t>(bytes)) != 0))
        return failed(-errno, "its file system takes no file of this length; give another place");
    fd = rt_.open(plan.to, is_long ? open_write : open_write | open_truncate);
    return fd >= 0 ? status{} : failed(fd, "change its permissions, or give another name");
}

// Brings what was copied to the file and gives that its size.
status batch::conclude(const planned_copy& plan, open_copy& copy, int source, handle& place) {
    struct stat now {};
    if (plan.is_new) ::fchmod(place.fd, plan.mode);
    if (copy.code == 0 && ::fstat(source, &now) == 0 &&
        static_cast<std::uint64_t>(now.st_size) < copy.bytes) {
        // A window shows what is no longer there.
        copy.reached_bytes = static_cast<std::uint64_t>(now.st_size);
        copy.code = -ESTALE;
        copy.reading = true;
    }
    if (copy.code == -ECANCELED && !was_interrupted()) copy.code = -EIO;
    const std::uint64_t end =
        copy.data.empty() ? 0 : copy.data.back().offset_bytes + copy.data.back().bytes;
    int code = 0;
    struct stat made {};
    if (copy.code != 0 && ::fstat(place.fd, &made) == 0)
        cuts_.push_back({plan.to, made.st_dev, made.st_ino, copy.reached_bytes});
    else if (end < copy.bytes) code = rt_.truncate(copy.to, static_cast<std::int64_t>(copy.bytes));
    if (code == 0 && copy.code == 0 && wanted_.fsync) code = rt_.fsync(copy.to);
    const int closed = rt_.close(copy.to);
    if (copy.code == -ECANCELED) return {copy.code, "interrupted; " + reach_of(plan, copy)};
    if (copy.code != 0)
        return copy.reading ? reading_failed(plan, copy) : writing_failed(rt_, plan, copy);
    if (code == 0) code = closed;
    if (code == 0 && wanted_.fsync) code = sync_directory_of(plan.to);
    if (code == 0) return {};
    const status why = rt_.write_status();
    return {code, apps::shown(plan.to) + ": " + (why.ok() ? error_text(code) : why.message) +
                      "; not all of its " + bytes_text(copy.bytes) +
                      " can be relied on; make room, or give another place"};
}

// Opened anew, a copy has no page in the cache: what is compared is what its file has.
status batch::verify(std::vector<bool>& good) {
    std::vector<open_copy> again;
    std::vector<std::size_t> which;
    const auto failed = [&](std::size_t i, const std::string& message) {
        apps::say(apps::shown(plans_[i]->to) + ": " + message);
        good[i] = false;
    };
    for (std::size_t i = 0; i < copies_.size(); ++i) {
        if (!good[i]) continue;
        open_copy reopened{
            copies_[i].from, rt_.open(plans_[i]->to), copies_[i].bytes, {}, 0, 0, false};
        if (reopened.bytes > 0) reopened.data.push_back({0, reopened.bytes});  // holes too
        file_stat facts{};
        if (reopened.to < 0 || rt_.stat(reopened.to, &facts) != 0)
            failed(i, error_text(reopened.to) + "; the copy cannot be read back");
        else if (facts.size_bytes != reopened.bytes)
            failed(i, "has " + bytes_text(facts.size_bytes) + " and not " +
                          apps::with_commas(reopened.bytes) +
                          "; copy it again when no program writes to it");
        if (good[i]) which.push_back(i);
        if (good[i]) again.push_back(std::move(reopened));
        else if (reopened.to >= 0) rt_.close(reopened.to);
    }
    if (status kernel = compare_open_files(rt_, again); !kernel) return kernel;
    for (std::size_t i = 0; i < again.size(); ++i) {
        const std::string at = "byte " + apps::with_commas(again[i].reached_bytes);
        if (again[i].code == -EILSEQ)
            failed(which[i], at + " differs from " + apps::shown(plans_[which[i]]->from) +
                                 "; copy it again when no program writes to either");
        else if (again[i].code != 0)
            failed(which[i], "reading it back stopped at " + at + ": " + error_text(again[i].code) +
                                 "; run again");
        rt_.close(again[i].to);
    }
    return {};
}

}  // namespace penstock::cp
