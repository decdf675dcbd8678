// penstock stat: what the programs of this user that run now do with Penstock, read from the pages
// that their runtimes publish (os/statistics_page.hpp).
#include <algorithm>
#include <chrono>
#include <thread>

#include "command.hpp"
#include "common/numbers.hpp"
#include "common/process.hpp"
#include "os/file_kind.hpp"
#include "os/file_system.hpp"
#include "penstock/group/lane.hpp"
#include "penstock/prometheus.hpp"
#include "stat_table.hpp"

namespace penstock::cli {

namespace {

const command_text stat_text = {
    "stat",
    "Tells what running programs do with Penstock: where pages came from, bytes, waits, errors.\n",
    "\nIt lists the programs of this user that have a runtime and do not keep its statistics for "
    "themselves (PENSTOCK_STATISTICS=off).\nA line is of one cache. HITS are page accesses that "
    "the cache served, the next four columns those that it did not, by the source of\nthe bytes. "
    "READ are bytes that callers read, WAITS are waits of groups, CACHE is how much of the cache "
    "has pages. Without --watch the\nnumbers are sums since the runtime was made; with it they "
    "are for each second, but for CACHE, and for ERRS, which are those of the interval.\n",
    false, "stat: "};

// A program that runs answers within some beats of its monitor (20 ms each).
constexpr std::uint64_t answer_ns = 500'000'000;
constexpr auto answer_look_time = std::chrono::milliseconds(2);
constexpr int lines_to_a_head = 20;

status ask_all(const std::vector<int>& pids, std::vector<cache_report>& out) {
    out.clear();
    std::vector<host::found_statistics> found;
    if (const int code = host::find_statistics(found, pids); code != 0)
        return {code, "the programs cannot be looked at: " +
                          host::error_and_cure(code, "free some memory")};
    std::vector<std::uint64_t> tickets;
    for (host::found_statistics& each : found) tickets.push_back(each.page.ask());
    const std::uint64_t deadline = penstock::detail::host_now_ns() + answer_ns;
    for (std::size_t i = 0; i < found.size(); ++i) {
        host::statistics_snapshot seen;
        int code = 0;
        bool answers = false;
        for (;;) {
            code = found[i].page.read(seen);
            // The number may have come round.
            answers = code == 0 && static_cast<std::int64_t>(seen.answered - tickets[i]) >= 0;
            if (answers || penstock::detail::host_now_ns() > deadline) break;
            std::this_thread::sleep_for(answer_look_time);
        }
        // Stopped in the middle of a publication: there are no counts that belong together.
        if (code != 0) continue;
        out.push_back({found[i].pid, found[i].program, found[i].page.start_ticks(),
                       host::published_from(found[i].page.names(), seen.words), seen.taken_ns,
                       answers});
    }
    number_caches(out);
    return {};
}

metric_labels labels_of(const cache_report& report) {
    return {{"pid", std::to_string(report.pid)},
            {"program", report.program},
            {"device", device_of(report)},
            {"cache", std::to_string(report.now.cache_number)}};
}

std::string prometheus_of(const std::vector<cache_report>& all) {
    std::vector<labelled_statistics> counted;
    std::vector<metric_value> pages, page_bytes, answers;
    for (const cache_report& each : all) {
        const metric_labels labels = labels_of(each);
        counted.push_back({each.now.counted, labels});
        pages.push_back({each.now.cache_pages, labels});
        page_bytes.push_back({each.now.page_bytes, labels});
        answers.push_back({each.answers ? 1u : 0u, labels});
    }
    return prometheus_text(counted) +
           prometheus_metric("penstock_cache_pages", "gauge", "Pages that the cache has room for.",
                             pages) +
           prometheus_metric("penstock_page_bytes", "gauge", "Bytes of a page.", page_bytes) +
           prometheus_metric("penstock_answers", "gauge",
                             "1: the program answered; 0: its counts are older than the question.",
                             answers);
}

nlohmann::json json_of(const std::vector<cache_report>& all) {
    nlohmann::json caches = nlohmann::json::array();
    for (const cache_report& each : all)
        caches.push_back({{"pid", each.pid},
                          {"program", each.program},
                          {"device", device_of(each)},
                          {"cache", each.now.cache_number},
                          {"page_bytes", each.now.page_bytes},
                          {"cache_pages", each.now.cache_pages},
                          {"answers", each.answers},
                          {"taken_ns", each.taken_ns},
                          {"statistics", nlohmann::json::parse(each.now.counted.to_json())}});
    return {{"caches", caches}};
}

class stat_command : public command {
public:
    stat_command() : command(stat_text) {}

    void add_options(apps::option_list& add) override {
        add.optional_operands("PID", numbers_, "Processes to tell of (default: all of this user)");
        add.flag("--watch", watches_, "A line for each cache each second, until Ctrl-C");
        add.number("--interval", interval_, {0.1, 3600, ""},
                   "The same, so many seconds apart (default 1)", "SECONDS");
        add.flag("--json", common.json, "Print one JSON object, each time");
        add.flag("--prometheus", prometheus_, "Print the text that Prometheus reads");
    }

    status check() override {
        for (const std::string& text : numbers_) {
            int pid = 0;
            if (text.empty())  // which parse_number() takes for an option that was not given
                return {-EINVAL, "PID: '' is no whole number of a process"};
            if (status s = apps::parse_number("PID", text, 1, 1 << 22, "of a process", pid); !s)
                return s;
            pids_.push_back(pid);
        }
        watches_ = watches_ || interval_ != 0;
        if (interval_ == 0) interval_ = 1;
        return first_mistake({{prometheus_ && common.json,
                               "--prometheus and --json are two forms of one report; give one"},
                              {prometheus_ && watches_,
                               "--prometheus: the text is of one moment; leave --watch and "
                               "--interval out, and run it again for the next"}});
    }

    status run() override {
        if (!host::is_proc_there())
            return {-EUNATCH,
                    "/proc is not mounted, where the programs are; mount it (mount -t proc "
                    "proc /proc)"};
        std::vector<cache_report> first;
        if (status s = ask_all(pids_, first); !s) return s;
        if (status s = check_found(first); !s) return s;
        return watches_ ? watch(first) : print(first);
    }

private:
    // Each process that was named is there.
    status check_found(const std::vector<cache_report>& all) const {
        for (const int pid : pids_)
            if (std::none_of(all.begin(), all.end(),
                             [pid](const cache_report& each) { return each.pid == pid; }))
                return {-ESRCH, "PID " + std::to_string(pid) +
                                    ": no process of this user that publishes statistics; "
                                    "without a PID all of them are listed"};
        return {};
    }

    [[nodiscard]] status print(const std::vector<cache_report>& all) const {
        if (prometheus_) return apps::print_json(prometheus_of(all));
        if (common.json) return apps::print_json(line_of(json_of(all)));
        if (all.empty()) return apps::print_json("no program of this user uses Penstock now\n");
        std::string text = table_head();
        for (const cache_report& each : all) text += table_line(each, nullptr);
        for (const cache_report& each : all)
            if (!each.answers)
                text += "PID " + std::to_string(each.pid) +
                        ": no answer, so its counts may be old; is the program stopped?\n";
        return apps::print_json(text);
    }

    status watch(std::vector<cache_report> before) {
        if (status s = apps::watch_signals(); !s) return s;
        // Else the first lines come after an interval.
        if (common.json || before.empty())
            if (status s = print(before); !s) return s;
        using clock = std::chrono::steady_clock;
        const std::chrono::nanoseconds step(static_cast<long>(interval_ * 1e9));
        auto next = clock::now();
        int lines = 0;
        while (wait_until(next += step)) {
            // Of a program that was stopped, or a machine that slept, lines that it missed are left
            // out.
            if (const auto now = clock::now(); now - next >= step) next = now;
            std::vector<cache_report> now;
            if (status s = ask_all(pids_, now); !s) return s;
            if (now.empty() && !pids_.empty()) return {};  // all that were named have ended
            const status printed = common.json ? print(now) : print_rates(before, now, lines);
            if (!printed) return printed;
            before = std::move(now);
        }
        return {};
    }

    // False: a signal came before.
    static bool wait_until(std::chrono::steady_clock::time_point end) {
        constexpr auto look_for_signals = std::chrono::milliseconds(50);
        while (!was_interrupted()) {
            const auto now = std::chrono::steady_clock::now();
            if (now >= end) return true;
            std::this_thread::sleep_for(
                std::min<std::chrono::steady_clock::duration>(end - now, look_for_signals));
        }
        return false;
    }

    // A cache that is new has its first line after the next interval.
    static status print_rates(const std::vector<cache_report>& before,
                              const std::vector<cache_report>& now, int& lines) {
        std::string text;
        for (const cache_report& each : now)
            for (const cache_report& old : before) {
                if (!each.is_same(old)) continue;
                if (lines++ % lines_to_a_head == 0) text += table_head();
                text += table_line(each, &old);
            }
        return text.empty() ? status{} : apps::print_json(text);
    }

    std::vector<std::string> numbers_;
    std::vector<int> pids_;
    bool watches_ = false, prometheus_ = false;
    double interval_ = 0;
};

}  // namespace

std::unique_ptr<command> make_stat() { return std::make_unique<stat_command>(); }

}  // namespace penstock::cli
