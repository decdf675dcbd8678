// The manager of a buffer that keeps equal blocks once (DEDU: Zhong and He, ICCS 2011, 4;
// docs/guide/buffer.md).
//
// A page is D blocks, and blocks with equal bytes are one block, whichever pages have them. So a
// page that is fixed is a copy of its own, put together from its blocks: for reading, of the page
// as it was when it was fixed; for writing, of which there is one at a time, and what was changed
// becomes the page's at unfix. A hit in the host takes no lock: one look at the page's entry, a
// step on the latch of its slot, the copy, and a step back. All else is asked of one thread at a
// time, which does it for all that have asked meanwhile (combiner.hpp): signatures, comparing and
// moving are one call of the device each for a batch.
#pragma once

#include "buffer/pool/manager.hpp"

namespace penstock::buffer {

frames_shape dedu_frames_for(const manager_settings& settings);
// For manager::make, which says what goes wrong the same way.
status make_dedu_manager(const manager_settings& settings, device_frames& frames,
                         host::environment& env, std::unique_ptr<manager>& out);

}  // namespace penstock::buffer
