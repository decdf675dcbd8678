// The orders and scopes of an atomic access (base/atomic.hpp).
#pragma once

namespace penstock {

enum class order { relaxed, acquire, release, acq_rel };

// device: seen by the threads of one device (a GPU, or the threads of the cpu back end).
// system: seen by the host as well, for words in host memory that GPU and CPU share.
enum class scope { device, system };

}  // namespace penstock
