// Solvers, which find the distances of all vertices from one, and the plain one to check them by.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/device_memory.hpp"
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

// Finds the distances of all vertices from one, in memory of the device that computes.
class solver {
public:
    virtual ~solver() = default;
    solver(const solver&) = delete;
    solver& operator=(const solver&) = delete;

    // Once. -ENOMEM and a message if there is not the memory.
    status prepare();
    // From scratch. A graph that the solver's processor reaches, of the shape in the settings.
    status compute(const graph_view& graph, std::uint32_t source);
    status copy_distances(std::uint32_t* to);
    // Of the last search.
    [[nodiscard]] const search_state& last() const { return state_; }

protected:
    // `memory_name` is for messages.
    solver(const solver_settings& settings, std::unique_ptr<apps::device_memory> memory,
           std::string memory_name)
        : settings_(settings), memory_(std::move(memory)), memory_name_(std::move(memory_name)) {}
    // A stretch of steps, between two of which it is asked whether to give up.
    virtual status run_steps() = 0;

    const solver_settings settings_;
    search_view view_{};

private:
    [[nodiscard]] status outcome() const;

    std::unique_ptr<apps::device_memory> memory_;
    const std::string memory_name_;
    search_state state_{};
};

// -ENOMEM and a message if there is not the memory.
status make_cpu_solver(const solver_settings& settings, std::unique_ptr<solver>& out);
// -ENODEV too, where there is no such GPU or this was built without CUDA.
status make_gpu_solver(const solver_settings& settings, std::unique_ptr<solver>& out);

// Is there a GPU of this number, and can this program use it?
bool gpu_is_there(int device);

// The distances as the textbook finds them, on one core, to check the others by (Dijkstra, 1959).
std::vector<std::uint32_t> plain_distances(const graph_view& graph, std::uint32_t source);

}  // namespace penstock::sssp
