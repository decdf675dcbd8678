// Blocks of files in a store between nodes, for penstock.agent.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "core/core.hpp"
#include "store/agent_rests.hpp"
#include "store/warm.hpp"

namespace penstock::python {

namespace nb = nanobind;

void bind_store(nb::module_& m) {
    m.attr("block_bytes") = host::block_bytes;
    m.attr("block_object_bytes") = host::block_object_bytes;
    m.def(
        "warm_blocks",
        [](const file_name& path, const file_name& socket, const file_name& space,
           std::uint64_t first, std::uint64_t step, std::uint64_t count, std::uint64_t wait_ms) {
            host::warm_counts counts;
            options of_environment;  // PENSTOCK_TRUST_TIMES
            status s = options::from_environment(of_environment);
            if (s.ok()) {
                const without_gil others_go_on;
                host::agent_store store(socket.bytes);
                host::ask_agent_about_rests(socket.bytes);
                s = host::warm_blocks(
                    host::linux_environment(), path.bytes,
                    {space.bytes, wait_ms * 1'000'000, of_environment.trust_times},
                    {first, step, count}, store, counts);
            }
            if (counts.store_code == 0) check(s, path.bytes);
            return std::make_tuple(counts.had, counts.put, counts.full, counts.store_code);
        },
        nb::arg("path"), nb::arg("socket"), nb::arg("space"), nb::arg("first"), nb::arg("step"),
        nb::arg("count"), nb::arg("wait_ms"),
        "Brings blocks into the store. How many it had, were put, and found no room; and 0, or the "
        "negative errno with which the store failed at the block after these.");
    m.def(
        "facts_of",
        [](const file_name& path) {
            host::environment& env = host::linux_environment();
            host::file_facts facts;
            int code = 0;
            {
                const without_gil free;  // a server may answer late
                code = env.find(-1, path.bytes);
                if (code >= 0) {
                    const int handle = code;
                    code = env.facts(handle, facts);
                    env.close(handle);
                }
            }
            check(code, "facts", path.bytes);
            const host::block_key key = host::key_of_facts(facts.identity);
            return nb::bytes(key.data(), key.size());
        },
        nb::arg("path"), "What stands for the version of a file that its file system tells now.");
}

}  // namespace penstock::python
