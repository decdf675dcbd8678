#include "summary.hpp"

#include <algorithm>
#include <map>
#include <sys/mman.h>

#include "common/work_items.hpp"
#include "formats.hpp"

namespace penstock::trace {

namespace {

constexpr std::size_t summarised_at_once = 8192;

// The share of the accesses that the first `share` of the pages take, at least one page.
double hottest(const std::vector<page_counts::group>& groups, std::uint64_t pages,
               std::uint64_t accesses, double share) {
    std::uint64_t left = std::max<std::uint64_t>(
                      static_cast<std::uint64_t>(static_cast<double>(pages) * share), 1),
                  taken = 0;
    for (const page_counts::group& entry : groups) {
        const std::uint64_t part = std::min(left, entry.pages);
        taken += part * entry.times;
        left -= part;
    }
    return accesses == 0 ? 0 : static_cast<double>(taken) / static_cast<double>(accesses);
}

void count(const record& r, summary& out) {
    ++(r.kind == operation::read    ? out.reads
       : r.kind == operation::write ? out.writes
                                    : out.flushes);
    if (r.kind == operation::read) out.pages_read += r.pages;
    if (r.kind == operation::write) out.pages_written += r.pages;
    out.with_content += r.has_content ? 1 : 0;
    if (out.records++ == 0) out.first_ns = r.time_ns;
    out.last_ns = r.time_ns;
}

}  // namespace

page_counts::~page_counts() {
    if (counts_ != nullptr) ::munmap(counts_, pages_ * sizeof *counts_);
}

bool page_counts::open(const std::vector<file_entry>& files) {
    for (const file_entry& file : files) {
        first_.push_back(pages_);
        pages_ += std::min(file.pages, most_pages + 1);
        if (pages_ > most_pages) return false;
    }
    void* const at = ::mmap(nullptr, pages_ * sizeof *counts_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return false;
    counts_ = static_cast<std::uint32_t*>(at);
    touched_.resize(apps::pieces_of(pages_, block_pages));
    return true;
}

bool page_counts::add(const record& r) {
    const std::uint64_t first = first_[r.file] + r.page,
                        room = first_blocks + ++records_ * blocks_of_a_record;
    for (std::uint64_t page = first; page < first + r.pages; ++page) {
        if (!touched_[page / block_pages]) {
            touched_[page / block_pages] = true;
            if (++touched_blocks_ > room) return false;
        }
        counts_[page] += counts_[page] < UINT32_MAX ? 1 : 0;
    }
    return true;
}

std::vector<page_counts::group> page_counts::groups() const {
    std::map<std::uint64_t, std::uint64_t> pages_by_times;
    for (std::uint64_t block = 0; block < touched_.size(); ++block)
        for (std::uint64_t page = block * block_pages;
             touched_[block] && page < std::min((block + 1) * block_pages, pages_); ++page)
            if (counts_[page] > 0) ++pages_by_times[counts_[page]];
    std::vector<group> out;
    for (auto entry = pages_by_times.rbegin(); entry != pages_by_times.rend(); ++entry)
        out.push_back({entry->first, entry->second});
    return out;
}

status summarise(const std::string& path, summary& out) {
    reader from;
    if (status s = from.open(path); !s) return s;
    out.header = from.header();
    out.binary = from.is_binary();
    page_counts counts;
    out.counted = counts.open(out.header.files);
    std::vector<record> batch;
    do {
        if (status s = from.next(batch, summarised_at_once); !s) return s;
        for (const record& r : batch) {
            count(r, out);
            if (out.counted) out.counted = counts.add(r);
        }
    } while (!batch.empty());
    if (!out.counted) return {};
    const std::vector<page_counts::group> groups = counts.groups();
    for (const page_counts::group& entry : groups) out.distinct_pages += entry.pages;
    out.hottest_1 = hottest(groups, out.distinct_pages, out.pages_read + out.pages_written, 0.01);
    out.hottest_10 = hottest(groups, out.distinct_pages, out.pages_read + out.pages_written, 0.1);
    return {};
}

status convert(const std::string& from, const std::string& to, bool binary,
               std::uint64_t& records) {
    reader in;
    if (status s = in.open(from); !s) return s;
    writer out;
    if (status s = out.open(to, from, in.header(), binary); !s) return s;
    std::vector<record> batch;
    do {
        if (status s = in.next(batch, summarised_at_once); !s) return s;
        if (status s = out.add(batch); !s) return s;
    } while (!batch.empty());
    records = out.records();
    return out.commit();
}

}  // namespace penstock::trace
