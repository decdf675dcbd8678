#include "generate.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "common/message.hpp"
#include "common/progress.hpp"
#include "common/random_file.hpp"
#include "common/stopwatch.hpp"
#include "data_files.hpp"
#include "header_text.hpp"
#include "penstock/runtime.hpp"
#include "writer.hpp"

namespace penstock::trace {

namespace {

constexpr std::size_t generated_at_once = 4096;

std::uint64_t part_of(std::uint64_t pages, double share) {
    return std::min(pages,
                    static_cast<std::uint64_t>(std::llround(static_cast<double>(pages) * share)));
}

std::uint64_t distinct_of(std::uint64_t pages, double factor) {
    return pages == 0 ? 0 : std::max<std::uint64_t>(part_of(pages, 1 / factor), 1);
}

class access_maker {
public:
    access_maker(const generate_request& asked, const trace_header& header)
        : asked_(asked), contents_(*header.contents), from_(mix64(asked.seed) + 2) {
        const std::uint64_t common = contents_.common_pages, own = asked.pages - common;
        for (std::uint32_t f = 0; f < header.files.size(); ++f) {
            // The hot pages of the common part are the same in every machine.
            if (common > 0) common_.emplace_back(asked.how, 0, common, asked.skew, asked.seed);
            if (own > 0) own_.emplace_back(asked.how, common, own, asked.skew, asked.seed + 1 + f);
        }
    }

    // One access, and the flush that is due after it.
    void add(std::uint64_t number, std::vector<record>& to) {
        record r;
        r.time_ns = number * ns_per_second / asked_.rate;
        r.file = asked_.machines > 1 ? static_cast<std::uint32_t>(from_.below(asked_.machines)) : 0;
        r.what = from_.share() * 100 < asked_.write_percent ? operation::write : operation::read;
        r.page = pattern_for(r).next(from_);
        if (r.what == operation::write && from_.share() * 100 < asked_.shared_write_percent) {
            r.has_content = true;
            r.content = from_.below(contents_.distinct);
        }
        to.push_back(r);
        if (r.what == operation::read || asked_.flush_every == 0 ||
            ++writes_ % asked_.flush_every != 0)
            return;
        to.push_back({r.time_ns, 0, 0, r.file, 0, operation::flush, false});
    }

private:
    // Machines write what is their own, if they have any; they read common pages as often as there
    // are such.
    page_pattern& pattern_for(const record& r) {
        if (common_.empty()) return own_[r.file];
        if (own_.empty()) return common_[r.file];
        const bool common =
            r.what == operation::read && from_.below(asked_.pages) < contents_.common_pages;
        return common ? common_[r.file] : own_[r.file];
    }

    const generate_request& asked_;
    made_contents contents_;
    apps::dice from_;
    std::vector<page_pattern> common_, own_;  // by file; empty if there are no such pages
    std::uint64_t writes_ = 0;
};

void count(const std::vector<record>& some, generate_report& out) {
    for (const record& r : some)
        ++(r.what == operation::read    ? out.reads
           : r.what == operation::write ? out.writes
                                        : out.flushes);
}

status write_trace(const generate_request& asked, writer& to, generate_report& out) {
    std::atomic<std::uint64_t> done{0};
    const apps::progress bar(
        "trace", asked.accesses, [&done] { return done.load(); }, !asked.quiet);
    access_maker maker(asked, out.header);
    std::vector<record> some;
    for (std::uint64_t at = 0; at < asked.accesses; done = at) {
        some.clear();
        for (const std::uint64_t end =
                 std::min<std::uint64_t>(at + generated_at_once, asked.accesses);
             at < end; ++at)
            maker.add(at, some);
        count(some, out);
        if (status s = to.add(some); !s) return s;
        if (was_interrupted()) return {-ECANCELED, "interrupted; nothing was written"};
    }
    return {};
}

status check_paths(const generate_request& asked, const trace_header& header) {
    for (const file_entry& file : header.files) {
        if (const std::string wrong = check_path(file.path); !wrong.empty())
            return {-EINVAL, "--file: " + wrong};
        if (!asked.data.empty() && apps::same_file(file.path, asked.out))
            return {-EINVAL,
                    "--data: " + apps::shown(file.path) + " is the trace too; give another name"};
    }
    return {};
}

}  // namespace

trace_header made_header(const generate_request& asked) {
    trace_header out;
    out.page_bytes = asked.page_bytes;
    const std::string& path = asked.data.empty() ? asked.file : asked.data;
    if (asked.machines == 0) {
        out.files.push_back({path, asked.pages});
        out.contents = made_contents{distinct_of(asked.pages, asked.factor), asked.seed};
        return out;
    }
    for (std::uint32_t f = 0; f < asked.machines; ++f)
        out.files.push_back({path + "." + std::to_string(f), asked.pages});
    const std::uint64_t common = part_of(asked.pages, asked.common_percent / 100);
    made_contents c{0, asked.seed, common, distinct_of(common, asked.factor),
                    distinct_of(asked.pages - common, asked.factor)};
    c.distinct = c.common_distinct + asked.machines * c.own_distinct;
    out.contents = c;
    return out;
}

status generate(const generate_request& asked, generate_report& out) {
    apps::stopwatch watch;
    out.header = made_header(asked);
    if (status s = check_paths(asked, out.header); !s) return s;
    writer to;
    if (status s = to.open(asked.out, {}, out.header, asked.binary); !s) return s;
    data_files data;
    if (!asked.data.empty()) {
        if (status s = data.make(out.header, asked.threads, asked.quiet); !s) return s;
        out.data_bytes = asked.page_bytes * asked.pages * out.header.files.size();
    }
    if (status s = write_trace(asked, to, out); !s) return s;
    if (status s = data.commit(); !s) return s;
    if (status s = to.commit(); !s) return s;
    out.seconds = watch.lap();
    return {};
}

}  // namespace penstock::trace
