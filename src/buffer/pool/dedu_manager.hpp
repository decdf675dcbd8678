// The manager of a buffer that keeps equal blocks once (DEDU: Zhong and He, ICCS 2011, 4;
// docs/guide/buffer.md).
//
// A page is D blocks, and blocks with equal bytes are one block, whichever pages have them. So a
// page that is fixed is a copy of its own, put together from its blocks: for reading, of the page
// as it was when it was fixed; for writing, of which there is one at a time, and what was changed
// becomes the page's at unfix. A hit in the host takes no lock: one look at the page's entry, a
// step on the latch of its slot, the copy, and a step back. All else is a request, which one thread
// at a time does for all that have asked meanwhile (combiner.hpp): a batch. Content hashes,
// comparing and moving are one call of the device each for a batch.
//
// The classes, each with the fields that it alone changes:
//
//   class            duty                                    changed by
//   ---------------  --------------------------------------  -------------------------------------
//   dedu_directory   files; where their pages are; copies    entries: owners and the batch; latches
//                    of pages in the host; published pages   and places: the batch; files: `files`
//   unwritten_pages  pages that had to go and could not be   the batch
//                    written
//   content_search   hashes blocks, remembers content        content hashes of a page: its owner;
//                    hashes, finds equal blocks              the rest: the batch
//   block_mover      moves bytes as the core says            the batch
//   block_loader     does what requests ask; changes core    the batch
//   file_states      which session works in which file       sessions and closers, by atomic words
//   session_numbers  which numbers of sessions are taken     its own lock
//   dedu_session     what one thread has fixed and asks      its thread
//
// docs/protocol/buffer.md has the order of all locks.
#pragma once

#include <atomic>
#include <chrono>

#include "buffer/pool/combiner.hpp"
#include "buffer/pool/content_search.hpp"
#include "buffer/pool/dedu_directory.hpp"
#include "buffer/pool/dedu_request.hpp"
#include "buffer/pool/file_states.hpp"
#include "buffer/pool/frame_lender.hpp"
#include "buffer/pool/manager.hpp"
#include "buffer/pool/paged_session.hpp"
#include "buffer/pool/unwritten_pages.hpp"

namespace penstock::buffer {

// Lends pages of which all blocks lie in the host. Those of a device do not lie together, and only
// the batch knows where.
class copied_lender final : public frame_lender {
public:
    copied_lender(const manager_settings& settings, host::environment& env, dedu_directory& pages)
        : frame_lender(settings, env), pages_(pages) {}

protected:
    [[nodiscard]] std::uint64_t size_of(std::uint32_t number) const override {
        return pages_.file_at(number)->bytes;
    }
    bool copy_part(page_id id, std::uint64_t from, std::uint64_t bytes, std::byte* to) override {
        return id.page < pages_.file_at(id.file)->pages &&
               pages_.copy(id, to, from, bytes) == found_by_entry::taken;
    }

private:
    dedu_directory& pages_;
};

frames_shape dedu_frames_for(const manager_settings& settings);
// For manager::make, which says what goes wrong the same way.
status make_dedu_manager(const manager_settings& settings, device_frames& frames,
                         host::environment& env, std::unique_ptr<manager>& out);

// What sessions use of the manager.
struct dedu_shared {
    // `slots`: of the core's page table. `handle`: does a batch.
    dedu_shared(const manager_settings& settings, std::uint32_t slots, device_frames& frames,
                host::environment& env, const core_tables& known,
                combiner<dedu_request>::handler handle);

    // Of the host's frames, pages for what one session has fixed and brings, and one for what it
    // has posted; behind those of all sessions a page of the batch's own.
    static std::uint32_t own_pages(const manager_settings& settings) {
        return settings.fixed_pages + 1 + settings.dedu.window_pages;
    }
    [[nodiscard]] std::uint32_t first_own_frame(std::uint32_t session) const {
        return (settings.host_pages + session * own_pages(settings)) * dedu.blocks_per_page;
    }
    [[nodiscard]] deadline wait_until() const {
        return std::chrono::steady_clock::now() + std::chrono::milliseconds(settings.wait_ms);
    }
    // Pages of the file from `first` to before `end` leave, each when it has no owner. 0, an error,
    // or -ETIMEDOUT.
    int forget(dedu_request& asked, std::uint32_t number, std::uint64_t first, std::uint64_t end,
               deadline until);

    const manager_settings settings;
    const dedu_settings& dedu = settings.dedu;
    const frames_shape shape;
    file_states states;
    session_numbers sessions;
    dedu_directory pages;
    unwritten_pages unwritten;
    content_search search;
    combiner<dedu_request> requests;
    copied_lender lender;
};

std::unique_ptr<session> make_dedu_session(dedu_shared& all, std::uint32_t number);

}  // namespace penstock::buffer
