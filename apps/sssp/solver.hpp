// Solvers, which find the distances of all vertices from one, and the plain one to check them by.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "graph_file.hpp"
#include "penstock/error.hpp"
#include "search.hpp"

namespace penstock::sssp {

struct solver_settings {
    graph_shape shape;
    std::uint32_t delta = 1;
    std::uint32_t threads = 1;          // on the cpu
    int device = 0;                     // on a gpu
    std::function<bool()> interrupted;  // asked now and then; true: give up
};

// Finds the distances of all vertices from one, wherever that is computed.
class solver {
public:
    virtual ~solver() = default;
    // From scratch. A graph that the solver's processor reaches, of the shape in the settings.
    virtual status compute(const graph_view& graph, std::uint32_t source) = 0;
    virtual status copy_distances(std::uint32_t* to) = 0;
    // Of the last search.
    [[nodiscard]] virtual search_state last() const = 0;
};

// -ENOMEM and a message if there is not the memory.
status make_cpu_solver(const solver_settings& settings, std::unique_ptr<solver>& out);
// -ENODEV too, where there is no such GPU or this was built without CUDA.
status make_gpu_solver(const solver_settings& settings, std::unique_ptr<solver>& out);

// Is there a GPU of this number, and can this program use it?
bool gpu_is_there(int device);

// Searches in stretches of steps, between which it is asked whether to give up. `run_steps()` does
// some, `state` is as they left it.
status run_search(const solver_settings& settings, const std::function<status()>& run_steps,
                  const search_state& state);

// The distances as the textbook finds them, on one core, to check the others by (Dijkstra, 1959).

std::vector<std::uint32_t> plain_distances(const graph_view& graph, std::uint32_t source);

}  // namespace penstock::sssp
