// The loader of a buffer of shared blocks: does what a batch of requests asks for, by driving the
// core. It alone changes the core.
//
// By one thread at a time, the one that runs the batch (combiner.hpp). It holds `batch_` while it
// does so, which a thread takes that only counts. What moves goes through the mover, what blocks
// hold through the search, and where a page can be had the directory says.
#pragma once

#include <cerrno>
#include <cstring>
#include <exception>
#include <mutex>
#include <variant>
#include <vector>

#include "buffer/core/core.hpp"
#include "buffer/pool/block_mover.hpp"
#include "buffer/pool/content_search.hpp"
#include "buffer/pool/dedu_directory.hpp"
#include "buffer/pool/dedu_request.hpp"
#include "buffer/pool/unwritten_pages.hpp"

namespace penstock::buffer {

template <typename Order>
class block_loader {
public:
    block_loader(core<Order>& core, dedu_directory& pages, unwritten_pages& unwritten,
                 content_search& search, block_mover& mover)
        : core_(core), pages_(pages), unwritten_(unwritten), search_(search), mover_(mover) {}

    void handle(const dedu_batch& batch) {
        const std::lock_guard hold(batch_);
        mover_.begin_batch(broken_ ? -EIO : 0);
        // Where memory is short in the middle of a batch, the core and the frames may no longer
        // agree: as after an error of the device.
        try {
            perform_all(batch);
        } catch (const std::exception&) {
            mover_.note(-ENOMEM);
        }
        mover_.run();
        search_.end_batch();
        if (mover_.code() != 0) {
            broken_ = true;
            for (dedu_request* const each : batch) each->code = -EIO;
        }
        for (dedu_request* const each : batch) {
            if (each->code == 0 && each->brings_page()) pages_.publish(each->id);
            if (const auto* const load = std::get_if<load_page>(&each->task);
                load != nullptr && load->disowns)
                pages_.page(each->id).disown();
        }
    }

    // While no batch is run.
    template <typename Look>
    auto look(const Look& look) const {
        const std::lock_guard hold(batch_);
        return look();
    }
    void add_counts(manager_counts& out) const {
        out.host_hits += counts_.host_hits;
        out.device_hits += counts_.device_hits;
        out.misses += counts_.misses;
        out.loads += counts_.loads;
        out.prefetched += counts_.prefetched;
    }

private:
    // Pages.
    struct counts {
        std::uint64_t host_hits = 0, device_hits = 0, misses = 0, loads = 0, prefetched = 0;
    };

    // Uses of pages that were in the host then. One that is not there any more is not fetched for
    // it.
    void tell(std::vector<page_id>& hits) {
        const core_tables& known = core_.inside();
        counts_.host_hits += hits.size();
        for (const page_id id : hits) {
            const std::uint32_t slot = known.pages.find(id);
            bool in_host = slot != nothing;
            for (std::uint32_t i = 0; in_host && i < known.most.blocks_per_page; ++i)
                in_host = known.blocks[known.number_at(slot, i)].where == side::host;
            found at{};
            if (in_host)
                core_.touch(
                    id, [](const action&) {}, at);
            if (slot != nothing)
                pages_.file_at(id.file)->watch.hit();  // else the file may be there no more
        }
        hits.clear();
    }
    void perform_all(const dedu_batch& batch) {
        if (mover_.code() == 0) mover_.note(search_.prepare(batch));
        const bool performs = mover_.code() == 0;
        for (dedu_request* const each : batch) {
            if (each->hits != nullptr) tell(*each->hits);
            if (performs) perform(*each);
        }
    }
    void perform(dedu_request& asked) {
        asked.code = std::visit([&](auto& task) { return perform(asked.id, task); }, asked.task);
        drop_unwritten();
    }
    int perform(page_id, const tell_hits&) { return 0; }
    int perform(page_id id, const touch_page& touch) {
        found at{};
        const int code = core_.touch(id, carries_out(nullptr), at);
        if (at == found::nowhere) return -EAGAIN;
        if (code != 0) return code;
        ++(at == found::device ? counts_.device_hits : counts_.host_hits);
        pages_.file_at(id.file)->watch.hit();
        mover_.copy_out(id, touch.bytes);
        return 0;
    }
    int perform(page_id id, const load_page& load) {
        if (core_.inside().pages.find(id) != nothing)
            if (int code = 0; load_known(id, load, code)) return code;
        if (load.blocks->is_hashed && !load.blocks->is_prepared) {
            mover_.run();  // what frames hold is looked at
            mover_.note(search_.prepare_late(*load.blocks));
        }
        const int code =
            core_.load(id, search_.contents_for(id, *load.blocks), carries_out(load.bytes));
        if (code == 0) note_load(id, load);
        return code;
    }
    // The page is in the table. False: not any more, and it has to be loaded as a new one.
    bool load_known(page_id id, const load_page& load, int& code) {
        if (core_.inside().is_complete(id)) {  // what it lacked came with another page: a hit
            found at{};
            if (load.counts) {
                code = core_.touch(id, carries_out(load.bytes), at);
                ++(at == found::device ? counts_.device_hits : counts_.host_hits);
            }
            return true;
        }
        if (!search_.has_what_is_absent(id, *load.blocks)) {
            core_.forget(id, carries_out(load.bytes));
            return false;
        }
        code = core_.load(id, nullptr, carries_out(load.bytes));
        if (code == 0) note_load(id, load);
        return true;
    }
    void note_load(page_id id, const load_page& load) {
        if (load.counts) ++counts_.misses, ++counts_.loads;
        else ++counts_.prefetched;
        pages_.page(id).set_where(owned_entry::elsewhere);
        search_.note_load(id, load);
    }
    int perform(page_id id, const replace_page& replace) {
        const content_id* const contents = search_.contents_for(id, *replace.blocks);
        if (core_.inside().is_complete(id)) pages_.unpublish(id, owned_entry::elsewhere);
        found at{};
        const int code = core_.replace(id, contents, carries_out(replace.bytes), at);
        if (code != 0) return code;
        if (replace.counts)
            ++(at == found::host     ? counts_.host_hits
               : at == found::device ? counts_.device_hits
                                     : counts_.misses);
        unwritten_.forget(id);
        pages_.page(id).set_where(owned_entry::elsewhere);
        return 0;
    }
    int perform(page_id id, const rescue_pages& rescue) {
        const int code = unwritten_.rescue(nothing);
        if (rescue.bytes == nullptr) return code;
        const std::byte* const kept = unwritten_.find(id);
        if (kept == nullptr) return -EAGAIN;
        std::memcpy(rescue.bytes, kept, pages_.page_bytes());
        ++counts_.misses;
        return 0;
    }
    // What became dirty first, first; others wait while this goes on, so it is a few pages at a
    // time.
    int perform(page_id any, flush_pages& flush) {
        constexpr std::uint32_t at_once = 32;
        if (flush.left == nothing) {
            if (const int code = unwritten_.rescue(any.file); code != 0) return code;
            if (pages_.file_at(any.file)->has_lost) return -EIO;
            flush.left = core_.dirty_pages(any.file);
        }
        for (std::uint32_t i = 0; i < at_once && flush.left > 0; ++i) {
            page_id id;
            if (!core_.first_dirty(any.file, id)) {
                flush.left = 0;
                break;
            }
            if (const int code = mover_.write(id); code != 0) return code;
            core_.mark_clean(id);
            --flush.left;
        }
        return 0;
    }
    int perform(page_id id, const forget_page& forget) {
        if (forget.spares_dirty && (unwritten_.find(id) != nullptr || core_.is_dirty(id)))
            return -EBUSY;
        const bool is_here = core_.inside().pages.find(id) != nothing;
        unwritten_.forget(id);
        const int code = is_here ? core_.forget(id, carries_out(nullptr)) : 0;
        pages_.page(id).set_where(owned_entry::nowhere);
        return code;
    }
    // The core takes a page for written when it has said so. What could not be written must not
    // stay in the table then: its file does not have what its blocks are.
    void drop_unwritten() {
        unwritten_.take_failed([&](page_id id) {
            if (core_.inside().pages.find(id) != nothing) core_.forget(id, carries_out(nullptr));
        });
    }
    // The sink of the core, while a page comes in from `from`.
    auto carries_out(const std::byte* from) {
        return [this, from](const action& told) { mover_.carry_out(told, from); };
    }

    core<Order>& core_;
    dedu_directory& pages_;
    unwritten_pages& unwritten_;
    content_search& search_;
    block_mover& mover_;
    mutable std::mutex batch_;
    bool broken_ = false;  // the device failed: what its frames hold is not known
    counts counts_;
};

}  // namespace penstock::buffer
