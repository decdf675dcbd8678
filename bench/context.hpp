// What every case is handed: the settings, the file, runtimes, and the list that its figures go to.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench.hpp"
#include "common/files.hpp"
#include "common/process.hpp"
#include "penstock/runtime.hpp"
#include "scratch_file.hpp"

namespace penstock::bench {

inline constexpr std::uint64_t kib = 1u << 10, mib = 1u << 20, gib = 1u << 30;

// Time that passed, and processor time that this process used meanwhile.

inline double now_s() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

class stopwatch {
public:
    [[nodiscard]] double seconds() const { return now_s() - began_s_; }
    // Processors kept busy in the mean since the start, given how long that was.
    [[nodiscard]] double cores(double over_s) const {
        return over_s > 0 ? (apps::cpu_seconds() - used_s_) / over_s : 0;
    }
    [[nodiscard]] double cores() const { return cores(seconds()); }

private:
    double began_s_ = now_s(), used_s_ = apps::cpu_seconds();
};

// "GB/s" of so many bytes in so many seconds.
inline double gigabytes_a_second(std::uint64_t bytes, double seconds) {
    return 1e-9 * bytes / seconds;
}

// Figures: what was measured again and again, and its median and spread.

// The values of one figure, one for each repeat.
class series {
public:
    series() = default;
    explicit series(double only) : values_{only} {}
    void add(double value) { values_.push_back(value); }
    [[nodiscard]] std::size_t size() const { return values_.size(); }
    [[nodiscard]] double last() const { return values_.back(); }
    [[nodiscard]] double median() const;
    [[nodiscard]] series times(double factor) const;
    // So much over each value.
    [[nodiscard]] series under(double amount) const;
    // "-1.2 to +3.4 %": smallest and largest around the median.
    [[nodiscard]] std::string spread() const;

private:
    std::vector<double> values_;
};

// What a case measures in turns: Penstock, the baseline, and the processors that this process kept
// busy during Penstock's part (empty: not measured, shown as 0).
struct measured {
    series ours, baseline, cores{};

    // Of Penstock's part, which `watch` has run for so long.
    void add(double value, const stopwatch& watch, double seconds) {
        ours.add(value);
        cores.add(watch.cores(seconds));
    }
    void add(double value, const stopwatch& watch) { add(value, watch, watch.seconds()); }
    // Of a run that has a rate and cores.
    template <typename Run>
    void add(const Run& run) {
        ours.add(run.rate);
        cores.add(run.cores);
    }
};

// Words of names and notes.

// By a form of printf.
[[gnu::format(printf, 1, 2)]] std::string text_of(const char* form, ...);

// "1 thread", "2 threads"
std::string counted(std::uint64_t count, const std::string& noun);

// A runtime for one measurement. 0: the default, or what the environment says.
struct runtime_shape {
    std::uint64_t page_bytes = 65536;
    std::uint64_t cache_bytes = 0;
    std::uint64_t service_threads = 0;
    std::uint64_t worker_threads = 0;
    bool writable = false;
    std::uint64_t write_behind_bytes = 0;
    std::uint64_t file_bytes = 0;  // of the file whose table has one level; 0: the context's
};

// A runtime that has the file open. Two would share the device's memory, so one goes before the
// next is made.
struct opened_file {
    std::unique_ptr<runtime> rt;
    int fd;
    std::uint64_t bytes;
};

// What is printed: one JSON object, row by row as the cases measure them, so that an error or a
// signal hours later takes none away. A signal leaves it without its end.
class row_printer {
public:
    // The machine in JSON.
    explicit row_printer(std::string machine) : machine_(std::move(machine)) {}
    void add(const std::string& row);
    // Throws where standard output cannot be written, as add() does.
    void end();
    // After an error: what has rows gets its end, and where there is none nothing is printed.
    void end_early();

private:
    void begin();
    void print(const std::string& text);

    std::string machine_;
    apps::output_file out_;
    bool began_ = false, has_rows_ = false;
};

class context {
public:
    context(const settings& asked, backend where, row_printer& out)
        : asked_(asked), where_(where), printer_(out) {}

    [[nodiscard]] const settings& asked() const { return asked_; }
    [[nodiscard]] bool on_gpu() const { return where_ == backend::gpu; }

    // What was asked for, else the case's own choice; with --sweep, the sweep's.
    [[nodiscard]] std::vector<std::uint64_t> pages(std::initializer_list<std::uint64_t> own) const;
    // Sizes of a cache smaller than the file, each at least 16 pages; the case's own is a 16th of
    // the file.
    [[nodiscard]] std::vector<std::uint64_t> caches(std::uint64_t page_bytes) const;
    [[nodiscard]] std::uint64_t small_cache(std::uint64_t page_bytes, unsigned part = 16) const {
        return std::max(bytes() / part, 16 * page_bytes);
    }
    // "cache 1/16 of the file", or its size where it is no simple part.
    [[nodiscard]] std::string cache_label(std::uint64_t cache_bytes) const;
    [[nodiscard]] std::vector<std::uint64_t> service_threads() const;
    [[nodiscard]] std::uint64_t repeats(std::uint64_t own) const {
        return asked_.repeats != 0 ? asked_.repeats : own;
    }
    [[nodiscard]] std::uint64_t threads(std::uint64_t own) const {
        return asked_.threads != 0 ? asked_.threads : own;
    }
    // --threads, or all processors.
    [[nodiscard]] std::uint64_t host_threads() const;
    [[nodiscard]] std::uint64_t file_bytes(std::uint64_t own) const {
        return asked_.file_bytes != 0 ? asked_.file_bytes : own;
    }
    [[nodiscard]] std::uint64_t file_bytes(std::uint64_t on_gpu_own, std::uint64_t on_cpu) const {
        return file_bytes(on_gpu() ? on_gpu_own : on_cpu);
    }

    // The file of that size, in the page cache; the one before is kept if it has it. Returns the
    // size.
    std::uint64_t use_file(std::uint64_t bytes);
    [[nodiscard]] const scratch_file& file() const { return file_; }
    [[nodiscard]] std::uint64_t bytes() const { return file_.bytes(); }
    // By a case that changed it: it has no longer the words that others expect, so the next one
    // gets a new file.
    void forget_file() { file_.remove(); }

    std::unique_ptr<runtime> make_runtime(const runtime_shape& shape);
    // One with the settings of a program: the environment's, of the case's back end.
    [[nodiscard]] options own_options() const;
    std::unique_ptr<runtime> start(const options& o);
    // The same, and the file opened in it.
    opened_file open(const runtime_shape& shape, int flags = open_read);
    opened_file open(std::unique_ptr<runtime> rt, int flags = open_read);

    // Says on standard error what is being done.
    void progress(const std::string& text) const;
    // A case, or a part of one, that cannot be run here; its rows are left out.
    void leave_out(const std::string& text, const std::string& why) const;

    // False, and said, where more than a hundredth of the file stayed in memory when it was
    // dropped: the figures would not be the disk's.
    [[nodiscard]] bool is_cold(const std::string& text, double stayed) const;
    // The same before anything is measured: drops the file.
    [[nodiscard]] bool can_be_cold(const std::string& text) const {
        return is_cold(text, file_.drop_from_page_cache());
    }

    // Adds a row of the report: Penstock and its baseline in the same run. A figure that is no
    // positive number fails the run: something was not measured. `goal`: a row of the goals, or the
    // number of an issue. `page_bytes`: 0 for what has no pages. Number of repeats and spread are
    // put before the note.
    void add(const std::string& goal, const std::string& name, std::uint64_t page_bytes,
             const std::string& unit, const measured& values, const std::string& baseline,
             const std::string& note = "", const std::string& where = "");

private:
    const settings& asked_;
    backend where_;
    scratch_file file_;
    std::set<std::string> said_;  // notes of runtimes, each said once
    row_printer& printer_;
};

}  // namespace penstock::bench
