// Makes traces: their contents, their files and their accesses.
#include "generate.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "common/message.hpp"
#include "common/numbers.hpp"
#include "common/process.hpp"
#include "common/threads.hpp"
#include "common/work_items.hpp"
#include "formats.hpp"
#include "penstock/runtime.hpp"

namespace penstock::trace {

namespace {

constexpr std::uint64_t golden = 0x9e3779b97f4a7c15ull;

// Stretch number `page / distinct` has every content once, in order, from a place that seed, part
// and stretch decide.
std::uint64_t content_in(std::uint64_t distinct, std::uint64_t seed, std::uint64_t part,
                         std::uint64_t page) {
    const std::uint64_t stretch = page / distinct,
                        from = mix64(mix64(mix64(seed + golden) + part) + stretch) % distinct;
    const std::uint64_t place = page % distinct;
    return place < distinct - from ? place + from : place - (distinct - from);
}

constexpr std::uint64_t piece_bytes = 4u << 20;

constexpr std::size_t accesses_at_once = 4096;

std::uint64_t part_of(std::uint64_t pages, double share) {
    return std::min(pages,
                    static_cast<std::uint64_t>(std::llround(static_cast<double>(pages) * share)));
}

std::uint64_t distinct_of(std::uint64_t pages, double factor) {
    return pages == 0 ? 0 : std::max<std::uint64_t>(part_of(pages, 1 / factor), 1);
}

// `first` and the count - 1 pages after it; count is above 0. The seed decides which pages are the
// hot ones.
class page_pattern {
public:
    page_pattern(pattern kind, std::uint64_t first, std::uint64_t count, double skew,
                 std::uint64_t seed)
        : kind_(kind), first_(first), count_(count), ranks_(count, skew), places_(count, seed) {}

    std::uint64_t next(apps::dice& from) {
        if (kind_ == pattern::uniform) return first_ + from.below(count_);
        if (kind_ == pattern::loop) return first_ + at_++ % count_;
        return first_ + places_(ranks_.draw([&from] { return from.share(); }) - 1);
    }

private:
    pattern kind_;
    std::uint64_t first_, count_, at_ = 0;
    zipf ranks_;
    scattered places_;
};

class access_maker {
public:
    access_maker(const generate_request& asked, const trace_header& header)
        : asked_(asked), contents_(*header.contents), from_(mix64(asked.seed) + 2) {
        const std::uint64_t common = contents_.common_pages, own = asked.pages - common;
        for (std::uint32_t f = 0; f < header.files.size(); ++f) {
            // The hot pages of the common part are the same in every machine.
            if (common > 0)
                common_.emplace_back(asked.access_pattern, 0, common, asked.skew, asked.seed);
            if (own > 0)
                own_.emplace_back(asked.access_pattern, common, own, asked.skew,
                                  asked.seed + 1 + f);
        }
    }

    // One access, and the flush that is due after it.
    void add(std::uint64_t number, std::vector<record>& to) {
        record r;
        r.time_ns = number * ns_per_second / asked_.rate;
        r.file = asked_.machines > 1 ? static_cast<std::uint32_t>(from_.below(asked_.machines)) : 0;
        r.kind = from_.share() * 100 < asked_.write_percent ? operation::write : operation::read;
        r.page = pattern_for(r).next(from_);
        if (r.kind == operation::write && from_.share() * 100 < asked_.shared_write_percent) {
            r.has_content = true;
            r.content = from_.below(contents_.distinct);
        }
        to.push_back(r);
        if (r.kind == operation::read || asked_.flush_every == 0 ||
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
            r.kind == operation::read && from_.below(asked_.pages) < contents_.common_pages;
        return common ? common_[r.file] : own_[r.file];
    }

    const generate_request& asked_;
    made_contents contents_;
    apps::dice from_;
    std::vector<page_pattern> common_, own_;  // by file; empty if there are no such pages
    std::uint64_t writes_ = 0;
};

status write_trace(const generate_request& asked, writer& to, generate_report& out) {
    std::atomic<std::uint64_t> done{0};
    const apps::progress bar(
        "trace", asked.accesses, [&done] { return done.load(); }, !asked.quiet);
    access_maker maker(asked, out.header);
    std::vector<record> batch;
    for (std::uint64_t at = 0; at < asked.accesses; done = at) {
        batch.clear();
        for (const std::uint64_t end =
                 std::min<std::uint64_t>(at + accesses_at_once, asked.accesses);
             at < end; ++at)
            maker.add(at, batch);
        for (const record& r : batch) out.counts.add(r);
        if (status s = to.add(batch); !s) return s;
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

// Makes the files of a trace, with the contents that its header says, by all threads.
status make_files(const trace_header& header, const generate_request& asked,
                  std::vector<std::unique_ptr<apps::output_file>>& out) {
    for (const file_entry& file : header.files)
        if (status s =
                out.emplace_back(std::make_unique<apps::output_file>())->open_named(file.path);
            !s)
            return s;
    const std::uint64_t piece_pages = piece_bytes / header.page_bytes;
    std::atomic<std::uint64_t> made{0};
    const apps::progress bar(
        "data", asked.pages * header.files.size(), [&made] { return made.load(); }, !asked.quiet);
    std::vector<std::vector<std::byte>> rooms(asked.threads);
    for (std::uint32_t f = 0; f < header.files.size(); ++f) {
        const auto make_piece = [&](std::uint32_t thread, std::uint64_t first,
                                    std::uint64_t count) {
            std::vector<std::byte>& bytes = rooms[thread];
            bytes.resize(piece_bytes);
            for (std::uint64_t i = 0; i < count; ++i)
                fill_page(made_content(*header.contents, f, first + i),
                          bytes.data() + i * header.page_bytes, header.page_bytes);
            made += count;
            return out[f]->write_at(bytes.data(), count * header.page_bytes,
                                    first * header.page_bytes);
        };
        const auto threads = static_cast<std::uint32_t>(
            std::min<std::uint64_t>(asked.threads, apps::pieces_of(asked.pages, piece_pages)));
        if (status s = apps::on_pieces(threads, asked.pages, piece_pages, make_piece); !s) return s;
    }
    return {};
}

}  // namespace

std::uint64_t made_content(const made_contents& c, std::uint32_t file, std::uint64_t page) {
    if (c.common_pages == 0 && c.own_distinct == 0)
        return content_in(c.distinct, c.seed, file + std::uint64_t{1}, page);
    if (page < c.common_pages) return content_in(c.common_distinct, c.seed, 0, page);
    return c.common_distinct + file * c.own_distinct +
           content_in(c.own_distinct, c.seed, file + std::uint64_t{1}, page - c.common_pages);
}

// mix64 is one to one: the first word tells contents apart, and within one content the second word
// tells places apart.
void fill_page(std::uint64_t content, std::byte* to, std::uint32_t page_bytes) {
    constexpr std::uint32_t words = 8, chunk_bytes = 64;
    const std::uint64_t first = mix64(content + golden);
    for (std::uint32_t at = 0; at < page_bytes; at += chunk_bytes) {
        std::uint64_t chunk[words] = {first, mix64(first + at + golden)};
        for (std::uint32_t i = 2; i < words; ++i) chunk[i] = mix64(chunk[1] + i * golden);
        std::memcpy(to + at, chunk, chunk_bytes);
    }
}

status generate(const generate_request& asked, generate_report& out) {
    apps::stopwatch watch;
    out.header = made_header(asked);
    if (status s = check_paths(asked, out.header); !s) return s;
    writer to;
    if (status s = to.open(asked.out, {}, out.header, asked.binary); !s) return s;
    std::vector<std::unique_ptr<apps::output_file>> files;
    if (!asked.data.empty()) {
        if (status s = make_files(out.header, asked, files); !s) return s;
        out.data_bytes = asked.page_bytes * asked.pages * out.header.files.size();
    }
    if (status s = write_trace(asked, to, out); !s) return s;
    for (const auto& file : files)
        if (status s = file->commit(); !s) return s;
    if (status s = to.commit(); !s) return s;
    out.seconds = watch.lap();
    return {};
}

}  // namespace penstock::trace
