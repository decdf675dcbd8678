// The manager of a buffer that keeps equal blocks once (DEDU: Zhong and He, ICCS 2011, 4; docs/buffer.md).
//
// A page is D blocks, and blocks with equal bytes are one block, whoever has them. So a page that is fixed is a copy of its own, put together from its blocks: for reading, of the page as it was when it was fixed; for
// writing, of which there is one at a time, and what was changed becomes the page's at unfix. A hit in the host takes no lock: one look at the page's entry, a step on the latch of its slot, the copy, and a step back.
// All else is asked of one thread at a time, which does it for all that have asked meanwhile (combiner.hpp): signatures, comparing and moving are one call of the device each for a batch.
#pragma once

#include "buffer/manager.hpp"
#include "buffer/signature.hpp"

namespace penstock::buffer {

struct dedu_settings {
    std::uint32_t blocks_per_page = 4;      // a power of two; a block is a multiple of signed_bytes
    std::uint32_t table_pages = 0;          // pages in the table, at most; 0: 8 times those that the frames hold
    signature_kind signature = signature_kind::quick;
    bool sign_on_device = false;            // else each thread signs its own page
    bool adaptive = true;                   // files in which hardly any equal blocks are found are left in peace for a while
    std::uint32_t batch_pages = 256;
    std::uint32_t batch_wait_us = 0;        // for others to join a batch
    std::uint64_t signature_mask = ~std::uint64_t{0};  // for tests: fewer bits make blocks of one signature and other bytes
};

// `settings.order`, `files`, `sessions` ... as they are; `frames`: of the shape dedu_frames_for(). What goes wrong is said in the status.
frames_shape dedu_frames_for(const manager_settings& settings, const dedu_settings& how);
status make_dedu_manager(const manager_settings& settings, const dedu_settings& how, device_frames& frames, host::environment& env, std::unique_ptr<manager>& out);

}  // namespace penstock::buffer
