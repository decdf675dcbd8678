// penstock keep: a cache that holds files for other processes (options::share).
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <pthread.h>
#include <unistd.h>

#include "command.hpp"
#include "common/numbers.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "named_files.hpp"
#include "penstock/runtime.hpp"

namespace penstock::cli {

namespace {

const command_text keep_text = {
    "keep", "Reads files into a cache and keeps them there for other processes of the same user.\n",
    "\nPrograms with the same share name (PENSTOCK_SHARE) find the pages in this process, on the "
    "same GPU or on another one.\nSIGHUP has it open the files again and read those that changed. "
    "Runs until Ctrl-C or SIGTERM, and then ends with status 0.\nFiles beyond --cache are opened "
    "and not read.\n",
    true, "keep: "};

// Signals are looked for so often.
constexpr timespec look_time{0, 100'000'000};
// Between two looks for signals while files are read.
constexpr std::int64_t piece_bytes = 64 << 20;

struct kept_file {
    std::string name;
    int fd = -1;
    std::uint64_t size_bytes = 0, kept_bytes = 0;
};

class keep_command : public command {
public:
    keep_command() : command(keep_text) {}

    void add_options(apps::option_list& add) override {
        add.operands("FILE", names_, "Files to keep, the first ones first");
        add.text("--share", share_, "The name under which they are shared (PENSTOCK_SHARE)",
                 "NAME");
    }

    status check() override {
        if (!share_.empty()) settings.share = share_;
        settings.roots = {"."};  // names on a command line start at the working directory
        if (settings.share.empty())
            return {-EINVAL,
                    "--share: there is no name for others to find this cache by; give one, or set "
                    "PENSTOCK_SHARE"};
        return settings.check();
    }

    status run() override {
        if (status s = apps::watch_signals(); !s) return s;
        // By this thread alone, and by the threads of the runtime not at all.
        sigset_t again;
        ::sigemptyset(&again);
        ::sigaddset(&again, SIGHUP);
        ::pthread_sigmask(SIG_BLOCK, &again, nullptr);
        struct stat facts {};
        for (const std::string& name : names_) {
            if (status s = look_at_source(name, "cat", facts); !s) return s;
            files_.push_back({name});
        }
        if (status s = apps::create_runtime(settings, common.quiet, rt_); !s) return s;
        if (!rt_->is_shared())
            return {-EIO, "the cache cannot be shared, so no process would find the files"};
        for (bool wanted = true; !was_interrupted();) {
            if (wanted)
                if (status s = read_all(); !s) return s;
            const int number = ::sigtimedwait(&again, nullptr, &look_time);
            wanted = number == SIGHUP;
            if (status s = rt_->health(); !s) return s;
        }
        return {};
    }

private:
    // A file that changed a moment ago would not be shared: another change could look the same.
    static void let_settle(const std::string& name) {
        constexpr std::int64_t settled_ns = 100'000'000;
        struct stat facts {};
        timespec now{};
        if (::stat(name.c_str(), &facts) != 0 || ::clock_gettime(CLOCK_REALTIME, &now) != 0) return;
        const std::int64_t age_ns = (now.tv_sec - facts.st_mtim.tv_sec) * 1'000'000'000 +
                                    (now.tv_nsec - facts.st_mtim.tv_nsec);
        if (age_ns < 0 || age_ns >= settled_ns) return;
        const timespec rest{0, settled_ns - age_ns};
        ::nanosleep(&rest, nullptr);
    }

    // Opens all of them, those that changed in their new version. At the first time one that cannot
    // be opened ends the program; later it is left out until the next time.
    status open_all() {
        for (kept_file& file : files_) {
            let_settle(file.name);
            // First: while a version is open, an open gives that one.
            if (file.fd >= 0) rt_->close(file.fd);
            const int fd = rt_->open(file.name);
            file_stat opened{};
            const int code = fd < 0 ? fd : rt_->stat(fd, &opened);
            file = {file.name, fd, fd < 0 ? 0 : opened.size_bytes, 0};
            if (code >= 0) continue;
            const status wrong = about_source(file.name, code, "cat");
            if (!has_read_) return wrong;
            apps::say(keep_text.message_prefix + wrong.message + "; it is left out");
        }
        return {};
    }

    status read_all() {
        apps::stopwatch watch;
        if (status s = open_all(); !s) return s;
        std::uint64_t left = *rt_->settings().cache_bytes, size = 0, kept = 0;
        for (kept_file& file : files_) {
            size += file.size_bytes;
            while (file.fd >= 0 && file.kept_bytes < std::min(file.size_bytes, left) &&
                   !was_interrupted()) {
                const auto wanted = static_cast<std::int64_t>(
                    std::min<std::uint64_t>(piece_bytes, left - file.kept_bytes));
                const std::int64_t done =
                    rt_->prefetch(file.fd, static_cast<std::int64_t>(file.kept_bytes), wanted);
                if (done < 0 && !was_interrupted()) return about_source(file.name, done, "cat");
                if (done <= 0) break;
                file.kept_bytes += static_cast<std::uint64_t>(done);
            }
            left -= std::min(left, file.kept_bytes);
            kept += file.kept_bytes;
        }
        has_read_ = true;
        if (was_interrupted()) return {};
        const std::string shown =
            "keeps " + apps::with_commas(kept) + " of " + apps::with_commas(size) + " bytes of " +
            apps::with_commas(files_.size()) + (files_.size() == 1 ? " file" : " files") + " as '" +
            settings.share + "'\n";
        return report({{"share", settings.share},
                       {"files", files_.size()},
                       {"bytes", size},
                       {"kept_bytes", kept},
                       {"process", static_cast<std::int64_t>(::getpid())},
                       {"seconds", watch.lap()}},
                      shown);
    }

    std::string share_;
    std::vector<std::string> names_;
    std::vector<kept_file> files_;
    std::unique_ptr<runtime> rt_;
    bool has_read_ = false;
};

}  // namespace

std::unique_ptr<command> make_keep() { return std::make_unique<keep_command>(); }

}  // namespace penstock::cli
