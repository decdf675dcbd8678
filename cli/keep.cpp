// penstock keep: a cache that holds files for other processes (options::share).
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <ctime>
#include <set>
#include <utility>
#include <pthread.h>
#include <unistd.h>

#include "command.hpp"
#include "common/numbers.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "named_files.hpp"
#include "os/env.hpp"
#include "os/file_kind.hpp"
#include "penstock/runtime.hpp"

namespace penstock::cli {

namespace {

const command_text keep_text = {
    "keep",
    "Reads files into a cache and keeps them there for other processes of the same user.\n",
    "\nPrograms with the same share name (PENSTOCK_SHARE) find the pages in this process, on the "
    "same GPU or on another one.\nSIGHUP has it open the files again and read those that changed. "
    "Runs until Ctrl-C or SIGTERM, and then ends with status 0.\nFiles beyond --cache are opened "
    "and not read; each file takes whole pages.\n",
    true,
    "keep: ",
    apps::device_use::single,
    "Print a JSON object, in a line of standard output, each time that the files have been read: "
    "at the start and after each SIGHUP"};

// Of a file that no runtime reads: nothing else keeps it either.
constexpr const char* no_other_way = nullptr;
// Signals are looked for so often.
constexpr timespec look_time{0, 100'000'000};
// Between two looks for signals while files are read.
constexpr std::int64_t piece_bytes = 64 << 20;

struct kept_file {
    std::string name;
    int fd = -1;
    std::uint64_t size_bytes = 0, kept_bytes = 0;
    bool is_again = false;     // named before: its pages are there by then
    bool is_left_out = false;  // it could not be opened or read this time
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
            if (status s = look_at_source(name, no_other_way, facts); !s) return s;
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

    // Nor would one of a network file system that this process has not known for some seconds.
    void let_rest() const {
        std::int64_t left_ns = 0;
        host::environment& env = host::linux_environment();
        for (const kept_file& file : files_) {
            host::file_facts facts;
            const int found = env.find(-1, file.name);
            if (found < 0) continue;
            if (env.facts(found, facts) == 0)
                left_ns = std::max(left_ns, host::rest_left_ns(facts, settings.trust_times));
            env.close(found);
        }
        const std::uint64_t until =
            penstock::detail::host_now_ns() + static_cast<std::uint64_t>(left_ns);
        while (!was_interrupted() && penstock::detail::host_now_ns() < until)
            ::nanosleep(&look_time, nullptr);
    }

    // Opens all of them, those that changed in their new version. At the first time one that cannot
    // be opened ends the program; later it is left out until the next time.
    status open_all() {
        // All of them first: while a version is open, by whatever name, an open gives that one.
        for (kept_file& file : files_)
            if (file.fd >= 0) rt_->close(std::exchange(file.fd, -1));
        let_rest();
        for (kept_file& file : files_) {
            let_settle(file.name);
            const int fd = rt_->open(file.name);
            file_stat opened{};
            const int code = fd < 0 ? fd : rt_->stat(fd, &opened);
            file = {file.name, fd, fd < 0 ? 0 : opened.size_bytes};
            if (code >= 0) continue;
            if (status s = leave_out(file, code); !s) return s;
        }
        mark_those_named_before();
        return {};
    }

    // Once the cache has been offered, one file that cannot be read takes it from no program.
    status leave_out(kept_file& file, std::int64_t code) {
        if (!has_read_) return about_source(file.name, code, no_other_way);
        apps::say(keep_text.message_prefix + apps::shown(file.name) + ": " +
                  error_text(static_cast<int>(code)) + "; it is left out until the next SIGHUP");
        file.size_bytes = file.kept_bytes = 0;
        file.is_left_out = true;
        return {};
    }

    // By whatever name: links lead to one file too.
    void mark_those_named_before() {
        std::set<std::pair<dev_t, ino_t>> seen;
        for (kept_file& file : files_) {
            struct stat facts {};
            if (file.fd >= 0 && ::stat(file.name.c_str(), &facts) == 0)
                file.is_again = !seen.emplace(facts.st_dev, facts.st_ino).second;
        }
    }

    [[nodiscard]] std::uint64_t page_bytes() const { return rt_->settings().page_bytes; }

    // Reads what fits into that many pages, and takes those that it needs.
    status read(kept_file& file, std::uint64_t& pages_left) {
        const std::uint64_t page = page_bytes();
        const std::uint64_t wanted = std::min(file.size_bytes, pages_left * page);
        std::int64_t done = 1;
        while (file.fd >= 0 && file.kept_bytes < wanted && done > 0 && !was_interrupted()) {
            const std::uint64_t piece =
                std::min<std::uint64_t>(piece_bytes, wanted - file.kept_bytes);
            done = rt_->prefetch(file.fd, static_cast<std::int64_t>(file.kept_bytes),
                                 static_cast<std::int64_t>(piece));
            if (done > 0) file.kept_bytes += static_cast<std::uint64_t>(done);
        }
        pages_left -= std::min(pages_left, (file.kept_bytes + page - 1) / page);
        return done < 0 && !was_interrupted() ? leave_out(file, done) : status{};
    }

    status read_all() {
        apps::stopwatch watch;
        if (status s = open_all(); !s) return s;
        std::uint64_t pages = *rt_->settings().cache_bytes / page_bytes();
        std::uint64_t files = 0, left_out = 0, size = 0, kept = 0;
        for (kept_file& file : files_) {
            if (file.is_again) continue;
            if (status s = read(file, pages); !s) return s;
            ++(file.is_left_out ? left_out : files);
            size += file.size_bytes;
            kept += file.kept_bytes;
        }
        const bool was_offered = std::exchange(has_read_, true);
        if (was_interrupted()) return {};
        const std::string shown =
            "keeps " + apps::with_commas(kept) + " of " + apps::with_commas(size) + " bytes of " +
            apps::with_commas(files) + (files == 1 ? " file" : " files") +
            (left_out == 0 ? "" : ", " + apps::with_commas(left_out) + " left out,") + " as '" +
            settings.share + "'\n";
        const status said = report({{"share", settings.share},
                                    {"files", files},
                                    {"left_out", left_out},
                                    {"bytes", size},
                                    {"kept_bytes", kept},
                                    {"process", static_cast<std::int64_t>(::getpid())},
                                    {"seconds", watch.lap()}},
                                   shown);
        if (said.ok() || !was_offered) return said;
        // Programs have found the cache by then, and do without the report.
        apps::say(std::string(keep_text.message_prefix) +
                  "standard output: " + error_text(said.code) +
                  "; this report is lost, and the files are kept all the same; start it again "
                  "where its reports can be written");
        return {};
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
