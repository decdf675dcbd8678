// penstock trace generate: makes a trace and the files that it is of, from a seed alone: one file
// of a part of equal pages, or the images of several virtual machines that run the same system.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <map>
#include <optional>

#include "common/numbers.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "common/work_items.hpp"
#include "penstock/runtime.hpp"
#include "trace/patterns.hpp"
#include "trace_command.hpp"

namespace penstock::cli {

namespace {

using trace::record;

constexpr std::uint64_t piece_bytes = 4u << 20;
constexpr std::uint64_t accesses_at_once = 4096;

status read_page(const std::string& flag, const std::string& text, std::uint32_t& out) {
    std::uint64_t bytes = 0;
    if (status s = parse_size(flag, text, bytes); !s) return s;
    if (bytes < trace::least_page_bytes || bytes > trace::most_page_bytes ||
        (bytes & (bytes - 1)) != 0)
        return {-EINVAL, flag + ": " + apps::shown(text) +
                             " is no size of a page; give a power of two from 512 to 2MiB"};
    out = static_cast<std::uint32_t>(bytes);
    return {};
}

std::uint64_t part_of(std::uint64_t pages, double share) {
    return std::min(pages,
                    static_cast<std::uint64_t>(std::llround(static_cast<double>(pages) * share)));
}

std::uint64_t distinct_of(std::uint64_t pages, double factor) {
    return pages == 0 ? 0 : std::max<std::uint64_t>(part_of(pages, 1 / factor), 1);
}

class generate_command : public trace_command {
public:
    generate_command()
        : trace_command("trace generate",
                        "Make a trace that the seed alone decides, and the file that it is of") {}

    void add_options(apps::option_list& add) override {
        constexpr std::uint64_t most_pages = std::uint64_t{1} << 40, most_accesses = 10000000000,
                                most_rate = 1000000000;
        constexpr std::uint32_t most_machines = 256;
        add_output(add);
        add.number("--pages", pages_, {1, most_pages, ""},
                   "Pages of the file, over which the accesses go: the working set; of every "
                   "image, with --machines",
                   "W")
            .required();
        add.number("--accesses", accesses_, {1, most_accesses, ""},
                   "Reads and writes, of a page each", "N")
            .required();
        add.choice("--pattern", pattern_, {"uniform", "zipf", "loop"}, "pattern",
                   "Which page is next: uniform (the default), zipf (the n-th hottest as 1/n^S), "
                   "or loop (one after the other)",
                   "HOW");
        add.number("--skew", skew_, {0.001, 5, ""}, "S of zipf, 0.001 to 5; default: 0.9", "S");
        add.number("--writes", write_percent_, {0, 100, ""},
                   "Percent of the accesses that write; default: 0", "PERCENT");
        add.number("--shared-writes", shared_write_percent_, {0, 100, ""},
                   "Percent of the writes that store what other pages hold; the others store what "
                   "no page holds; default: 0",
                   "PERCENT");
        add.number("--flush-every", flush_every_, {1, most_accesses, ""},
                   "Flush the file after so many writes; default: never", "N");
        add.number("--factor", factor_, {1, 1000, ""},
                   "How many pages hold the same, on average: 1 (the default) to 1000, such as 2.5",
                   "D");
        add.number("--machines", machines_, {1, most_machines, ""},
                   "Make a trace of so many virtual machines, 1 to 256, each with an image called "
                   "PATH.0, PATH.1 and so on",
                   "M");
        add.number("--common", common_percent_, {0, 100, ""},
                   "Percent of the pages of an image that are equal in all; default: 0", "PERCENT");
        add.number("--rate", rate_, {1, most_rate, ""}, "Accesses in a second; default: 10000",
                   "N");
        add.value("--page", read_page, page_bytes_,
                  "Size of a page: a power of two, 512 to 2MiB; default: 4KiB", "SIZE");
        add.number("--seed", seed_, {0, UINT64_MAX, "from 0 to 18,446,744,073,709,551,615"},
                   "Of all that is made; default: 1", "S");
        add.text("--file", file_, "What the trace calls its file; default: TRACE.data", "PATH");
        add.text("--data", data_, "Make the file too, here, and call it so", "PATH");
        add.number("--workers", workers_, {1, 1024, ""},
                   "Threads that make it; default: one for every processor", "N");
        add_report(add);
    }

    status check() override {
        const bool two_names = !data_.empty() && !file_.empty();
        if (file_.empty()) file_ = out_ + ".data";
        return first_mistake(
            {{text_ && binary_, "--text excludes --binary; see --help"},
             apart_from_report(),
             {two_names, "--file excludes --data; see --help"},
             {common_percent_ != not_given && machines_ == 0,
              "--common: there is one file only; give --machines too, or leave it out"},
             {skew_ != not_given && pattern_ != "zipf",
              "--skew: is only for --pattern zipf; give that, or leave it out"},
             {write_percent_ == not_given && shared_write_percent_ != not_given,
              "--shared-writes: there are no writes; give --writes too, or leave it out"},
             {write_percent_ == not_given && flush_every_ > 0,
              "--flush-every: there are no writes; give --writes too, or leave it out"}});
    }

    // Trace and files appear whole or not at all.
    status run() override {
        if (status s = apps::watch_signals(); !s) return s;
        apps::stopwatch watch;
        settle_header();
        if (status s = check_paths(); !s) return s;
        if (!data_.empty())
            if (status s = apps::check_room(header_.files.front().path, data_bytes(),
                                            "give fewer --pages, or another place");
                !s)
                return s;
        trace::writer to;
        if (status s = to.open(out_, {}, header_, binary_); !s) return s;
        if (status s = make_files(); !s) return s;
        if (status s = write_trace(to); !s) return s;
        if (status s = put_in_place(to); !s) return s;
        const double seconds = watch.lap();
        const std::uint64_t made_bytes = files_.empty() ? 0 : data_bytes();
        nlohmann::json object = {{"trace", out_},
                                 {"format", name_of_format(binary_)},
                                 {"data_bytes", made_bytes},
                                 {"seconds", seconds}};
        object.update(counts_);
        object.update(json_of(header_));
        return report_line(
            object, out_ + ": " + text_of(counts_) +
                        (made_bytes > 0 ? "; " + format_size(made_bytes) + " of data made" : "") +
                        apps::text_of(" in %.2f s", seconds));
    }

private:
    static constexpr double not_given = -1;

    // Of all files; more than can be counted is more than any disk has.
    [[nodiscard]] std::uint64_t data_bytes() const {
        const std::uint64_t files = header_.files.size();
        return pages_ > UINT64_MAX / page_bytes_ / files ? UINT64_MAX
                                                         : page_bytes_ * pages_ * files;
    }

    void settle_header() {
        const std::string& path = data_.empty() ? file_ : data_;
        header_.page_bytes = page_bytes_;
        header_.contents = trace::made_contents{distinct_of(pages_, factor_), seed_};
        if (machines_ == 0) header_.files.push_back({path, pages_});
        if (machines_ == 0) return;
        for (std::uint32_t f = 0; f < machines_; ++f)
            header_.files.push_back({path + "." + std::to_string(f), pages_});
        trace::made_contents& c = *header_.contents;
        c.common_pages = part_of(pages_, std::max(common_percent_, 0.0) / 100);
        c.common_distinct = distinct_of(c.common_pages, factor_);
        c.own_distinct = distinct_of(pages_ - c.common_pages, factor_);
        c.distinct = c.common_distinct + machines_ * c.own_distinct;
    }

    [[nodiscard]] status check_paths() const {
        std::map<std::optional<apps::file_place>, std::string> seen;
        for (const trace::file_entry& file : header_.files) {
            if (const std::string wrong = trace::check_path(file.path); !wrong.empty())
                return {-EINVAL, "--file: " + wrong};
            if (data_.empty()) continue;
            if (status s = apps::check_not_report(common.json, file.path); !s) return s;
            if (apps::same_file(file.path, out_))
                return {-EINVAL, "--data: " + apps::shown(file.path) +
                                     " is the trace too; give another name"};
            const std::optional<apps::file_place> place = apps::place_of(file.path);
            const auto [known, is_new] = seen.try_emplace(place, file.path);
            if (place && !is_new)
                return {-EINVAL, "--data: " + apps::shown(file.path) + " is " +
                                     apps::shown(known->second) +
                                     " too, by a link; give another name, or remove the link"};
        }
        return {};
    }

    // With the contents that the header says, by all threads.
    status make_files() {
        for (std::size_t f = 0; f < header_.files.size() && !data_.empty(); ++f) {
            files_.push_back(std::make_unique<apps::output_file>());
            if (status s = files_.back()->open_named(header_.files[f].path); !s) return s;
        }
        const std::uint64_t piece_pages = piece_bytes / page_bytes_;
        const auto threads = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(workers_ > 0 ? workers_ : apps::thread_count({}),
                                    apps::pieces_of(pages_, piece_pages)));
        std::atomic<std::uint64_t> made{0};
        const apps::progress bar(
            "data", pages_ * files_.size(), [&made] { return made.load(); },
            !common.quiet && !files_.empty());
        std::vector<std::vector<std::byte>> rooms(threads);
        for (std::uint32_t f = 0; f < files_.size(); ++f) {
            const auto make_piece = [&](std::uint32_t thread, std::uint64_t first,
                                        std::uint64_t count) {
                std::vector<std::byte>& bytes = rooms[thread];
                bytes.resize(piece_bytes);
                for (std::uint64_t i = 0; i < count; ++i)
                    trace::fill_page(trace::made_content(*header_.contents, f, first + i),
                                     bytes.data() + i * page_bytes_, page_bytes_);
                made += count;
                return files_[f]->write_at(bytes.data(), count * page_bytes_, first * page_bytes_);
            };
            if (status s = apps::on_pieces(threads, pages_, piece_pages, make_piece); !s) return s;
        }
        return {};
    }

    status write_trace(trace::writer& to) {
        const std::uint64_t common_pages = header_.contents->common_pages,
                            own = pages_ - common_pages;
        const trace::pattern kind = pattern_ == "zipf"   ? trace::pattern::zipf
                                    : pattern_ == "loop" ? trace::pattern::loop
                                                         : trace::pattern::uniform;
        const double skew = skew_ == not_given ? 0.9 : skew_;
        for (std::uint32_t f = 0; f < header_.files.size(); ++f) {
            // The hot pages of the common part are the same in every machine.
            if (common_pages > 0) common_.emplace_back(kind, 0, common_pages, skew, seed_);
            if (own > 0) own_.emplace_back(kind, common_pages, own, skew, seed_ + 1 + f);
        }
        apps::dice from(mix64(seed_) + 2);
        std::atomic<std::uint64_t> done{0};
        const apps::progress bar(
            "trace", accesses_, [&done] { return done.load(); }, !common.quiet);
        std::vector<record> batch;
        for (std::uint64_t at = 0; at < accesses_; done = at) {
            batch.clear();
            for (const std::uint64_t end = std::min(at + accesses_at_once, accesses_); at < end;
                 ++at)
                add_access(at, from, batch);
            for (const record& r : batch) counts_.add(r);
            if (status s = to.add(batch); !s) return s;
            if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
        }
        return {};
    }

    // None of the files before all are whole: a trace that finds no room for its end leaves the
    // data of an older one as they were.
    status put_in_place(trace::writer& to) {
        if (status s = to.finish(); !s) return s;
        for (const auto& file : files_)
            if (status s = file->finish(); !s) return s;
        for (const auto& file : files_)
            if (status s = file->commit(); !s) return s;
        return to.commit();
    }

    // One access, and the flush that is due after it.
    void add_access(std::uint64_t number, apps::dice& from, std::vector<record>& to) {
        record r;
        r.time_ns = number * trace::ns_per_second / rate_;
        r.file = machines_ > 1 ? static_cast<std::uint32_t>(from.below(machines_)) : 0;
        const bool writes = from.share() * 100 < write_percent_;
        r.kind = writes ? trace::operation::write : trace::operation::read;
        // Machines write what is their own, if they have any; they read common pages as often as
        // there are such.
        const bool common = own_.empty() || (!common_.empty() && !writes &&
                                             from.below(pages_) < header_.contents->common_pages);
        r.page = (common ? common_ : own_)[r.file].next(from);
        if (writes && from.share() * 100 < shared_write_percent_) {
            r.has_content = true;
            r.content = from.below(header_.contents->distinct);
        }
        to.push_back(r);
        if (writes && flush_every_ > 0 && ++writes_ % flush_every_ == 0)
            to.push_back({r.time_ns, 0, 0, r.file, 0, trace::operation::flush, false});
    }

    std::string file_, data_;  // how the trace calls its file, or the images before ".0"; the same
                               // where the file is to be made, or empty
    std::string pattern_;
    std::uint32_t page_bytes_ = 4096, machines_ = 0, workers_ = 0;  // 0: one file; all processors
    std::uint64_t pages_ = 0, accesses_ = 0, seed_ = 1, rate_ = 10000, flush_every_ = 0;
    double factor_ = 1, write_percent_ = not_given, shared_write_percent_ = not_given;
    double skew_ = not_given, common_percent_ = not_given;

    trace::trace_header header_;
    std::vector<std::unique_ptr<apps::output_file>> files_;
    std::vector<trace::page_pattern> common_, own_;  // by file; empty if there are no such pages
    trace::operation_counts counts_;
    std::uint64_t writes_ = 0;
};

}  // namespace

std::unique_ptr<command> make_trace_generate() { return std::make_unique<generate_command>(); }

}  // namespace penstock::cli
