// Plays a trace through the core of a buffer, which moves no bytes.
#include "replay_run.hpp"

#include <array>
#include <cerrno>
#include <vector>

#include "buffer/core/check.hpp"
#include "buffer/core/core.hpp"
#include "buffer/core/movement.hpp"
#include "common/process.hpp"

namespace penstock::replay {

namespace {

using buffer::found;
using buffer::page_id;

constexpr std::size_t simulated_at_once = 4096, step = 4;

// Nothing is ever pinned here, so no access fails.
template <typename Order>
class player {
public:
    player(const trace::trace_header& header, const buffer_shape& shape, outcome& out)
        : contents_(header),
          dedu_(shape.policy == buffer::policy_kind::dedu),
          blocks_(shape.limits.blocks_per_page),
          out_(out) {}

    int make(const buffer::limits& limits) { return core_.make(limits); }

    // The core waits for little else than memory; what is to come is known here.
    PENSTOCK_FETCHING void look_ahead(const std::vector<trace::record>& records,
                                      std::size_t at) const {
        if (at + 3 * step >= records.size()) return;
        const auto first_page = [&](std::size_t i) {
            return page_id{records[i].page, records[i].file};
        };
        core_.expect_first(first_page(at + 3 * step));
        core_.expect_second(first_page(at + 2 * step));
        core_.expect_third(first_page(at + step));
    }

    // Memory goes by the number of records: one of 32 bytes may claim to write billions of pages.
    bool has_room(const trace::record& record) {
        constexpr std::uint64_t first_pages = 1u << 24, pages_of_a_record = 4096;
        room_ += pages_of_a_record;
        return !dedu_ || record.kind != trace::operation::write ||
               contents_.written_pages() + record.pages <= first_pages + room_;
    }

    void play(const trace::record& record) {
        if (record.kind == trace::operation::flush) {
            ++out_.flushes;
            core_.flush(record.file, moved_);
            return;
        }
        for (std::uint32_t i = 0; i < record.pages; ++i) {
            const page_id id{record.page + i, record.file};
            const found at = record.kind == trace::operation::read
                                 ? read(id)
                                 : write(id, record.has_content ? record.content + i
                                                                : page_contents::unlike_others);
            ++(at == found::host     ? out_.counts.host_hits
               : at == found::device ? out_.counts.device_hits
                                     : out_.counts.misses);
        }
    }

    // What moved, and what the core has in the end.
    void report() const {
        out_.counts.write_backs = moved_.written_pages;
        out_.counts.device_write_backs = moved_.written_from_device;
        out_.counts.demotions = moved_.demoted;
        out_.counts.promotions = moved_.promoted;
        out_.fills = moved_.filled;
        out_.dropped_pages = moved_.dropped_pages;
        const auto& end = core_.inside();
        out_.held.pages = end.pages.in_use();
        out_.held.blocks = end.blocks.in_use() - end.absent.size;
        out_.held.absent_blocks = end.absent.size;
        out_.held.pages_with_sharing = buffer::pages_with_sharing(end);
        out_.held.block_references = out_.held.pages * end.most.blocks_per_page;
        for (std::uint32_t file = 0; file < end.most.files; ++file)
            out_.dirty_pages += end.pages.dirty_pages(file);
    }

private:
    found read(page_id id) {
        found at;
        core_.touch(id, moved_, at);
        if (at == found::nowhere) {
            ++out_.counts.loads;
            core_.load(id, blocks_of(id), moved_);
        }
        ++out_.reads;
        return at;
    }
    found write(page_id id, std::uint64_t content) {
        found at = found::nowhere;
        ++out_.writes;
        if (dedu_) {
            contents_.write(id, content);
            core_.replace(id, blocks_of(id), moved_, at);
            return at;
        }
        core_.touch(id, moved_, at);
        found before;
        if (at != found::nowhere) core_.mark_dirty(id);
        else core_.replace(id, nullptr, moved_, before);
        return at;
    }

    // The contents of the page's blocks, good until the next call. Null: all alone.
    const buffer::content_id* blocks_of(page_id id) {
        const std::uint64_t content = dedu_ ? contents_.of(id) : page_contents::unlike_others;
        if (content == page_contents::unlike_others) return nullptr;
        for (std::uint32_t i = 0; i < blocks_; ++i) ids_[i] = {content, i};
        return ids_.data();
    }

    buffer::core<Order> core_;
    page_contents contents_;
    const bool dedu_;  // else every block is alone
    const std::uint32_t blocks_;
    outcome& out_;
    buffer::counts moved_;
    std::uint64_t room_ = 0;
    std::array<buffer::content_id, buffer::limits::most_blocks_per_page> ids_;
};

template <typename Order>
status play_all(trace::reader& from, const buffer_shape& shape, outcome& out) {
    player<Order> plays(from.header(), shape, out);
    if (plays.make(shape.limits) != 0)
        return {-ENOMEM, "there is no memory for the tables of " +
                             std::to_string(std::uint64_t{shape.limits.host_pages} +
                                            shape.limits.device_pages) +
                             " pages; give less with --ram and --gpu, or --table and --absent"};
    apps::stopwatch watch;
    std::vector<trace::record> records;
    do {
        if (status s = from.next(records, simulated_at_once); !s) return s;
        for (std::size_t i = 0; i < records.size(); ++i) {
            plays.look_ahead(records, i);
            if (!plays.has_room(records[i]))
                return {-EFBIG,
                        "a record that writes " + std::to_string(records[i].pages) +
                            " pages is more than so few records "
                            "may make dedu remember; write less at a time, or give --policy gram"};
            plays.play(records[i]);
        }
    } while (!records.empty());
    out.seconds = watch.lap();
    plays.report();
    return {};
}

}  // namespace

status simulate(trace::reader& from, const buffer_shape& shape, outcome& out) {
    return shape.order == buffer::order_kind::lru ? play_all<buffer::lru_order>(from, shape, out)
                                                  : play_all<buffer::clock_order>(from, shape, out);
}

}  // namespace penstock::replay
