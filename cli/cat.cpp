// penstock cat: files through the cache to standard output.
#include "command.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <mutex>
#include <sys/stat.h>
#include <unistd.h>

#include "common/files.hpp"
#include "common/threads.hpp"
#include "named_files.hpp"

namespace penstock::cli {

namespace {

constexpr std::uint64_t cat_piece_bytes = 4 << 20;

struct file_to_write {
    int fd = -1;
    std::uint64_t size_bytes = 0;  // how much of it is read
};

const command_text cat_text = {
    "cat",
    "Writes files to standard output, read through the page cache; byte for byte what cat "
    "writes.\n",
    "\nOnly regular files can be read. All are opened before the first byte is written; one that "
    "cannot be opened ends the\nprogram with nothing written. A file that is appended to meanwhile "
    "is written as long as it was when it was opened.\nWith --out, the file appears whole or not "
    "at all. --json needs --out, since standard output can hold only one thing.\n",
    true};

class cat_command : public command {
public:
    cat_command() : command(cat_text) {}

    void add_options(apps::option_list& add) override {
        add.operands("FILE", names_, "Files to write, in this order");
        add.text("--out", out_, "Write to this file instead of standard output", "FILE");
        add.flag("--stats", stats_, "Say in one JSON object on standard error what was done");
    }

    status check() override {
        if (common.json && out_.empty())
            return {-EINVAL,
                    "--json: standard output holds the file itself; give --out FILE as well, or "
                    "--stats instead of --json"};
        settings.roots = {"."};  // names on a command line start at the working directory
        return apps::check_not_report(common.json, out_);
    }

    status run() override {
        // Without --out the usual effect of Ctrl-C is the right one, also while a write waits for
        // a full pipe.
        if (!out_.empty())
            if (status s = apps::watch_signals(); !s) return s;
        struct stat facts {};
        for (const std::string& name : names_)
            if (status s = look_at_source(name, "cat", facts); !s) return s;
        if (status s = to_.open(out_); !s) return s;
        if (status s = apps::create_runtime(settings, common.quiet, rt_); !s) return s;
        std::uint64_t total = 0;
        for (const std::string& name : names_) {
            const int fd = rt_->open(name);
            file_stat opened{};
            const int code = fd < 0 ? fd : rt_->stat(fd, &opened);
            if (code < 0) return about_source(name, code, "cat");
            files_.push_back({fd, opened.size_bytes});
            total += opened.size_bytes;
        }
        apps::stopwatch watch;
        if (status s = write_all(total); !s) return s;
        if (status s = to_.commit(); !s) return s;
        const double seconds = watch.lap();
        for (const file_to_write& file : files_) rt_->close(file.fd);
        return report_work(seconds);
    }

private:
    status write_all(std::uint64_t total) {
        // No bar over the text of the files.
        const bool bar_wanted = !common.quiet && (!out_.empty() || ::isatty(STDOUT_FILENO) == 0);
        const apps::progress bar(
            "reading", total, [this] { return written_.load(); }, bar_wanted);
        // One writes while the others read.
        const std::uint32_t readers =
            rt_->where() == backend::gpu ? 4 : std::min(*rt_->settings().worker_threads, 8u);
        const auto threads =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(readers, total / cat_piece_bytes)) +
            1;
        std::vector<std::unique_ptr<char[]>> rooms(threads);
        for (auto& room : rooms) room.reset(new char[std::min(cat_piece_bytes, total + 1)]);
        apps::on_threads(threads, [&](std::uint32_t thread) { write_pieces(rooms[thread].get()); });
        if (was_interrupted())
            return {-ECANCELED, "interrupted; nothing was written to " + apps::shown(out_)};
        return errors_.get();
    }

    // Threads wait for each other, so none may leave with an exception and say nothing.
    void write_pieces(char* room) {
        try {
            take_pieces(room);
        } catch (const std::exception&) {
            errors_.note({-ENOMEM, "out of memory"});  // so short that it needs none
        }
        const std::lock_guard lock(mutex_);  // no thread is between its look and its sleep
        turn_.notify_all();
    }

    // Takes pieces in the order of the files, reads each beside other threads, and writes it in
    // its turn.
    void take_pieces(char* room) {
        std::unique_lock lock(mutex_);
        while (!errors_.stop()) {
            while (next_file_ < files_.size() && next_byte_ == files_[next_file_].size_bytes) {
                ++next_file_;
                next_byte_ = 0;
            }
            if (next_file_ == files_.size()) break;
            const std::uint64_t number = taken_++, begin = next_byte_;
            const std::size_t file = next_file_;
            const std::uint64_t bytes =
                std::min(cat_piece_bytes, files_[file].size_bytes - next_byte_);
            next_byte_ += bytes;
            lock.unlock();
            status ended = read(file, room, begin, bytes);
            lock.lock();
            turn_.wait(lock, [&] { return done_ == number || errors_.stop(); });
            if (errors_.stop()) break;
            if (ended.ok()) ended = to_.write(room, bytes);
            if (ended.ok()) written_ += bytes;
            errors_.note(std::move(ended));
            ++done_;
            turn_.notify_all();
        }
    }

    // A read that stops early is asked again and then says why; 0 would mean that the file ended
    // before its size.
    status read(std::size_t file, char* to, std::uint64_t begin, std::uint64_t bytes) {
        for (std::uint64_t done = 0; done < bytes;) {
            const std::int64_t got =
                rt_->read(files_[file].fd, to + done, static_cast<std::int64_t>(bytes - done),
                          static_cast<std::int64_t>(begin + done));
            if (got <= 0) return about_source(names_[file], got < 0 ? got : -ESTALE, "cat");
            done += static_cast<std::uint64_t>(got);
        }
        return {};
    }

    status report_work(double seconds) const {
        const std::uint64_t bytes = written_;
        const nlohmann::json object = {
            {"files", names_.size()},
            {"bytes", bytes},
            {"seconds", seconds},
            {"bytes_per_second", seconds > 0 ? static_cast<double>(bytes) / seconds : 0.0},
            {"runtime", apps::json_of(*rt_)}};
        if (stats_ && std::fputs(line_of(object).c_str(), stderr) < 0)
            return {-errno, "standard error: " + error_text(-errno) + "; the report is incomplete"};
        return report(object, "");
    }

    std::vector<std::string> names_;
    std::string out_;
    bool stats_ = false;
    apps::output_file to_;
    std::unique_ptr<runtime> rt_;
    std::vector<file_to_write> files_;
    std::atomic<std::uint64_t> written_{0};
    apps::first_error errors_;
    std::mutex mutex_;  // guards what follows, and writes
    std::condition_variable turn_;
    std::size_t next_file_ = 0;           // where the next piece lies
    std::uint64_t next_byte_ = 0;         // in this file
    std::uint64_t taken_ = 0, done_ = 0;  // pieces
};

}  // namespace

std::unique_ptr<command> make_cat() { return std::make_unique<cat_command>(); }

}  // namespace penstock::cli
