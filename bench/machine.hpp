// The machine that figures were measured on.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "penstock/error.hpp"
#include "penstock/options.hpp"

namespace penstock::bench {

// Settles auto, and makes waiting for the GPU sleep, so that it is not taken for work. -ENODEV with
// the cure if a GPU is asked for and none can be used. `device`: its number, for this thread's
// calls from now on. Before any runtime is made.
status choose_backend(backend asked, int device, backend& out);

nlohmann::ordered_json machine_json(backend where, const std::string& directory,
                                    const std::string& commit);

}  // namespace penstock::bench
