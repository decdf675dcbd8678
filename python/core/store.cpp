// Blocks of files in a store between nodes, for penstock.agent.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <tuple>

#include "core/core.hpp"
#include "os/file_kind.hpp"
#include "store/agent_store.hpp"
#include "store/warm.hpp"

namespace penstock::python {

namespace nb = nanobind;

namespace {

// Without the GIL, for a server may answer late. 0 or a negative errno.
int look_at(const file_name& path, host::file_facts& facts) {
    const without_gil free;
    host::environment& env = host::linux_environment();
    const int found = env.find(-1, path.bytes);
    if (found < 0) return found;
    const int code = env.facts(found, facts);
    env.close(found);
    return code;
}

}  // namespace

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
        "rest_left_seconds",
        [](const file_name& path) {
            options of_environment;
            check(options::from_environment(of_environment));
            host::file_facts facts;
            const int code = look_at(path, facts);
            check(code, "facts", path.bytes);
            return static_cast<double>(host::rest_left_ns(facts, of_environment.trust_times)) / 1e9;
        },
        nb::arg("path"),
        "How long a file has to rest yet, since this process knows it, for its times to be proof.");
    m.def(
        "facts_of",
        [](const file_name& path) {
            host::file_facts facts;
            const int code = look_at(path, facts);
            check(code, "facts", path.bytes);
            const host::block_key key = host::key_of_facts(facts.identity);
            return nb::bytes(key.data(), key.size());
        },
        nb::arg("path"), "What stands for the version of a file that its file system tells now.");
}

}  // namespace penstock::python
