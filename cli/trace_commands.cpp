// penstock trace convert and show: what a trace has, in the other format or in numbers.
#include <algorithm>
#include <array>
#include <map>
#include <new>
#include <unordered_map>

#include "common/process.hpp"
#include "trace_command.hpp"

namespace penstock::cli {

namespace {

using apps::with_commas;
using nlohmann::json;
using trace::record;

constexpr std::size_t records_at_once = 8192;

class convert_command : public trace_command {
public:
    convert_command() : trace_command("trace convert", "Write a trace as text, or binary") {}

    void add_options(apps::option_list& add) override {
        add_input(add);
        add_output(add);
        add_report(add);
    }

    status check() override {
        return first_mistake(
            {{text_ && binary_, "--text excludes --binary; see --help"},
             {!text_ && !binary_, "give --text or --binary, for what the trace is to become"},
             apart_from_report()});
    }

    status run() override {
        if (status s = apps::watch_signals(); !s) return s;
        trace::reader from;
        if (status s = from.open(input_); !s) return s;
        trace::writer to;
        if (status s = to.open(out_, input_, from.header(), binary_); !s) return s;
        std::vector<record> records;
        do {
            if (status s = from.next(records, records_at_once); !s) return s;
            if (status s = to.add(records); !s) return s;
        } while (!records.empty());
        if (status s = to.commit(); !s) return s;
        const char* const format = name_of_format(binary_);
        return report_line(
            {{"input", input_}, {"trace", out_}, {"format", format}, {"records", to.records()}},
            out_ + ": " + with_commas(to.records()) + " records as " + format);
    }
};

// How often each page of a trace's files was accessed. Memory is taken only where pages are
// accessed.
class page_counts {
public:
    // False: the files are too large to count their pages.
    bool open(const std::vector<trace::file_entry>& files) {
        std::uint64_t pages = 0;
        for (const trace::file_entry& file : files) {
            first_.push_back(pages);
            pages += std::min(file.pages, most_pages + 1);
            if (pages > most_pages) return false;
        }
        return true;
    }

    // False: more pages than the memory that so many records may take, or than there is; nothing is
    // counted any more.
    bool add(const record& r) try {
        const std::uint64_t first = first_[r.file] + r.page, end = first + r.pages,
                            room = std::min(first_blocks + ++records_ * blocks_of_a_record,
                                            most_blocks);
        for (std::uint64_t page = first; page < end;) {
            auto& counts = blocks_[page / block_pages];
            if (blocks_.size() > room) return give_up();
            for (const std::uint64_t stop = std::min(end, (page / block_pages + 1) * block_pages);
                 page < stop; ++page)
                counts[page % block_pages] += counts[page % block_pages] < UINT32_MAX ? 1 : 0;
        }
        return true;
    } catch (const std::bad_alloc&) {
        return give_up();
    }

    // How many pages were accessed how often, the most accessed first; only those that were.
    using groups = std::map<std::uint64_t, std::uint64_t, std::greater<>>;  // pages by times
    [[nodiscard]] groups pages_by_times() const {
        groups out;
        for (const auto& block : blocks_)
            for (const std::uint32_t count : block.second)
                if (count > 0) ++out[count];
        return out;
    }

private:
    bool give_up() {
        blocks_ = {};
        return false;
    }

    static constexpr std::uint64_t most_pages = std::uint64_t{1} << 34, block_pages = 64;
    // A record of 32 bytes may name billions of pages, so memory for counters goes by the number of
    // records, up to 1 GiB of counters.
    static constexpr std::uint64_t first_blocks = 1u << 20, blocks_of_a_record = 64,
                                   most_blocks = 1u << 22;
    std::uint64_t records_ = 0;
    std::vector<std::uint64_t> first_;  // of each file, among the pages of all
    std::unordered_map<std::uint64_t, std::array<std::uint32_t, block_pages>> blocks_;
};

// The share of the accesses that the hottest `part` of the pages take, at least one page.
double share_of_hottest(const page_counts::groups& groups, std::uint64_t pages,
                        std::uint64_t accesses, double part) {
    std::uint64_t left = std::max<std::uint64_t>(
                      static_cast<std::uint64_t>(static_cast<double>(pages) * part), 1),
                  taken = 0;
    for (const auto& [times, count] : groups) {
        taken += std::min(left, count) * times;
        left -= std::min(left, count);
    }
    return accesses == 0 ? 0 : static_cast<double>(taken) / static_cast<double>(accesses);
}

class show_command : public trace_command {
public:
    show_command()
        : trace_command("trace show", "Check a trace from front to back, and say what is in it") {}

    void add_options(apps::option_list& add) override {
        add_input(add);
        add_report(add);
    }

    status run() override {
        if (status s = apps::watch_signals(); !s) return s;
        if (status s = from_.open(input_); !s) return s;
        page_counts pages;
        bool counted = pages.open(from_.header().files);
        std::vector<record> records;
        do {
            if (status s = from_.next(records, records_at_once); !s) return s;
            for (const record& r : records) {
                count(r);
                if (counted) counted = pages.add(r);
            }
        } while (!records.empty());
        if (counted) {
            const page_counts::groups groups = pages.pages_by_times();
            distinct_pages_ = 0;
            for (const auto& group : groups) *distinct_pages_ += group.second;
            const std::uint64_t accesses = pages_read_ + pages_written_;
            hottest_1_ = share_of_hottest(groups, *distinct_pages_, accesses, 0.01);
            hottest_10_ = share_of_hottest(groups, *distinct_pages_, accesses, 0.1);
        }
        return report(json_of_all(), text_of_all());
    }

private:
    void count(const record& r) {
        counts_.add(r);
        (r.kind == trace::operation::read ? pages_read_ : pages_written_) += r.pages;
        with_content_ += r.has_content ? 1 : 0;
        if (records_++ == 0) first_ns_ = r.time_ns;
        last_ns_ = r.time_ns;
    }

    [[nodiscard]] json json_of_all() const {
        const bool counted = distinct_pages_.has_value();
        json out = {{"trace", input_},
                    {"format", name_of_format(from_.is_binary())},
                    {"records", records_},
                    {"writes_with_content", with_content_},
                    {"pages_read", pages_read_},
                    {"pages_written", pages_written_},
                    {"first_ns", first_ns_},
                    {"last_ns", last_ns_},
                    {"duration_ns", last_ns_ - first_ns_},
                    {"distinct_pages", counted ? json(*distinct_pages_) : json(nullptr)},
                    {"hottest_1_percent_share", counted ? json(hottest_1_) : json(nullptr)},
                    {"hottest_10_percent_share", counted ? json(hottest_10_) : json(nullptr)}};
        out.update(counts_);
        out.update(json_of(from_.header()));
        return out;
    }

    [[nodiscard]] std::string text_of_all() const {
        const trace::trace_header& h = from_.header();
        std::string out = apps::shown(input_) + ": " + name_of_format(from_.is_binary()) +
                          ", pages of " + format_size(h.page_bytes) + "\n";
        for (std::size_t f = 0; f < h.files.size(); ++f)
            out += "file " + std::to_string(f) + ": " + apps::shown(h.files[f].path) + ", " +
                   with_commas(h.files[f].pages) + " pages\n";
        if (h.contents) out += "contents: " + with_commas(h.contents->distinct) + " distinct\n";
        if (h.contents && h.contents->common_pages > 0)
            out += "common: the first " + with_commas(h.contents->common_pages) +
                   " pages of each file\n";
        out += with_commas(records_) + " records: " + text_of(counts_) + "\n" +
               with_commas(pages_read_) + " pages read, " + with_commas(pages_written_) +
               " written; " + with_commas(with_content_) + " writes name their contents\n" +
               apps::text_of("%.6f s from first to last\n",
                             1e-9 * static_cast<double>(last_ns_ - first_ns_));
        if (!distinct_pages_)
            return out + "the files have too many pages to count them, or too many were accessed\n";
        return out + with_commas(*distinct_pages_) + " distinct pages; the hottest 1 % take " +
               apps::text_of("%.1f %% of the accesses, ", 100 * hottest_1_) + "the hottest 10 % " +
               apps::text_of("%.1f %%\n", 100 * hottest_10_);
    }

    trace::reader from_;
    trace::operation_counts counts_;
    std::uint64_t records_ = 0, with_content_ = 0, pages_read_ = 0, pages_written_ = 0;
    std::uint64_t first_ns_ = 0, last_ns_ = 0;
    std::optional<std::uint64_t> distinct_pages_;  // without a value, the rest is unknown too
    double hottest_1_ = 0, hottest_10_ = 0;        // share of the accesses that these pages take
};

}  // namespace

std::vector<std::unique_ptr<command>> make_trace_commands() {
    std::vector<std::unique_ptr<command>> out;
    out.push_back(make_trace_generate());
    out.push_back(std::make_unique<convert_command>());
    out.push_back(std::make_unique<show_command>());
    return out;
}

}  // namespace penstock::cli
