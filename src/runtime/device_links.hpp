// Links the caches of a runtime's devices with each other, and with those of other processes.
#pragma once

#include <memory>
#include <vector>

#include "links/links.hpp"
#include "runtime/runtime_state.hpp"

namespace penstock::host {

// Call it when the caches are complete and before any service runs. Null: there is one cache, or no
// device reaches another; the log says so for each pair without a link. Null also where there is a
// share name, for then each cache finds the others by it.
std::unique_ptr<links> link_caches(const std::vector<std::unique_ptr<runtime_state>>& states);

// Before any of the caches goes: no group reads another's any more. Ends the waits of all kernels.
void unlink_caches(links& linked, const std::vector<std::unique_ptr<runtime_state>>& states);

// Likewise, where the settings have a share name. The caches of the runtime meet each other there,
// as those of other processes. What stands in the way is said, and the cache is shared with no
// process then, and with no other cache of the runtime.
void share_cache(runtime_state& state);

// As unlink_caches, for one cache: others that read it have its memory mapped for themselves. The
// observer of the registry stays until the services are gone.
void end_sharing(runtime_state& state);

}  // namespace penstock::host
