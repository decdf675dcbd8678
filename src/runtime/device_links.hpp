// Links the caches of a runtime's devices with each other.
#pragma once

#include <memory>
#include <vector>

#include "links/links.hpp"
#include "runtime/runtime_state.hpp"

namespace penstock::host {

// Call it when the caches are complete and before any service runs. Null: there is one cache, or no
// device reaches another; the log says so for each pair without a link.
std::unique_ptr<links> link_caches(const std::vector<std::unique_ptr<runtime_state>>& states);

// Before any of the caches goes: no group reads another's any more. Ends the waits of all kernels.
void unlink_caches(links& linked, const std::vector<std::unique_ptr<runtime_state>>& states);

}  // namespace penstock::host
