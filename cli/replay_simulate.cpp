#include "replay_run.hpp"

#include <array>
#include <cerrno>
#include <unordered_map>
#include <vector>

#include "buffer/core/check.hpp"
#include "buffer/core/movement.hpp"
#include "buffer/core/core.hpp"
#include "buffer/core/types.hpp"
#include "common/process.hpp"

namespace penstock::replay {

namespace {

using buffer::content_id;
using buffer::found;
using buffer::page_id;

constexpr std::size_t simulated_at_once = 4096, step = 4;

struct page_hash {
    std::size_t operator()(const page_id& id) const {
        return mix64(id.page + std::uint64_t{id.file} * 0x9e3779b97f4a7c15ull);
    }
};

// What the pages of the trace's files hold as it goes on, as the contents of their blocks.
class page_contents {
public:
    page_contents(const trace::trace_header& header, std::uint32_t blocks)
        : made_(header.contents), blocks_(blocks) {}

    void write(page_id id, bool has_number, std::uint64_t number) {
        written_[id] = {has_number, number};
    }

    // Memory goes by the number of records: one of 32 bytes may claim to write billions of pages.
    [[nodiscard]] bool has_room(const trace::record& record) {
        constexpr std::uint64_t first_pages = 1u << 24, pages_of_a_record = 4096;
        room_ += pages_of_a_record;
        return record.kind != trace::operation::write ||
               written_.size() + record.pages <= first_pages + room_;
    }

    // Good until the next call. Null: all alone.
    const content_id* of(page_id id) {
        const auto written = written_.empty() ? written_.end() : written_.find(id);
        if (written == written_.end() && !made_) return nullptr;
        const content current = written == written_.end()
                                    ? content{true, trace::made_content(*made_, id.file, id.page)}
                                    : written->second;
        if (!current.has_number) return nullptr;
        for (std::uint32_t i = 0; i < blocks_; ++i) ids_[i] = {current.number, i};
        return ids_.data();
    }

private:
    struct content {
        bool has_number = false;
        std::uint64_t number = 0;
    };
    std::optional<trace::made_contents> made_;
    std::uint32_t blocks_;
    std::uint64_t room_ = 0;
    std::unordered_map<page_id, content, page_hash> written_;
    std::array<content_id, buffer::limits::most_blocks_per_page> ids_;
};

void count(found at, simulated& sum) {
    ++(at == found::host ? sum.host_hits : at == found::device ? sum.device_hits : sum.misses);
}

// Nothing is ever pinned here, so no access fails.
template <typename Core>
class player {
public:
    player(Core& core, page_contents* contents, simulated& sum)
        : core_(core), contents_(contents), sum_(sum) {}

    void play(const trace::record& record) {
        if (record.kind == trace::operation::flush) {
            ++sum_.flushes;
            core_.flush(record.file, sum_.moved);
            return;
        }
        for (std::uint32_t i = 0; i < record.pages; ++i) {
            const page_id id{record.page + i, record.file};
            if (record.kind == trace::operation::read) read(id);
            else write(id, record.has_content, record.content + i);
        }
    }

private:
    void read(page_id id) {
        found at;
        core_.touch(id, sum_.moved, at);
        if (at == found::nowhere) {
            ++sum_.loads;
            core_.load(id, contents_ == nullptr ? nullptr : contents_->of(id), sum_.moved);
        }
        ++sum_.reads;
        count(at, sum_);
    }
    void write(page_id id, bool has_number, std::uint64_t number) {
        found at = found::nowhere;
        if (contents_ != nullptr) {
            contents_->write(id, has_number, number);
            core_.replace(id, contents_->of(id), sum_.moved, at);
        } else {
            core_.touch(id, sum_.moved, at);
            found before;
            if (at != found::nowhere) core_.mark_dirty(id);
            else core_.replace(id, nullptr, sum_.moved, before);
        }
        ++sum_.writes;
        count(at, sum_);
    }

    Core& core_;
    page_contents* contents_;  // null: every block is alone
    simulated& sum_;
};

// The core waits for little else than memory; what is to come is known here.
template <typename Core>
PENSTOCK_FETCHING void look_ahead(const Core& core, const std::vector<trace::record>& records,
                                  std::size_t at) {
    if (at + 3 * step >= records.size()) return;
    const auto first_page = [&](std::size_t i) {
        return page_id{records[i].page, records[i].file};
    };
    core.expect_first(first_page(at + 3 * step));
    core.expect_second(first_page(at + 2 * step));
    core.expect_third(first_page(at + step));
}

template <typename Core>
void look_at_the_end(const Core& core, simulated& sum) {
    const auto& end = core.inside();
    sum.pages = end.pages.in_use();
    sum.blocks = end.blocks.in_use() - end.absent.size;
    sum.absent_blocks = end.absent.size;
    sum.pages_with_sharing = buffer::pages_with_sharing(end);
    sum.block_references = std::uint64_t{sum.pages} * end.most.blocks_per_page;
    for (std::uint32_t file = 0; file < end.most.files; ++file)
        sum.dirty_pages += end.pages.dirty_pages(file);
}

template <typename Order>
status play_all(trace::reader& from, const simulation& setup, simulated& sum) {
    buffer::core<Order> core;
    if (core.make(setup.limits) != 0)
        return {-ENOMEM, "there is no memory for the tables of " +
                             std::to_string(std::uint64_t{setup.limits.host_pages} +
                                            setup.limits.device_pages) +
                             " pages; give less with --ram and --gpu, or --table and --absent"};
    page_contents contents(from.header(), setup.limits.blocks_per_page);
    player<buffer::core<Order>> plays(core, setup.page_policy == policy::dedu ? &contents : nullptr,
                                      sum);
    apps::stopwatch watch;
    std::vector<trace::record> records;
    do {
        if (status failed = from.next(records, simulated_at_once); !failed) return failed;
        for (std::size_t i = 0; i < records.size(); ++i) {
            look_ahead(core, records, i);
            if (setup.page_policy == policy::dedu && !contents.has_room(records[i]))
                return {-EFBIG,
                        "a record that writes " + std::to_string(records[i].pages) +
                            " pages is more than so few records "
                            "may make dedu remember; write less at a time, or give --policy gram"};
            plays.play(records[i]);
        }
    } while (!records.empty());
    sum.seconds = watch.lap();
    look_at_the_end(core, sum);
    return {};
}

}  // namespace

status simulate(trace::reader& from, const simulation& setup, simulated& out) {
    return setup.order == host_order::lru ? play_all<buffer::lru_order>(from, setup, out)
                                          : play_all<buffer::clock_order>(from, setup, out);
}

}  // namespace penstock::replay
